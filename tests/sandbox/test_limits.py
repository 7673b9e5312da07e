"""Programs that take too much are contained, and the end says which limit they met."""

import os
import time
from pathlib import Path

import pytest

from agent2.sandbox.limits import OWN_PROCESSES, Cgroup, Hierarchy, hierarchies, rlimits, sweep
from agent2.sandbox.spec import GIB, Limits, SandboxExit

FORK_BOMB = """
import os, time
made, refused = 0, 0
for _ in range(10_000):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
    except OSError:
        refused += 1
print(made, refused, flush=True)
while not os.path.exists("seen"):
    time.sleep(0.05)
"""


def _bomb(runner) -> tuple[SandboxExit, int, int]:
    """How the fork bomb ended, and how many processes it made and was refused.

    It ends once the watch has seen the limit reached, which without control groups nobody else can tell.
    """
    process = runner.start("python", "-c", FORK_BOMB, limits=Limits(processes=40))
    ends_at = time.monotonic() + 120
    while process._watchdog.peak_processes < 40 + OWN_PROCESSES and time.monotonic() < ends_at:
        time.sleep(0.05)
    (runner.workspace / "seen").touch()
    end = process.wait(120)
    process.stop(0)
    assert end is not None, runner.text()
    n_made, refused = map(int, runner.text().split())
    return end, n_made, refused


def test_ten_thousand_processes_are_refused_and_reported(default_runner):
    end, n_made, refused = _bomb(default_runner)
    assert 10 <= n_made <= 44 and n_made + refused == 10_000
    assert (end.code, end.broke) == (0, "processes")
    assert "40 processes" in end.reason


def test_processes_are_refused_without_control_groups_too(runner, monkeypatch):
    monkeypatch.setenv("AGENT2_CGROUP", "/no-such-group")
    if not runner.sandbox.drops_user and os.geteuid() == 0:
        pytest.skip("the kernel does not count processes of host root, so that root always gets a user of its own")
    end, n_made, refused = _bomb(runner)
    assert 10 <= n_made <= 44 and n_made + refused == 10_000
    assert end.broke == "processes"


def test_a_memory_hog_is_stopped_and_reported(default_runner):
    program = """
import time
blocks = []
for _ in range(40):
    blocks.append(bytearray(20_000_000))
time.sleep(200)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.25))
    assert outcome.end.broke == "memory" and outcome.end.code == 137
    assert "0.25 GiB" in outcome.end.reason
    assert "survived" not in outcome.log


def test_forked_children_that_share_memory_are_not_counted_twice(default_runner):
    program = """
import os, time
block = bytearray(os.urandom(1)) * 150_000_000
children = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        time.sleep(2)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
print("survived")
"""
    outcome = default_runner.python(program, limits=Limits(memory_gib=0.4))
    assert (outcome.end.broke, outcome.log) == (None, "survived\n")


def test_a_program_that_fills_its_disk_is_stopped_and_reported(default_runner):
    program = """
import itertools, time
for i in itertools.count():
    with open(f"file{i}", "wb") as file:
        file.write(bytes(5_000_000))
    time.sleep(0.02)
"""
    outcome = default_runner.python(program, limits=Limits(disk_gib=0.03))
    assert (outcome.end.broke, outcome.end.code) == ("disk", 137)
    assert "0.03 GiB are allowed" in outcome.end.reason


def test_one_file_cannot_outgrow_its_limit_even_when_sparse(default_runner):
    limits = Limits(file_size_gib=0.01)
    outcome = default_runner.run("sh", "-c", "exec head -c 100000000 /dev/zero > big", limits=limits)
    assert (outcome.end.broke, outcome.end.code) == ("file size", 153)
    assert (default_runner.workspace / "big").stat().st_size <= 0.01 * GIB
    sparse = default_runner.run("truncate", "-s", "50G", "sparse", limits=limits)
    assert sparse.end.code != 0


def test_memory_folders_are_limited_by_the_kernel(runner):
    program = """
