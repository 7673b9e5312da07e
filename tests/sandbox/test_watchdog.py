import os
import subprocess
import sys

import psutil

from agent2.sandbox.spec import Limits
from agent2.sandbox.watchdog import Watchdog, disk_use, process_tree


def test_disk_use_counts_blocks_not_apparent_sizes_and_follows_no_links(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(os.urandom(1_000_000))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(50_000_000_000)
    (tmp_path / "out").symlink_to("/usr")
    used = disk_use(tmp_path)
    assert isinstance(used, int) and 1_000_000 <= used < 1_200_000


def test_folders_nested_too_deeply_to_measure_are_a_breach(tmp_path):
    top = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 200, dir_fd=top)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = deeper
    os.close(top)
    breach = Watchdog(Limits(), (tmp_path,), memory_is_hard=True).look(psutil.Process(), 0.0)
    assert breach is not None and breach.limit == "disk" and "too long" in breach.sentence
    subprocess.run(["rm", "-rf", str(tmp_path / ("d" * 200))], check=True)


def test_a_process_below_its_limits_is_no_breach(tmp_path):
    watchdog = Watchdog(Limits(), (tmp_path,), memory_is_hard=False)
    assert watchdog.look(psutil.Process(), 0.0) is None
    assert watchdog.peak_processes >= 1


def test_memory_is_left_to_the_kernel_where_its_limit_is_hard(tmp_path):
    tiny = Limits(memory_gib=0.000001)
    assert Watchdog(tiny, (tmp_path,), memory_is_hard=True).look(psutil.Process(), 0.0) is None
    breach = Watchdog(tiny, (tmp_path,), memory_is_hard=False).look(psutil.Process(), 0.0)
    assert breach is not None and breach.limit == "memory"


def test_the_family_of_an_ended_process_is_empty():
    child = subprocess.Popen([sys.executable, "-c", ""])
    process = psutil.Process(child.pid)
    child.wait()
    assert process_tree(process) == []


def test_a_workspace_that_is_removed_while_a_program_runs_ends_it_with_a_sentence(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    watchdog = Watchdog(Limits(), (workspace,), memory_is_hard=True)
    assert watchdog.look(psutil.Process(), 0.0) is None
    workspace.rmdir()
    breach = watchdog.look(psutil.Process(), 0.0)
    assert breach is not None and breach.sentence == f"was stopped because {workspace} was removed while it ran"
