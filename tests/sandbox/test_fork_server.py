"""Programs that are forked from one server: each has the sandbox of a process of its own, and reaches nothing else."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agent2.sandbox import host
from agent2.sandbox.backends import Contained, EndedBy, Unsandboxed, run_contained
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import Limits, Mount
from process_looks import outlived

MODES = [pytest.param(True, id="own-user"), pytest.param(False, id="user-namespace")]
ENVIRONMENT = {"HOME": "/workspace", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
WAS_FORKED = "import sys; print('numpy' in sys.modules)"


@pytest.fixture(scope="module")
def server():
    server = ForkServer(("numpy", "numpy.random"), ENVIRONMENT)
    yield server
    server.close()


@pytest.fixture(params=MODES)
def sandbox(request, make_sandbox):
    return make_sandbox(request.param)


def request_for(folder: Path, program: str, *arguments: str, **parts) -> Contained:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    code.chmod(0o755)
    (code / "program.py").write_text(textwrap.dedent(program))
    command = ("python", "-P", "/code/program.py", *arguments)
    mounts = (Mount(code, "/code"), *parts.pop("mounts", ()))
    environment = {**ENVIRONMENT, **parts.pop("environment", {})}
    return Contained(command, folder / "scratch", folder / "log", mounts=mounts, environment=environment, **parts)


def run(folder: Path, sandbox, server: ForkServer | None, program: str, *arguments: str, **parts):
    return run_contained(request_for(folder, program, *arguments, **parts), sandbox, timeout_s=300, server=server)


def forks_of(server: ForkServer) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


VIEW = """
import json, os, resource, signal, sys, tempfile
def status(*names):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: lines[name].split() for name in names}
print(json.dumps({
    "argv": sys.argv,
    "main": __name__,
    "path": sys.path,
    "flags": str(sys.flags),
    "executable": [sys.executable, sys.prefix, sys.base_prefix],
    "environment": dict(os.environ),
    "directory": os.getcwd(),
    "temporary": tempfile.gettempdir(),
    "files": sorted(os.listdir("/")) + sorted(os.listdir("/workspace")) + sorted(os.listdir("/tmp")),
    "mounts": sorted(line.split()[4] for line in open("/proc/self/mountinfo")),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "own id": os.getpid(),
    "descriptors": [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)],
    "rights": status("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"},
    "signals": {s: str(signal.getsignal(s)) for s in range(1, 32)},
    "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "nice and mask": [os.nice(0), os.umask(0)],
    "network": sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else open("/proc/net/dev").read().count(":"),
    "input": sys.stdin.read(),
}))
print("to the log", file=sys.stderr)
sys.exit(7)
"""  # fmt: skip  # noqa: E501


def test_a_forked_program_sees_and_may_what_a_started_one_does(sandbox, server, tmp_path):
    views = []
    for chosen in (server, None):
        end = run(tmp_path, sandbox, chosen, VIEW, "a", "b c", stdin=b"the job", environment={"MORE": "1"})
        assert (end.ended_by, end.code) == (EndedBy.ITSELF, 7)
        assert (tmp_path / "log").read_text() == "to the log\n"
        views.append(json.loads(end.stdout))
    forked, started = views
    assert forked == started
    assert forked["input"] == "the job" and forked["descriptors"] == ["0", "1", "2"]
    assert run(tmp_path, sandbox, server, WAS_FORKED).stdout == b"True\n"
    assert run(tmp_path, sandbox, None, WAS_FORKED).stdout == b"False\n"


def test_it_is_in_no_namespace_of_the_host(sandbox, server, tmp_path):
    program = (
        "import os; print(' '.join(f'{n}={os.readlink(f\"/proc/self/ns/{n}\")}' for n in os.listdir('/proc/self/ns')))"
    )
    inside = dict(word.split("=") for word in run(tmp_path, sandbox, server, program).stdout.decode().split())
    own = {name for name in inside if inside[name] == os.readlink(f"/proc/self/ns/{name}")}
    shared = {"time", "time_for_children"}
    assert own == (shared | {"user"} if sandbox.drops_user else shared)


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('no such file')", 1),
        ("raise ValueError('broken')", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 11)", 139),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0),
        ("import atexit; atexit.register(print, 'late')", 0),
    ],
)
def test_it_ends_as_a_started_one_does(server, default_sandbox, tmp_path, program, code):
    ends = [run(tmp_path, default_sandbox, chosen, program) for chosen in (server, None)]
    assert [(end.code, end.stdout, end.broke) for end in ends] == [(code, ends[1].stdout, None)] * 2
    assert ("late" in program) == (ends[0].stdout == b"late\n")


@pytest.fixture
def default_sandbox(make_sandbox):
    return make_sandbox(host.has_root_rights())


def test_its_errors_are_told_in_the_log(server, default_sandbox, tmp_path):
    run(tmp_path, default_sandbox, server, "raise ValueError('broken')")
    assert (tmp_path / "log").read_text().endswith("ValueError: broken\n")


def test_a_module_runs_as_the_main_one_though_the_server_imported_it(server, default_sandbox, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code").chmod(0o755)
    (tmp_path / "code" / "plugged.py").write_text("import sys; print(__name__, sys.argv[1:], sys.stdin.read())")
    request = Contained(
        ("python", "-P", "-m", "plugged", "x"),
        tmp_path / "scratch",
        tmp_path / "log",
        mounts=(Mount(tmp_path / "code", "/code"),),
        environment={**ENVIRONMENT, "PYTHONPATH": "/code"},
        stdin=b"job",
    )
    end = run_contained(request, default_sandbox, timeout_s=300, server=server)
    assert end.stdout == b"__main__ ['x'] job\n"


def test_random_numbers_are_fresh_in_every_fork(server, default_sandbox, tmp_path):
    program = "import numpy, random, uuid; print(numpy.random.random(), random.random(), uuid.uuid4())"
    first, second = (run(tmp_path, default_sandbox, server, program).stdout.split() for _ in range(2))
    assert len(first) == 3 and not set(first) & set(second)


def test_what_one_leaves_in_memory_folders_and_modules_is_not_there_for_the_next(sandbox, server, tmp_path):
    program = """
    import numpy, os, sys
    places = ("/tmp/left", "/dev/shm/left", "/home/agent/left")
    print([place for place in places if os.path.exists(place)], hasattr(numpy, "left"), "LEFT" in os.environ)
    numpy.left, os.environ["LEFT"] = True, "1"
    for place in places:
        open(place, "w").close()
    """
    for _ in range(2):
        assert run(tmp_path, sandbox, server, program).stdout == b"[] False False\n"


def test_no_process_outlives_the_program_that_started_it(sandbox, server, tmp_path):
    program = """
    import os, time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    """
    run(tmp_path, sandbox, server, program)
    assert not outlived(forks_of(server))


def test_it_sees_no_process_but_those_of_its_sandbox(sandbox, server, tmp_path):
    program = """
    import ctypes, os
    print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()), os.getppid())
    for target in (os.getppid(), -1):
        try:
            os.kill(target, 0) if target else os.kill(0, 0)
        except OSError as error:
            print(error.strerror)
    print(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))
    """
    lines = run(tmp_path, sandbox, server, program).stdout.decode().splitlines()
    # bubblewrap's own first process stays only where it has another user than the program
    assert lines[0] == ("[1, 2, 3] 0" if sandbox.drops_user else "[1, 2] 0") and lines[-1] == "-1"


def test_the_file_that_it_runs_cannot_be_written_through_its_process(sandbox, server, tmp_path):
    """The interpreter of the host is bound read-only; the kernel's link to it does not lead through that mount."""
    program = """
    import os
    print(os.readlink("/proc/self/exe"))
    for flags in (os.O_WRONLY, os.O_RDWR):
        try:
            file = os.open("/proc/self/exe", flags)
            print(os.write(file, b"changed"))
        except OSError:
            print("refused")
    """
    before = host.interpreter().stat()
    end = run(tmp_path, sandbox, server, program)
    assert end.stdout.decode().splitlines() == ["/memfd:python (deleted)", "refused", "refused"]
    after = host.interpreter().stat()
    assert (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
        after.st_mtime_ns, after.st_ctime_ns, after.st_size,
    )  # fmt: skip


