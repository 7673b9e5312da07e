"""Docker and Apptainer: the exact commands, and what they do when a stand-in carries them out with bubblewrap."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import Contained, EndedBy, run_contained
from agent2.sandbox.containers import Apptainer, Container, Docker, set_up_container
from agent2.sandbox.host import has_root_rights, uid_for
from agent2.sandbox.spec import Limits, Mount, Network, SandboxSpec, Strength
from socket_paths import short_path

INFO = {"ServerVersion": "28.1", "MemoryLimit": True, "PidsLimit": True, "SecurityOptions": ["name=seccomp"]}
SECONDS = f"619.{os.getpid()}"
"""What programs sleep here, and those of no other run."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """An engine that is not there."""

    binary: str
    state: Path

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.state / "calls").read_text().splitlines()]


def _stand_in(folder: Path, kind: str, info: dict[str, Any] | None = None) -> StandIn:
    state = folder / f"{kind}-state"
    state.mkdir()
    (state / "info.json").write_text(json.dumps(INFO if info is None else info))
    binary = folder / kind
    script = Path(__file__).with_name("stand_in.py")
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} {script} {kind} {state} "$@"\n')
    binary.chmod(0o755)
    return StandIn(str(binary), state)


@pytest.fixture(params=["docker", "apptainer"])
def engine(request, tmp_path):
    if shutil.which("bwrap") is None:
        pytest.skip("the stand-ins need bubblewrap (bwrap)")
    stand_in = _stand_in(tmp_path, request.param)
    return Docker(stand_in.binary) if request.param == "docker" else Apptainer(stand_in.binary)


def _run(engine, folder: Path, *command: str, **parts) -> tuple[Any, str]:
    engine.prepare_workspace(folder / "workspace")
    process = engine.start(SandboxSpec(command, folder / "workspace", folder / "log", **parts))
    end = process.wait(300)
    assert end is not None, (folder / "log").read_text()
    return end, (folder / "log").read_text()


def test_a_program_finds_the_toolkit_its_mounts_and_its_workspace(engine, tmp_path):
    base = tmp_path / "base, and more"
    base.mkdir()
    (base / "config.json").write_text("{}")
    base.chmod(0o755)
    program = """
import agent2, os, pathlib, socket
print(open("/model/config.json").read(), os.getcwd(), os.environ["HOME"], os.getuid() == 0, socket.gethostname())
pathlib.Path("made").write_text("by the program")
for place in ["/", "/usr", "/etc", "/model", "/run/agent2"]:
    try:
        open(place + "/new", "w")
        print("wrote", place)
    except OSError:
        pass
for place in ["/tmp", "/home/agent", "/dev/shm"]:
    open(place + "/new", "w").close()
"""
    end, log = _run(engine, tmp_path, "python", "-c", program, mounts=(Mount(base, "/model"),))
    assert (end.code, log) == (0, "{} /workspace /home/agent False agent2\n")
    assert (tmp_path / "workspace" / "made").read_text() == "by the program"


def test_no_network_no_rights_no_environment(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("PROVIDER_KEY", "sk-private")
    program = """
import os, socket
print([name for _, name in socket.if_nameindex()], "PROVIDER_KEY" in os.environ)
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm", "NoNewPrivs")):
        print(line.split()[1].lstrip("0") or "0", end=" ")
