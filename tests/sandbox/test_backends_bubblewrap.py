"""What a program in the default sandbox can reach, and what not."""

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.spec import BASE_ENVIRONMENT, Limits, Mount, SandboxSpec, Strength
from socket_paths import short_path


def test_the_workspace_is_writable_and_its_files_reach_the_host(runner):
    (runner.workspace / "given.txt").write_text("from the host")
    runner.sandbox.prepare_workspace(runner.workspace)
    outcome = runner.run("sh", "-c", "cat given.txt && umask 077 && echo made > made.txt && echo changed > given.txt")
    assert (outcome.end.code, outcome.log) == (0, "from the host")
    assert (runner.workspace / "made.txt").read_text() == "made\n"
    assert (runner.workspace / "given.txt").read_text() == "changed\n"


def test_everything_outside_the_workspace_is_read_only_or_in_memory(runner):
    program = """
import os
for place in ["/", "/usr", "/etc", "/etc/passwd", "/dev", "/run/agent2", "/run/agent2/forward.py", "/sys"]:
    target = place if os.path.isfile(place) else os.path.join(place, "new")
    try:
        open(target, "ab").close()
    except OSError:
        continue
    print("written:", target)
for place in ["/tmp", "/home/agent", "/dev/shm"]:
    open(place + "/new", "w").close()
"""
    outcome = runner.python(program)
    assert (outcome.end.code, outcome.log) == (0, "")


def test_host_files_are_out_of_reach(runner, tmp_path):
    hidden = [tmp_path / "secret", tmp_path / "trials" / "other" / "grader.db"]
    for path in hidden:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hidden items")
    (runner.workspace / "way-out").symlink_to(tmp_path / "secret")
    tried = [
        *map(str, hidden),
        "/workspace/way-out",
        "/workspace/../secret",
        str(runner.log),
        "/proc/1/root/etc/shadow",
    ]
    tried += [str(Path.home() / ".bashrc"), str(Path.home() / ".ssh"), "/etc/shadow", "/var/log", "/etc/machine-id"]
    program = f"""
import os
for path in {tried!r}:
    if os.path.exists(path):
        print("reached", path)
"""
    outcome = runner.python(program)
    assert (outcome.end.code, outcome.log) == (0, "")


def test_the_root_folder_holds_nothing_but_the_named_binds(runner):
    names = set(runner.run("ls", "/").log.split())
    tops = {Path(p).parts[1] for p in (sys.prefix, sys.base_prefix, __file__, os.path.realpath(sys.executable))}
    allowed = {
        "bin",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "proc",
        "run",
        "sbin",
        "sys",
        "tmp",
        "usr",
    }
    assert names <= allowed | tops | {"workspace"}


def test_a_checkout_shows_its_package_but_not_the_repository(runner):
    import agent2

    package = Path(agent2.__file__).resolve().parent
    beside = [name for name in os.listdir(package.parents[1]) if name not in {"src", Path(sys.prefix).name}]
    outcome = runner.python(f"import os, agent2; print(set(os.listdir({str(package.parents[1])!r})) & set({beside!r}))")
    assert outcome.log == "set()\n"


def test_host_processes_are_invisible(runner):
    outcome = runner.python(
        "import os; names = [n for n in os.listdir('/proc') if n.isdigit()]\n"
        "print(max(map(int, names)) < 20, any('py' 'test' in open(f'/proc/{n}/cmdline').read() for n in names))"
    )
    assert outcome.log == "True False\n"


def test_the_first_process_tells_neither_host_paths_nor_the_hosts_environment(runner, monkeypatch):
    monkeypatch.setenv("PROVIDER_KEY", "sk-private")
    program = """
import glob
print(open("/proc/1/cmdline").read().replace("\\0", " "))
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        print(open(path).read())
    except PermissionError:
        pass
"""
    outcome = runner.python(program)
    first = outcome.log.splitlines()[0]
    # bubblewrap itself only where it has another user than the program
    assert first.startswith("bwrap --args " if runner.sandbox.drops_user else "/run/agent2/python -I -S ")
    assert str(runner.workspace) not in first and sys.prefix not in first
    assert "sk-private" not in outcome.log and "PROVIDER_KEY" not in outcome.log