def test_the_libraries_that_it_shares_with_the_server_cannot_be_written_through_its_mappings(sandbox, server, tmp_path):
    """They were opened where the server is; the kernel's links to them do not lead through the sandbox's mounts."""
    program = """
    import os
    files = os.listdir("/proc/self/map_files")
    opened = []
    for name in files:
        try:
            os.close(os.open(f"/proc/self/map_files/{name}", os.O_RDWR))
            opened.append(os.readlink(f"/proc/self/map_files/{name}"))
        except OSError:
            pass
    print(len(files) > 10, opened)
    """
    assert run(tmp_path, sandbox, server, program).stdout == b"True []\n"


@pytest.mark.parametrize(
    ("program", "limits", "broke"),
    [
        ("import time\nb = []\nfor _ in range(60): b.append(bytearray(20_000_000))\ntime.sleep(200)",
         Limits(memory_gib=0.3), "memory"),
        ("import os, time\nfor _ in range(4):\n if os.fork() == 0: b = bytearray(150_000_000); time.sleep(200)\n"
         "time.sleep(200)", Limits(memory_gib=0.3), "memory"),
        ("import os, time\ntry:\n while True:\n  if os.fork() == 0: time.sleep(200)\nexcept OSError: time.sleep(1)",
         Limits(processes=20), "processes"),
        ("open('big', 'wb').truncate(2**30)", Limits(file_size_gib=0.01), "file size"),
        ("import time\nfor n in range(40): open(str(n), 'wb').write(bytes(2**22))\ntime.sleep(200)",
         Limits(disk_gib=0.05), "disk"),
    ],
)  # fmt: skip
def test_its_limits_hold(sandbox, server, tmp_path, program, limits, broke):
    if broke == "file size":
        program = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n" + program
    end = run(tmp_path, sandbox, server, program, limits=limits)
    assert end.broke == broke, end.reason
    assert not outlived(forks_of(server))
    assert run(tmp_path, sandbox, server, WAS_FORKED).stdout == b"True\n"