"""
    _, log = _run(engine, tmp_path, "python", "-c", program)
    assert log == "['lo'] False\n0 0 1 "


def test_ports_lead_out_and_answers_come_back(engine, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(tmp_path / "s"))
        server.listen()
        threading.Thread(target=lambda: server.accept()[0].sendall(b"score 1"), daemon=True).start()
        program = "import socket; print(socket.create_connection(('127.0.0.1', 8123), 120).recv(100))"
        _, log = _run(engine, tmp_path, "python", "-c", program, ports={8123: tmp_path / "s"})
    assert log == "b'score 1'\n"


def test_a_stop_ends_the_container_and_nothing_is_left(engine, tmp_path):
    engine.prepare_workspace(tmp_path / "workspace")
    command = ("sh", "-c", f"trap '' TERM; setsid sleep {SECONDS} & echo up; while :; do sleep 0.05; done")
    process = engine.start(SandboxSpec(command, tmp_path / "workspace", tmp_path / "log"))
    _until(lambda: _sleepers() == 1)
    end = process.stop(0.3)
    assert end.code == 137 and "killed after 0.3 s" in end.reason
    assert _sleepers() == 0


def test_a_program_may_tidy_up_when_asked_to_stop(engine, tmp_path):
    engine.prepare_workspace(tmp_path / "workspace")
    command = ("sh", "-c", "trap 'echo tidy; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    process = engine.start(SandboxSpec(command, tmp_path / "workspace", tmp_path / "log"))
    _until(lambda: "up" in (tmp_path / "log").read_text())
    assert process.stop(120).code == 3
    assert "tidy" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("kind", ["docker", "apptainer"])
def test_killing_the_harness_ends_the_container(tmp_path, kind):
    """Under Docker nothing but the closed connection can do it: the engine's processes are not ours."""
    stand_in = _stand_in(tmp_path, kind)
    program = f"""
import time
from pathlib import Path
from agent2.sandbox.containers import {kind.capitalize()}
from agent2.sandbox.spec import SandboxSpec
folder = Path({str(tmp_path)!r})
engine = {kind.capitalize()}({stand_in.binary!r})
engine.prepare_workspace(folder / "workspace")
process = engine.start(SandboxSpec(("sleep", {SECONDS!r}), folder / "workspace", folder / "log"))
time.sleep(600)
"""
    harness = subprocess.Popen([sys.executable, "-c", program])
    _until(lambda: _sleepers() == 1)
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    _until(lambda: _sleepers() == 0)


def test_contained_programs_run_in_engines_too(engine, tmp_path):
    program = "import sys; print(sys.stdin.read()[::-1]); print('note', file=sys.stderr)"
    request = Contained(("python", "-c", program), tmp_path / "scratch", tmp_path / "log", stdin=b"abc")
    end = run_contained(request, engine, timeout_s=300)
    assert (end.ended_by, end.code, end.stdout) == (EndedBy.ITSELF, 0, b"cba\n")
    assert (tmp_path / "log").read_text() == "note\n"


def test_limits_of_one_process_hold(engine, tmp_path):
    limits = Limits(file_size_gib=0.01, open_files=100)
    script = "ulimit -n; head -c 100000000 /dev/zero > big"
    _, log = _run(engine, tmp_path, "sh", "-c", script, limits=limits)
    assert log.startswith("100\n")
    assert (tmp_path / "workspace" / "big").stat().st_size <= 0.01 * 2**30


def test_a_full_workspace_stops_the_program(engine, tmp_path):
    program = """
import itertools, time
for i in itertools.count():
    open(f"file{i}", "wb").write(bytes(5_000_000))
    time.sleep(0.02)
"""
    end, _ = _run(engine, tmp_path, "python", "-c", program, limits=Limits(disk_gib=0.03))
    assert (end.broke, end.code) == ("disk", 137)