def test_no_process_of_the_sandbox_can_be_read_or_taken_over_by_the_program(runner):
    program = """
import ctypes, glob, os
libc = ctypes.CDLL(None)
others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
for other in others:
    if libc.ptrace(16, other, 0, 0) == 0:
        print("traced", other)
    for path in [f"/proc/{other}/mem", *(f"/proc/{other}/fd/{number}" for number in range(3))]:
        try:
            os.close(os.open(path, os.O_RDONLY))
            print("opened", path)
        except OSError:
            pass
print(len(others) >= 1)
"""
    assert runner.python(program, stdin=b"of the harness").log == "True\n"


def test_orphans_are_collected(runner):
    program = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.fork() or os._exit(0)
        os._exit(0)
    os.wait()
for _ in range(1200):  # soon, however busy the machine is
    states = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                states.append(open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[0])
            except OSError:  # collected just now
                pass
    if "Z" not in states:
        break
    time.sleep(0.1)
print(states.count("Z"))
"""
    assert runner.python(program).log == "0\n"


def test_the_environment_is_the_allow_list(runner, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-private")
    outcome = runner.run("env", environment={"TASK": "arithmetic", "LANG": "C"})
    variables = dict(line.split("=", 1) for line in outcome.log.splitlines())
    assert set(variables) == set(BASE_ENVIRONMENT) | {"PATH", "PWD", "TASK"}
    assert (variables["TASK"], variables["LANG"], variables["PWD"]) == ("arithmetic", "C", "/workspace")


def test_neither_rights_nor_ways_to_get_them_are_left(runner):
    program = """
import ctypes, os
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs")):
        print(line.split()[1].lstrip("0") or "0", end=" ")
print(os.getuid() == 0, os.getgroups() == [os.getgid()] or os.getgroups() == [])
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), ctypes.get_errno(), libc.syscall(435, 0, 0), ctypes.get_errno())
"""
    outcome = runner.python(program)
    assert outcome.log.splitlines()[0] in {"0 0 0 0 0 1 False True", "0 0 0 0 0 1 False False"}
    assert outcome.log.splitlines()[1] == "-1 1 -1 38"


def test_the_network_is_out_of_reach(runner):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"""
import socket
for address in [("127.0.0.1", {port}), ("192.0.2.1", 80), ("8.8.8.8", 53)]:
    try:
        socket.create_connection(address, 3)
        print("connected to", address)
    except OSError as error:
        pass
try:
    print(socket.getaddrinfo("example.com", 80))
except socket.gaierror:
    print("no names")
print([name for _, name in socket.if_nameindex()])
"""
        assert runner.python(program).log == "no names\n['lo']\n"


def test_abstract_sockets_of_the_host_are_out_of_reach(runner):
    name = f"\0agent2-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        outcome = runner.python(f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})")
    assert "ConnectionRefusedError" in outcome.log


def test_only_the_listed_port_answers(runner, tmp_path):
    path = tmp_path / "s" / "grader.sock"
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(short_path(path))
        server.listen()
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        program = """
import socket
for i in range(3):
    with socket.create_connection(("127.0.0.1", 8123), 100) as link:
        link.sendall(b"x" * 300000)
        link.shutdown(socket.SHUT_WR)
        got = b""
        while data := link.recv(65536):
            got += data
        print(len(got), set(got) == {ord("X")})
open_ports = []
for port in [80, 443, 1024, 8122, 8124]:
    with socket.socket() as link:
        if link.connect_ex(("127.0.0.1", port)) == 0:
            open_ports.append(port)