def test_its_time_and_a_stop_end_it(sandbox, server, tmp_path, monkeypatch):
    program = (
        "import os, time\nos.fork()\nprint('up', flush=True)\nopen(f'up-{os.getpid()}', 'w').close()\ntime.sleep(600)"
    )
    request = request_for(tmp_path, program)
    assert server.has_settled(300)

    def clock() -> float:
        """Its time is over as soon as both processes have said something, however long they take."""
        return 1_000.0 * (len(list((tmp_path / "scratch").glob("up-*"))) == 2)

    with monkeypatch.context() as patch:
        patch.setattr("agent2.sandbox.backends.time", SimpleNamespace(monotonic=clock))
        end = run_contained(request, sandbox, timeout_s=300, server=server)
    assert end.ended_by is EndedBy.TIMEOUT and end.stdout == b"up\nup\n"
    assert not outlived(forks_of(server))
    stop = threading.Event()
    threading.Timer(0.7, stop.set).start()
    assert run_contained(request, sandbox, timeout_s=300, stop=stop, server=server).ended_by is EndedBy.STOP
    assert not outlived(forks_of(server))


def test_programs_at_the_same_time_do_not_meet(sandbox, server, tmp_path):
    program = """
    import os, sys, time
    open("/tmp/" + sys.argv[1], "w").close()
    time.sleep(1)
    seen = [name for name in os.listdir("/tmp") if name in ("first", "second", "third")]  # agent2 may be below /tmp
    print(seen, sum(name.isdigit() for name in os.listdir("/proc")))
    """
    answers = {}

    def play(name: str) -> None:
        (tmp_path / name).mkdir()
        answers[name] = run(tmp_path / name, sandbox, server, program, name).stdout.decode()

    threads = [threading.Thread(target=play, args=(name,)) for name in ("first", "second", "third")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    n_processes = 3 if sandbox.drops_user else 2
    assert answers == {name: f"['{name}'] {n_processes}\n" for name in ("first", "second", "third")}


def until(claim, timeout_s: float = 120.0) -> None:
    ends_at = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < ends_at, "waited in vain"
        time.sleep(0.02)


def test_a_killed_server_takes_its_forks_with_it_and_the_next_program_gets_another(make_sandbox, tmp_path):
    server = ForkServer(("numpy",), ENVIRONMENT)
    sandbox = make_sandbox(host.has_root_rights())
    ends = []
    request = request_for(tmp_path, "import time\nopen('up', 'w').close()\ntime.sleep(600)")

    def play() -> None:
        ends.append(run_contained(request, sandbox, timeout_s=300, server=server))

    player = threading.Thread(target=play)
    player.start()
    until((tmp_path / "scratch" / "up").exists)
    first, forks = server.pid, forks_of(server)
    assert len(forks) == 2  # one waits, one runs the program
    os.kill(first, signal.SIGKILL)
    player.join()
    assert ends[0].code == 137 and not outlived(forks)
    assert run(tmp_path, sandbox, server, WAS_FORKED).stdout == b"True\n"
    assert server.pid != first
    last = psutil.Process(server.pid)
    server.close()
    assert not outlived([last])


def test_a_server_that_dies_again_and_again_is_given_up(make_sandbox, tmp_path):
    server = ForkServer(("numpy",), ENVIRONMENT)
    for _ in range(3):
        assert server.has_settled(300)
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: server.pid is None)
    assert run(tmp_path, make_sandbox(host.has_root_rights()), server, WAS_FORKED).stdout == b"False\n"
    server.close()