def test_the_docker_command_is_exact(tmp_path):
    stand_in = _stand_in(tmp_path, "docker")
    devices = _devices(tmp_path, 0, 1, 3)
    docker = Docker(stand_in.binary, devices=devices)
    spec = _spec(tmp_path, gpus=(1, 3), limits=Limits(memory_gib=2, processes=100, tmp_gib=1, file_size_gib=1))
    setup = set_up_container(spec, [], os.geteuid(), (), first_uid=os.geteuid())
    try:
        argv = list(docker.command(spec, setup, "agent2-1-ab", "agent2-empty-root:x", 1234))
    finally:
        setup.close()
    mounts = [argv[place + 1] for place, word in enumerate(argv) if word == "--mount"]
    assert f"type=bind,src={tmp_path / 'workspace'},dst=/workspace" in mounts
    assert [m for m in mounts if not m.endswith(",readonly")] == [
        f"type=bind,src={tmp_path / 'workspace'},dst=/workspace"
    ]
    assert not any("secret" in m or "docker.sock" in m for m in mounts)
    first = argv.index("--mount")
    assert argv[1:first] == [
        *("run", "--name", "agent2-1-ab", "--pull", "never", "--interactive", "--log-driver", "none"),
        *("--network", "none", "--ipc", "private", "--hostname", "agent2", "--user", "1234:1234", "--read-only"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--oom-score-adj", "1000"),
        *(["--security-opt", "label=disable"] if Path("/sys/fs/selinux/enforce").exists() else []),
        *("--pids-limit", "104", "--memory", "2147483648", "--memory-swap", "2147483648"),
        *("--ulimit", "nofile=4096:4096", "--ulimit", "core=0:0", "--ulimit", "fsize=1073741824:1073741824"),
        *("--shm-size", "1073741824", "--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=1073741824,mode=1777"),
        *("--tmpfs", "/home/agent:rw,exec,nosuid,nodev,size=1073741824,mode=0777"),
        *("--device", f"{devices}/nvidia1:/dev/nvidia1", "--device", f"{devices}/nvidia3:/dev/nvidia3"),
        *("--device", f"{devices}/nvidiactl:/dev/nvidiactl", "--device", f"{devices}/nvidia-uvm:/dev/nvidia-uvm"),
    ]
    assert argv[-7:-5] == ["/", "agent2-empty-root:x"]
    assert argv[-2:] == ["/run/agent2/forward.py", "/run/agent2/link"]


def test_a_rootless_engine_is_told_its_own_root(tmp_path):
    stand_in = _stand_in(tmp_path, "docker", {**INFO, "SecurityOptions": ["name=seccomp", "name=rootless"]})
    docker = Docker(stand_in.binary)
    setup = set_up_container(_spec(tmp_path), [], os.geteuid(), (), first_uid=os.geteuid())
    try:
        argv = docker.command(_spec(tmp_path), setup, "n", "i", 1234)
    finally:
        setup.close()
    assert argv[argv.index("--user") + 1] == "0:0"
    assert "user namespace" in docker.containment(Limits())[0].how


def test_the_apptainer_command_is_exact(tmp_path):
    devices = _devices(tmp_path, 0, 2)
    runtime = Apptainer("apptainer", as_root=True, devices=devices)
    setup = set_up_container(_spec(tmp_path), [], os.geteuid(), (), first_uid=os.geteuid())
    try:
        argv = runtime.command(setup, [Mount(tmp_path / "t", "/tmp", writable=True)], [devices / "nvidia2"])
    finally:
        setup.close()
    assert argv[:20] == (
        *("apptainer", "exec", "--containall", "--cleanenv", "--no-eval", "--no-init", "--no-mount"),
        *("home,tmp,bind-paths", "--net", "--network", "none", "--hostname", "agent2", "--no-privs", "--pwd", "/"),
        *("--add-caps", "CAP_SETUID,CAP_SETGID,CAP_SETPCAP", "--mount"),
        f"type=bind,source={tmp_path / 't'},destination=/tmp",
    )
    assert "--bind" in argv and argv[argv.index("--bind") + 1] == f"{devices}/nvidia2:/dev/nvidia2"
    writable = [w for w in argv if w.startswith("type=bind") and not w.endswith(",ro")]
    assert [w.rpartition("=")[2] for w in writable] == ["/tmp", "/workspace"]


def test_the_empty_image_is_made_once(tmp_path):
    stand_in = _stand_in(tmp_path, "docker")
    for _ in range(2):
        _run(Docker(stand_in.binary), tmp_path, "true")
    verbs = [call[0] for call in stand_in.calls()]
    assert verbs.count("import") == 1 and verbs.count("run") == 2 and verbs.count("rm") == 2


@pytest.mark.skipif(not has_root_rights(), reason="only root can give a container a host user of its own")
def test_as_root_the_workspace_belongs_to_a_user_of_its_own(engine, tmp_path):
    engine.prepare_workspace(tmp_path / "workspace")
    assert (tmp_path / "workspace").stat().st_uid == uid_for(tmp_path / "workspace")
    _, log = _run(engine, tmp_path, "id", "-u")
    assert int(log) == uid_for(tmp_path / "workspace")


def test_missing_engines_say_what_to_install(tmp_path):
    with pytest.raises(SandboxError, match=r"Docker is not installed .*--set sandbox=bubblewrap"):
        Docker("/no/such/docker").require()
    with pytest.raises(SandboxError, match=r"Apptainer is not installed .*--set sandbox=bubblewrap"):
        Apptainer("/no/such/apptainer").require()


def test_an_engine_that_does_not_answer_says_how_to_start_it(tmp_path):
    binary = tmp_path / "docker"
    binary.write_text('#!/bin/sh\necho "Cannot connect to the Docker daemon" >&2\nexit 1\n')
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(SandboxError, match=r"Cannot connect .*systemctl start docker.*group docker"):
        Docker(str(binary)).require()


def test_an_engine_on_another_machine_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(SandboxError, match="cannot show this host's files"):
        Docker(_stand_in(tmp_path, "docker").binary).require()


def test_a_refusing_runtime_says_what_to_ask_for(tmp_path):
    binary = tmp_path / "apptainer"
    binary.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo apptainer version 1.3.4 && exit\n'
        'echo "FATAL: user namespaces are disabled" >&2\nexit 255\n'
    )
    binary.chmod(0o755)
    with pytest.raises(SandboxError, match=r"user namespaces are disabled.*user bind control"):
        Apptainer(str(binary)).require()