print(open_ports)
"""
        outcome = runner.python(program, ports={8123: path})
    assert outcome.log == "300000 True\n" * 3 + "[]\n"


def _echo(server: socket.socket) -> None:
    while True:
        try:
            link, _ = server.accept()
        except OSError:
            return  # the test is over
        with link:
            got = b""
            while data := link.recv(65536):
                got += data
            link.sendall(got.upper())


def test_a_mount_shows_its_folder_read_only_unless_writable_is_asked_for(runner, tmp_path):
    shared, scratch = tmp_path / "base", tmp_path / "scratch"
    shared.mkdir(mode=0o755)
    (shared / "config.json").write_text("{}")
    scratch.mkdir()
    scratch.chmod(0o777)
    mounts = (Mount(shared, "/models/base"), Mount(scratch, "/scratch", writable=True))
    outcome = runner.run("sh", "-c", "cat /models/base/*; touch /models/base/x; touch /scratch/x", mounts=mounts)
    assert outcome.log.startswith("{}") and "Read-only file system" in outcome.log
    assert (outcome.end.code, os.listdir(shared), os.listdir(scratch)) == (0, ["config.json"], ["x"])


def test_a_mount_that_would_show_a_hidden_file_is_refused(runner, tmp_path):
    (tmp_path / "secret").write_text("x")
    with pytest.raises(SandboxError, match=r"would show .*secret"):
        runner.start("true", mounts=(Mount(tmp_path, "/models/base"),), hidden=(tmp_path / "secret",))


def test_a_hidden_file_below_the_toolkit_is_refused(runner):
    with pytest.raises(SandboxError, match="would show"):
        runner.start("true", hidden=(Path(sys.prefix) / "secret",))


def test_as_root_a_mount_that_the_program_could_not_read_is_refused(make_sandbox, tmp_path):
    sandbox = make_sandbox(True)
    workspace, private = tmp_path / "workspace", tmp_path / "private"
    sandbox.prepare_workspace(workspace)
    private.mkdir(mode=0o700)
    spec = SandboxSpec(("true",), workspace, tmp_path / "log", mounts=(Mount(private, "/models/base"),))
    with pytest.raises(SandboxError, match=r"mode 0700 .* chmod -R o\+rX"):
        sandbox.start(spec)


def test_as_root_the_workspace_belongs_to_a_user_of_its_own(make_sandbox, tmp_path):
    sandbox = make_sandbox(True)
    owners = []
    for name in ("a", "b"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "link").symlink_to("/etc/passwd")
        sandbox.prepare_workspace(tmp_path / name)
        owners.append((tmp_path / name / "deep" / "link").lstat().st_uid)
    assert owners[0] != owners[1] and min(owners) > 60_000
    assert os.stat("/etc/passwd").st_uid == 0


def test_without_the_toolkit_python_packages_stay_out(runner):
    outcome = runner.run("sh", "-c", "echo $PATH; ls /workspace", python=False)
    assert outcome.log == "/usr/local/bin:/usr/bin:/bin\n"
    assert sys.prefix not in outcome.log


@pytest.mark.slow
def test_the_toolkit_trains_inside(default_runner):
    program = "import torch, agent2, transformers; torch.save(torch.ones(2) * 2, 'out.pt'); print(agent2.__name__)"
    outcome = default_runner.python(program)
    assert outcome.log.endswith("agent2\n"), outcome.log
    assert (default_runner.workspace / "out.pt").stat().st_size > 0


def test_nothing_stays_mounted_on_the_host(runner, tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    everybodys = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def mounts() -> list[str]:
        """Without the disks that other tests mount in their folders meanwhile."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [Path(line.split()[4]) for line in lines]
        are_ours = [not p.is_relative_to(everybodys) or p.is_relative_to(runner.workspace.parent) for p in points]
        return [line for line, is_own in zip(lines, are_ours, strict=True) if is_own]

    before = mounts()
    runner.run("true")
    assert mounts() == before


def test_containment_names_nine_things_and_is_honest_about_what_is_soft():
    rows = {row.aspect: row for row in Bubblewrap().containment(Limits(disk_gib=3))}
    assert len(rows) == 9
    assert rows["network"].strength is Strength.HARD
    assert rows["disk"].strength is Strength.SOFT and "3 GiB" in rows["disk"].how
    assert rows["memory"].strength is (Strength.HARD if "control group" in rows["memory"].how else Strength.SOFT)


def test_set_user_id_programs_give_no_rights(runner):
    options = runner.run("grep", " /usr ", "/proc/mounts").log.split()[3].split(",")
    assert {"ro", "nosuid", "nodev"} <= set(options)