@pytest.mark.parametrize("moment", ["importing", "waiting", "playing"])
def test_server_and_forks_die_with_the_harness(make_sandbox, tmp_path, moment):
    make_sandbox(False)
    request_for(tmp_path, "import time\nopen('up', 'w').close()\ntime.sleep(600)")
    program = f"""
import sys, time
from pathlib import Path
from agent2.sandbox.backends import Bubblewrap, Contained, run_contained
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.spec import Mount
folder = Path({str(tmp_path)!r})
server = ForkServer(("numpy", "torch"), {ENVIRONMENT!r})
server.start()
print(server.pid, flush=True)
if {moment == "importing"}:
    time.sleep(300)
server.has_settled(300)
if {moment == "waiting"}:
    print("waiting", flush=True)
    time.sleep(300)
request = Contained(("python", "-P", "/code/program.py"), folder / "scratch", folder / "log",
                    mounts=(Mount(folder / "code", "/code"),), environment={ENVIRONMENT!r})
run_contained(request, Bubblewrap(), timeout_s=300, server=server)
"""
    harness = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    processes = [psutil.Process(int(harness.stdout.readline()))]
    if moment == "waiting":
        assert harness.stdout.readline() == "waiting\n"
    if moment == "playing":
        until((tmp_path / "scratch" / "up").exists)
        processes = psutil.Process(harness.pid).children(recursive=True)
        assert len(processes) >= 6  # the sandbox's three, the server, its fork that waits and the one that plays
    harness.kill()
    harness.wait()
    assert not outlived(processes)


BROKEN_MODULES = {
    "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()": "1 threads",
    "import mmap\nshared = mmap.mmap(-1, 4096)": "a shared mapping",
    "import os\nfile = os.open('/usr', os.O_RDONLY)": "opened /usr",
    "import os\nos._exit(3)": "it ended before it was ready",
}


@pytest.mark.parametrize(("code", "reason"), BROKEN_MODULES.items())
def test_imports_that_a_fork_would_break_or_share_leave_each_program_its_own(
    make_sandbox, tmp_path, caplog, code, reason
):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "broken_module.py").write_text(code)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path / "modules")}
    server = ForkServer(("numpy", "broken_module"), environment)
    end = run(tmp_path, make_sandbox(host.has_root_rights()), server, WAS_FORKED, environment=environment)
    assert end.stdout == b"False\n" and reason in caplog.text
    server.close()


def test_a_module_that_cannot_be_imported_is_left_to_the_programs(make_sandbox, tmp_path):
    server = ForkServer(("no_such_module", "numpy"), ENVIRONMENT)
    assert run(tmp_path, make_sandbox(host.has_root_rights()), server, WAS_FORKED).stdout == b"True\n"
    server.close()


def test_what_cannot_be_forked_is_started(server, default_sandbox, tmp_path):
    other = {"environment": {"OMP_NUM_THREADS": "2"}}
    assert run(tmp_path, default_sandbox, server, WAS_FORKED, **other).stdout == b"False\n"
    assert run(tmp_path, Unsandboxed(), server, "import sys; print('numpy' in sys.modules)").stdout == b"False\n"
    request = Contained(("python", "-c", WAS_FORKED), tmp_path / "scratch", tmp_path / "log", environment=ENVIRONMENT)
    assert run_contained(request, default_sandbox, timeout_s=300, server=server).stdout == b"False\n"


def test_a_fork_that_cannot_join_is_started_instead(server, tmp_path, make_sandbox, monkeypatch, caplog):
    server = ForkServer(("numpy",), ENVIRONMENT)
    monkeypatch.setattr("agent2.sandbox.fork_server.os.pidfd_open", lambda pid: os.open("/", os.O_RDONLY))
    abort, had_ended = SandboxProcess._abort, []

    def record_end(process: SandboxProcess) -> None:
        abort(process)
        had_ended.append(process.wait(0) is not None)

    monkeypatch.setattr(SandboxProcess, "_abort", record_end)
    sandbox = make_sandbox(host.has_root_rights())
    assert run(tmp_path, sandbox, server, WAS_FORKED).stdout == b"False\n"
    assert "setns was refused" in caplog.text
    assert had_ended == [True]  # not given up after REAP_TIMEOUT_S
    monkeypatch.undo()
    assert run(tmp_path, sandbox, server, WAS_FORKED).stdout == b"False\n"  # it was given up
    server.close()


def test_the_server_writes_nothing_where_programs_have_their_home(server):
    assert server.has_settled(300)
    assert not Path("/workspace").exists()