def test_a_container_that_does_not_start_is_an_error_with_its_words(tmp_path):
    stand_in = _stand_in(tmp_path, "docker")
    docker = Docker(stand_in.binary)
    docker.require()
    docker.prepare_workspace(tmp_path / "workspace")
    Path(stand_in.binary).write_text(
        '#!/bin/sh\necho "docker: no space left" >&2\n[ "$1" = image ] && exit 0\nexit 125\n'
    )
    with pytest.raises(SandboxError, match="did not start: docker: no space left"):
        docker.start(SandboxSpec(("true",), tmp_path / "workspace", tmp_path / "log"))


def test_a_command_that_cannot_be_made_leaves_nothing_behind(engine, tmp_path, monkeypatch):
    rooms = []

    def kept(*arguments, **named):
        rooms.append(set_up_container(*arguments, **named))
        return rooms[-1]

    def refuse(*_):
        raise SandboxError("no command")

    monkeypatch.setattr("agent2.sandbox.containers.set_up_container", kept)
    monkeypatch.setattr(type(engine), "command", refuse)
    with pytest.raises(SandboxError, match="no command"):
        engine.start(_spec(tmp_path))
    assert not rooms[0].folder.exists() and rooms[0].listener.fileno() == -1


def test_an_engine_that_falls_silent_keeps_nobody_waiting(tmp_path):
    container = Container(str(tmp_path / "gone"), "agent2-1", limits_memory=True)
    assert container.broke() is None
    container.remove()


def test_memory_that_the_engine_enforced_is_reported(tmp_path):
    stand_in = _stand_in(tmp_path, "docker")
    docker = Docker(stand_in.binary)
    docker.prepare_workspace(tmp_path / "workspace")
    command = ("sh", "-c", "while ! test -e end; do sleep 0.02; done; exit 137")
    process = docker.start(SandboxSpec(command, tmp_path / "workspace", tmp_path / "log"))
    _until(lambda: any("false" in path.read_text() for path in stand_in.state.glob("agent2-*")))
    (container,) = stand_in.state.glob("agent2-*")
    container.write_text(container.read_text().replace("false", "true"))
    (tmp_path / "workspace" / "end").touch()
    end = process.wait(120)
    assert end is not None and end.broke == "memory"


def test_containment_follows_what_the_engine_can_limit(tmp_path):
    docker = Docker(_stand_in(tmp_path, "docker", {**INFO, "MemoryLimit": False}).binary)
    rows = {row.aspect: row for row in docker.containment(Limits(), network=Network.OPEN, gpus=(0,))}
    assert rows["memory"].strength is Strength.SOFT
    assert rows["network"].strength is Strength.NONE
    assert rows["GPUs"].how.startswith("device files of 0 only")
    (tmp_path / "strong").mkdir()
    strong = Docker(_stand_in(tmp_path / "strong", "docker").binary).containment(Limits())
    assert {row.aspect: row.strength for row in strong}["memory"] is Strength.HARD


def _spec(folder: Path, **parts) -> SandboxSpec:
    (folder / "workspace").mkdir(exist_ok=True)
    return SandboxSpec(("true",), folder / "workspace", folder / "log", **parts)


def _devices(folder: Path, *numbers: int) -> Path:
    devices = folder / "dev"
    devices.mkdir()
    for name in (*(f"nvidia{number}" for number in numbers), "nvidiactl", "nvidia-uvm"):
        (devices / name).touch()
    return devices


def _sleepers() -> int:
    return sum(process.info["cmdline"] == ["sleep", SECONDS] for process in psutil.process_iter(["cmdline"]))


def _until(claim, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
