"""Programs that take all they can get: each is stopped, and the end says at what."""

import os
import platform
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from agent2.sandbox.host import has_root_rights
from agent2.sandbox.limits import enforced_by
from agent2.sandbox.spec import GIB, Limits
from agent2.sandbox.watchdog import Watchdog, descendants

CAP_SYS_RESOURCE = 24

BOMB = """
import mmap, os
for _ in range(4):
    if os.fork() == 0:
        held = []
        while True:
            held.append({take})
os.wait()
"""
WAYS = {
    "its own memory": "bytearray(os.urandom(1)) * 4_000_000",
    "shared mappings": "(lambda m: (m.write(b'x' * len(m)), m))(mmap.mmap(-1, 4_000_000))",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_four_processes_that_take_memory_as_fast_as_they_can_are_stopped(default_runner, way):
    program = BOMB.format(take=WAYS[way]) + f"# {default_runner.workspace}"  # what no other test runs
    started = time.monotonic()
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.5))
    assert (outcome.end.broke, outcome.end.code) == ("memory", 137), outcome
    assert time.monotonic() - started < 200
    alive = [process.pid for process in psutil.process_iter(["cmdline"]) if program in (process.info["cmdline"] or [])]
    assert alive == [], "what holds memory after the end"


IS_SOFT = "memory" not in enforced_by(has_root_rights())


@pytest.mark.skipif(not IS_SOFT, reason="a control group counts memory files on this host")
def test_memory_files_are_refused_where_nobody_could_say_whose_they_are(default_runner):
    outcome = default_runner.python("import os; os.memfd_create('x')")
    assert "Function not implemented" in outcome.log


def test_shared_memory_is_not_counted_once_for_each_process(default_runner):
    program = """
import mmap, os, time
held = mmap.mmap(-1, 150_000_000)
held.write(b"x" * len(held))
if os.fork() == 0:
    held[:100_000_000]
    time.sleep(3)
    os._exit(0)
held[:100_000_000]
time.sleep(1.5)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.4))
    assert (outcome.end.broke, outcome.log) == (None, "survived\n")


FULL_SOCKETS = """
import resource, socket, time
kept = []
for _ in range(1800):
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)  # as much as the host allows
        end.setblocking(False)
        try:
            while True:
                end.send(bytes(60_000))
        except BlockingIOError:
            pass
    kept.append(pair)
    time.sleep(0.002)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 200 << 10:
        raise SystemExit("the memory is the program's own")
time.sleep(200)  # on a busy machine the watch looks seldom
print("survived")
"""


@pytest.mark.slow
@pytest.mark.skipif(not IS_SOFT, reason="a control group counts the buffers of sockets on this host")
def test_what_sockets_hold_is_memory(default_runner):
    outcome = default_runner.python(FULL_SOCKETS, limits=Limits(memory_gib=0.25))
    assert outcome.end.broke == "memory", outcome
    assert "survived" not in outcome.log


def test_many_sockets_that_hold_little_are_no_breach(default_runner, monkeypatch):
    # On a busy machine the kernel's memory grows by what other programs do.
    monkeypatch.setattr("agent2.sandbox.watchdog._kernel_memory", lambda: 10**9)
    program = """
import socket, time
kept = [socket.socketpair() for _ in range(400)]
for one, other in kept:
    one.send(b"hello")
time.sleep(1.5)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.25))
    assert (outcome.end.broke, outcome.log) == (None, "survived\n")


UNSEEN = {
    "open": "kept.append(file)",
    "mapped": "kept.append(mmap.mmap(file, 20_000_000, mmap.MAP_SHARED)); os.close(file)",
    "sent": "socket.send_fds(here, [b'x'], [file]); os.close(file)",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", UNSEEN)
def test_deleted_files_that_are_held_count_as_disk(default_runner, way):
    program = f"""
import mmap, os, socket, time
kept, (here, there) = [], socket.socketpair()
block = os.urandom(1_000_000)
for number in range(30):
    file = os.open("gone", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.unlink("gone")
    for _ in range(20):
        os.write(file, block)
    os.fsync(file)
    {UNSEEN[way]}
time.sleep(200)  # on a busy machine the watch looks seldom
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(disk_gib=0.1))
    assert outcome.end.broke == "disk", outcome
    assert "survived" not in outcome.log


def test_temporary_files_and_descriptors_on_their_way_are_no_breach(default_runner):
    """What is there and all that was written pass the limit together; what was written beyond it never does, however
    much disk others take meanwhile."""
    program = """
import os, socket, tempfile, time
here, there = socket.socketpair()
with tempfile.TemporaryFile(dir=".") as file:
    file.write(bytes(1_000_000))
    socket.send_fds(here, [b"x"], [file.fileno()])
    for number in range(11):  # checkpoints, each in place of the one before
        with open("checkpoint", "wb") as checkpoint:
            checkpoint.write(os.urandom(9_000_000))
        time.sleep(0.1)
time.sleep(1)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(disk_gib=0.1))
    assert (outcome.end.broke, outcome.log) == (None, "survived\n")


