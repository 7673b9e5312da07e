"""One program to its end, in the real sandbox and without one."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import Bubblewrap, Contained, EndedBy, Unsandboxed, inside, run_contained
from agent2.sandbox.spec import Limits, Mount

MODES = [pytest.param(True, id="own-user"), pytest.param(False, id="user-namespace")]


@pytest.fixture(params=["own-user", "user-namespace", "none"])
def sandbox(request, make_sandbox):
    return Unsandboxed() if request.param == "none" else make_sandbox(request.param == "own-user")


def _contained(folder: Path, program: str, *arguments: str, **parts) -> Contained:
    return Contained(("python", "-c", program, *arguments), folder / "scratch", folder / "log", **parts)


def test_input_goes_in_and_the_answer_comes_out_apart_from_the_log(sandbox, tmp_path):
    program = "import sys; data = sys.stdin.buffer.read(); print(len(data), file=sys.stderr); print(data[:3])"
    end = run_contained(_contained(tmp_path, program, stdin=b"abc" * 500_000), sandbox, timeout_s=300)
    assert (end.ended_by, end.code, end.stdout, end.dropped) == (EndedBy.ITSELF, 0, b"b'abc'\n", 0)
    assert (tmp_path / "log").read_text() == "1500000\n"


@pytest.mark.parametrize("as_root", MODES)
def test_scratch_and_writable_mounts_are_written_others_are_not(make_sandbox, tmp_path, as_root):
    for name in ("base", "card"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "given").write_text("given")
        (tmp_path / name / "given").chmod(0o666)  # so that nothing but the mount keeps the program from it
        (tmp_path / name).chmod(0o777)
    program = """
import sys
for folder in sys.argv[1:]:
    try:
        open(folder + "/given", "a").write("+")
        print("wrote", folder)
    except OSError as error:
        print(folder, error.strerror)
"""
    mounts = (Mount(tmp_path / "base", "/base"), Mount(tmp_path / "card", "/card", writable=True))
    request = _contained(tmp_path, program, "/base", "/card", "/workspace", mounts=mounts)
    end = run_contained(request, make_sandbox(as_root), timeout_s=300)
    assert end.stdout == b"/base Read-only file system\nwrote /card\nwrote /workspace\n"
    assert (tmp_path / "base" / "given").read_text() == "given"
    assert (tmp_path / "card" / "given").read_text() == "given+"


def test_paths_inside_are_told_for_every_back_end(sandbox, tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    (tmp_path / "base").chmod(0o755)
    request = _contained(tmp_path, "", mounts=(Mount(tmp_path / "base", "/base"),))
    path_inside = inside(request, sandbox, tmp_path / "base" / "config.json")
    look = _contained(tmp_path, "import sys; print(open(sys.argv[1]).read())", str(path_inside), mounts=request.mounts)
    assert run_contained(look, sandbox, timeout_s=300).stdout == b"{}\n"
    with pytest.raises(SandboxError, match="in no folder that the contained program sees"):
        inside(request, sandbox, tmp_path / "other")


def test_its_time_ends_it_and_all_that_it_started(sandbox, tmp_path, monkeypatch):
    program = f"echo $$; : {tmp_path}; sleep 600 & touch up; sleep 600"  # what no other test runs
    request = Contained(("sh", "-c", program), tmp_path / "scratch", tmp_path / "log")

    def clock() -> float:
        """Its time is over as soon as it has said something, however long its start takes."""
        return 1_000.0 * (tmp_path / "scratch" / "up").exists()

    monkeypatch.setattr("agent2.sandbox.backends.time", SimpleNamespace(monotonic=clock))
    end = run_contained(request, sandbox, timeout_s=300)
    assert end.ended_by is EndedBy.TIMEOUT and end.code in (137, 143)  # SIGKILL, or the SIGTERM just before it
    assert end.stdout.strip().isdigit()
    assert "its time was over" in end.reason
    assert not [p for p in psutil.process_iter(["cmdline"]) if program in (p.info["cmdline"] or [])]


def test_a_stop_ends_it_soon(sandbox, tmp_path):
    stop = threading.Event()
    threading.Timer(0.7, stop.set).start()
    started = time.monotonic()
    end = run_contained(_contained(tmp_path, "import time; time.sleep(600)"), sandbox, timeout_s=300, stop=stop)
    assert end.ended_by is EndedBy.STOP
    assert time.monotonic() - started < 200


def test_an_answer_that_is_too_long_is_cut_and_counted(sandbox, tmp_path):
    request = _contained(tmp_path, "print('x' * 2_999_999)", stdout_bytes=1000)
    end = run_contained(request, sandbox, timeout_s=300)
    assert (end.stdout, end.dropped) == (b"x" * 1000, 2_999_000)


def test_standard_input_cannot_be_used_to_hoard_memory(sandbox, tmp_path):
    program = """
import os
for call in (lambda: os.write(0, b"x"), lambda: os.ftruncate(0, 10**9)):
    try:
        call()
        print("changed")
    except OSError:
        print("refused")
"""
    end = run_contained(_contained(tmp_path, program, stdin=b"abc"), sandbox, timeout_s=300)
    assert end.stdout == b"refused\nrefused\n"


def test_a_crash_is_told_with_its_status(sandbox, tmp_path):
    end = run_contained(_contained(tmp_path, "import os; os.kill(os.getpid(), 11)"), sandbox, timeout_s=300)
    assert (end.ended_by, end.code, end.stdout) == (EndedBy.ITSELF, 139, b"")


@pytest.mark.parametrize("as_root", MODES)
def test_neither_network_nor_environment_nor_hidden_files_are_reached(make_sandbox, tmp_path, monkeypatch, as_root):
    monkeypatch.setenv("PROVIDER_KEY", "sk-private")
    (tmp_path / "secret").write_text("hidden items")
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"""
import os, socket
print("sk-private" in str(os.environ), os.path.exists({str(tmp_path / "secret")!r}))
with socket.socket() as link:
    print(link.connect_ex(("127.0.0.1", {server.getsockname()[1]})) == 0)
"""
        request = _contained(tmp_path, program, hidden=(tmp_path / "secret",))
        end = run_contained(request, make_sandbox(as_root), timeout_s=300)
    assert end.stdout == b"False False\nFalse\n"


def test_a_limit_that_it_meets_is_named(make_sandbox, tmp_path):
    program = "import time\nblocks = []\nfor _ in range(60): blocks.append(bytearray(20_000_000))\ntime.sleep(200)"
    request = _contained(tmp_path, program, limits=Limits(memory_gib=0.25))
    end = run_contained(request, Bubblewrap(), timeout_s=300)
    assert end.broke == "memory"


def test_it_dies_with_the_harness(tmp_path, make_sandbox):
    make_sandbox(False)
    seconds = f"617.{os.getpid()}"  # which no other run of this test sleeps
    program = f"""
from pathlib import Path
from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.backends import Contained, run_contained
folder = Path({str(tmp_path)!r})
run_contained(Contained(("sleep", {seconds!r}), folder / "scratch", folder / "log"), Bubblewrap(), timeout_s=300)
"""
    harness = subprocess.Popen([sys.executable, "-c", program], env=dict(os.environ))
    _until(lambda: _sleepers(seconds) == 1)
    harness.kill()
    harness.wait()
    _until(lambda: _sleepers(seconds) == 0)


def _sleepers(seconds: str) -> int:
    return sum(process.info["cmdline"] == ["sleep", seconds] for process in psutil.process_iter(["cmdline"]))


def _until(claim, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