for place in ["/tmp", "/home/agent", "/dev/shm"]:
    try:
        with open(place + "/big", "wb") as file:
            file.write(bytes(30_000_000))
        print("filled", place)
    except OSError as error:
        print(error.strerror)
"""
    outcome = runner.python(program, limits=Limits(tmp_gib=0.01))
    assert outcome.log == "No space left on device\n" * 3


def test_descriptors_and_core_files_are_limited(runner):
    program = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))"
    assert runner.python(program, limits=Limits(open_files=100)).log == "(100, 100) (0, 0)\n"


def test_resource_limits_in_bytes():
    values = rlimits(Limits(file_size_gib=1.5), process_limit=None)
    assert values == {"FSIZE": 3 * 2**29, "NOFILE": 4096, "CORE": 0}


def test_a_group_that_another_supervisor_made_is_not_built_in(tmp_path, monkeypatch):
    monkeypatch.delenv("AGENT2_CGROUP", raising=False)
    _fake_version_1(tmp_path)
    places = hierarchies(tmp_path, "4:memory:/docker/abc\n8:pids:/\n0::/\n")
    assert isinstance(places["memory"], str) and "/docker/abc" in places["memory"]
    assert places["pids"] == Hierarchy("pids", tmp_path / "pids", 1)


def test_a_group_named_by_the_administrator_is_used(tmp_path, monkeypatch):
    _fake_version_1(tmp_path)
    (tmp_path / "memory" / "ours").mkdir()
    (tmp_path / "pids" / "ours").mkdir()
    monkeypatch.setenv("AGENT2_CGROUP", "/ours")
    places = hierarchies(tmp_path, "4:memory:/docker/abc\n8:pids:/\n0::/\n")
    assert places["memory"] == Hierarchy("memory", tmp_path / "memory" / "ours", 1)


def test_version_2_needs_the_controller_enabled(tmp_path, monkeypatch):
    monkeypatch.delenv("AGENT2_CGROUP", raising=False)
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / "cgroup.subtree_control").write_text("pids\n")
    places = hierarchies(tmp_path, "0::/\n")
    assert places["pids"] == Hierarchy("pids", tmp_path, 2)
    assert isinstance(places["memory"], str) and "+memory" in places["memory"]


def test_unmounted_control_groups_are_said_to_be_unmounted(tmp_path):
    assert "not mounted" in str(hierarchies(tmp_path, "0::/\n")["pids"])


def test_a_group_is_told_its_limits_and_takes_processes(tmp_path):
    places = {c: Hierarchy(c, tmp_path, 2) for c in ("pids", "memory")}
    group = Cgroup("0", Limits(processes=10, memory_gib=0.5), places)
    folder = tmp_path / f"agent2-{os.getpid()}-0"
    group.adopt([42])
    assert (folder / "pids.max").read_text() == "14"
    assert (folder / "memory.max").read_text() == str(2**29)
    assert (folder / "cgroup.procs").read_text() == "42"
    (folder / "pids.events").write_text("max 3\n")
    assert group.broke() == "processes"
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.broke() == "memory"


def test_groups_of_a_dead_harness_are_swept_and_those_of_a_living_one_stay(tmp_path):
    dead, living = tmp_path / "agent2-4194305-0", tmp_path / f"agent2-{os.getpid()}-0"
    dead.mkdir()
    living.mkdir()
    sweep(tmp_path)
    assert (dead.exists(), living.exists()) == (False, True)


def test_a_finished_program_leaves_no_group_behind(default_runner):
    place = hierarchies()["pids"]
    if isinstance(place, str):
        pytest.skip(f"no control groups here: {place}")
    before = set(place.parent.glob(f"agent2-{os.getpid()}-*"))  # of programs that other tests left to be ended
    default_runner.run("true")
    assert set(place.parent.glob(f"agent2-{os.getpid()}-*")) <= before


def _fake_version_1(root: Path) -> None:
    for controller in ("memory", "pids"):
        (root / controller).mkdir()
        (root / controller / "cgroup.procs").touch()