REFUSED = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
for number in (250, 248, 249, 29, 68, 64, 425, 323, 321, 298, 165, 430, 428, 103, 278, 447, 304):
    if libc.syscall(number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
        print("passed:", number, os.strerror(ctypes.get_errno()))
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    if libc.unshare(flag) == 0:
        print("unshared", hex(flag))
for family in range(64):
    try:
        socket.socket(family, socket.SOCK_STREAM if family < 16 else socket.SOCK_RAW, 0).close()
        print(family)
    except OSError:
        pass
print([line for line in open("/proc/self/status") if line.startswith("Seccomp:")])
try:
    print("keys:", open("/proc/keys").read())
except OSError:
    pass
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64")
def test_the_kernels_interfaces_outside_namespaces_are_closed(runner):
    log = runner.python(REFUSED).log
    assert log == "1\n2\n10\n16\n['Seccomp:\\t2\\n']\n"


def test_a_disk_filler_on_many_fronts_is_stopped_early(default_runner):
    # With pauses, so that the speed of the disk alone does not take it past the bound before anybody can have looked.
    program = """
import itertools, os, time
for _ in range(3):
    os.fork()
block = os.urandom(1_000_000)
for i in itertools.count():
    os.makedirs(f"d{os.getpid()}", exist_ok=True)
    with open(f"d{os.getpid()}/{i}", "wb") as file:
        file.write(block)
    time.sleep(0.05)
"""
    outcome = default_runner.python(program, limits=Limits(disk_gib=0.1))
    assert (outcome.end.broke, outcome.end.code) == ("disk", 137)
    used = sum(entry.stat().st_size for entry in default_runner.workspace.rglob("*") if entry.is_file())
    assert used < 2 * GIB
    print(f"overshoot: {used / GIB:.2f} GiB of 0.1 GiB")


def test_descriptors_run_out_for_the_program_alone(default_runner):
    program = """
import os
import platform
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(len(held) < 200, error.strerror)
"""
    outcome = default_runner.python(program, limits=Limits(open_files=200))
    assert outcome.log == "True Too many open files\n"


def test_the_kernel_would_take_the_program_first(runner):
    program = """
print(open("/proc/self/oom_score_adj").read().strip())
try:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
except PermissionError:
    print("stays")
"""
    log = runner.python(program).log
    assert log.splitlines()[0] == "1000"
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if int(status["CapEff"], 16) >> CAP_SYS_RESOURCE & 1:
        assert log.splitlines()[1:] == ["stays"]


def test_the_watch_walks_at_once_when_the_disk_loses_what_is_left(tmp_path, monkeypatch):
    free = [50 * GIB]
    monkeypatch.setattr("agent2.sandbox.watchdog._free_bytes", lambda folder: free[0])  # other programs free space, too
    watchdog = Watchdog(Limits(disk_gib=0.01), (tmp_path,), memory_is_hard=True)
    with subprocess.Popen(["sleep", "600"]) as idle:  # a process that holds no deleted files, as this one may
        try:
            watched = psutil.Process(idle.pid)
            assert watchdog.look(watched, 0.0) is None
            (tmp_path / "big").write_bytes(os.urandom(30_000_000))
            os.sync()
            assert watchdog.look(watched, 0.05) is None, "long before the next walk is due"
            free[0] -= 30_000_000
            breach = watchdog.look(watched, 0.05)
        finally:
            idle.kill()
    assert breach is not None and breach.limit == "disk"


def test_descendants_are_found_through_generations():
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60 & echo up; wait' & wait"], stdout=subprocess.PIPE) as top:
        assert top.stdout is not None and top.stdout.readline() == b"up\n"
        deadline = time.monotonic() + 120
        while "sleep" not in (names := {psutil.Process(pid).name() for pid in descendants(top.pid)}):
            assert time.monotonic() < deadline, names
        for pid in [*descendants(top.pid), top.pid]:
            psutil.Process(pid).kill()
    assert names == {"sh", "sleep"}
