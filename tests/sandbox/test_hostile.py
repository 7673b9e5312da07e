"""Programs that take all they can get: each is stopped, and the end says at what."""

import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

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
    free = psutil.virtual_memory().available
    started = time.monotonic()
    outcome = default_runner.python(BOMB.format(take=WAYS[way]), limits=Limits(memory_gib=0.5))
    assert (outcome.end.broke, outcome.end.code) == ("memory", 137), outcome
    assert time.monotonic() - started < 200
    assert psutil.virtual_memory().available > free - 2 * GIB


def test_memory_files_that_nobody_maps_are_counted(default_runner):
    program = """
import os, time
held = []
for i in range(60):
    held.append(os.memfd_create(f"block{i}"))
    os.write(held[-1], bytes(20_000_000))
time.sleep(200)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.25))
    assert outcome.end.broke == "memory", outcome
    assert "survived" not in outcome.log


def test_a_memory_file_that_is_mapped_is_not_counted_twice(default_runner):
    program = """
import mmap, os, time
file = os.memfd_create("shared")
os.ftruncate(file, 150_000_000)
held = mmap.mmap(file, 150_000_000)
held.write(b"x" * len(held))
time.sleep(1.5)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.4))
    assert (outcome.end.broke, outcome.log) == (None, "survived\n")


def test_a_disk_filler_on_many_fronts_is_stopped_early(default_runner):
    program = """
import itertools, os
for _ in range(3):
    os.fork()
block = os.urandom(1_000_000)
for i in itertools.count():
    os.makedirs(f"d{os.getpid()}", exist_ok=True)
    with open(f"d{os.getpid()}/{i}", "wb") as file:
        file.write(block)
"""
    outcome = default_runner.python(program, limits=Limits(disk_gib=0.1))
    assert (outcome.end.broke, outcome.end.code) == ("disk", 137)
    used = sum(entry.stat().st_size for entry in default_runner.workspace.rglob("*") if entry.is_file())
    assert used < 2 * GIB
    print(f"overshoot: {used / GIB:.2f} GiB of 0.1 GiB")


def test_descriptors_run_out_for_the_program_alone(default_runner):
    program = """
import os
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


def test_the_watch_walks_at_once_when_the_disk_loses_what_is_left(tmp_path):
    watchdog = Watchdog(Limits(disk_gib=0.01), (tmp_path,), memory_is_hard=True)
    assert watchdog.look(psutil.Process(), 0.0) is None
    (tmp_path / "big").write_bytes(os.urandom(30_000_000))
    os.sync()
    breach = watchdog.look(psutil.Process(), 0.05)  # long before the next walk is due
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
