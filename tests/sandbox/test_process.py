"""How programs end: by themselves, stopped, or with the harness."""

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from agent2.errors import SandboxError
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.spec import Limits, SandboxSpec

HARNESS = """
import sys, time
from pathlib import Path
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.spec import SandboxSpec
folder = Path(sys.argv[1])
sandbox = find_sandbox(sys.argv[2])
sandbox.prepare_workspace(folder / "workspace")
command = ("sh", "-c", "setsid sleep 600 & trap '' TERM; while true; do echo beat >> beat; sleep 0.05; done")
process = sandbox.start(SandboxSpec(command, folder / "workspace", folder / "log"))
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -11 $$", 139)])
def test_exit_codes_pass_through(default_runner, script, code):
    end = default_runner.run("sh", "-c", script).end
    assert (end.code, end.broke) == (code, None)
    assert str(code) in end.reason


def test_an_unknown_program_ends_with_127_and_says_so(runner):
    outcome = runner.run("no-such-program")
    assert outcome.end.code == 127
    assert "cannot start 'no-such-program'" in outcome.log


def test_output_and_errors_reach_the_log_and_stdin_is_empty(runner):
    outcome = runner.run("sh", "-c", "echo out; echo err >&2; cat; echo end")
    assert outcome.log == "out\nerr\nend\n"


def test_wait_says_none_while_it_runs(runner):
    process = runner.start("sleep", "60")
    assert process.wait(0.1) is None
    assert psutil.pid_exists(process.pid)
    process.stop(1)
    assert process.wait(0) is not None
    assert not psutil.pid_exists(process.pid)


def test_stop_asks_first_and_a_program_may_tidy_up(runner):
    process = runner.start(
        "sh", "-c", "trap 'echo tidy > done.txt; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    )
    _until(lambda: "up" in runner.text())
    end = process.stop(60)
    assert (end.code, end.reason) == (3, "it was stopped by the harness")
    assert (runner.workspace / "done.txt").exists()


def test_a_program_that_ignores_sigterm_is_killed_with_all_that_it_started(runner):
    process = runner.start("sh", "-c", "trap '' TERM; (setsid sleep 600 &); echo up; while :; do sleep 0.05; done")
    _until(lambda: "up" in runner.text())
    family = _family_with(process.pid, "sleep", "600")
    started = time.monotonic()
    end = process.stop(0.3)
    assert time.monotonic() - started < 120
    assert end.code == 137 and "killed after 0.3 s" in end.reason
    assert not [p for p in family if _alive(p)]
    assert process.stop(5) == end


def test_what_a_program_leaves_running_ends_with_it(runner):
    command = "setsid sleep 612 > /dev/null 2>&1 & echo up; while ! test -e end; do sleep 0.02; done; exit 4"
    process = runner.start("sh", "-c", command)
    family = _family_with(process.pid, "sleep", "612")
    (runner.workspace / "end").touch()
    end = process.wait(120)
    assert end is not None and end.code == 4
    assert not [p for p in family if _alive(p)]


@pytest.mark.parametrize("backend", ["bubblewrap", "none"])
def test_killing_the_harness_ends_the_program(default_runner, tmp_path, backend):
    folder = tmp_path / "trial"
    folder.mkdir()
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(folder), backend], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert harness.stdout is not None
    pid = int(harness.stdout.readline())
    beat = folder / "workspace" / "beat"
    _until(beat.exists)
    family = _family_with(pid, "sleep", "600")
    survivors = [p for p in family if backend == "none" and _command(p) == ["sleep", "600"]]  # documented
    harness.kill()
    harness.wait()
    harness.stdout.close()
    _until(lambda: not [p for p in family if p not in survivors and _alive(p)])
    last = beat.read_text()
    time.sleep(0.2)
    assert beat.read_text() == last
    for process in survivors:  # these and no other test's
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def test_the_log_keeps_beginning_and_end_of_too_much_output(default_runner):
    program = "print('first'); [print('x' * 1000) for _ in range(20000)]; print('last')"
    outcome = default_runner.python(program, limits=Limits(log_mib=1))
    assert outcome.end.code == 0
    assert default_runner.log.stat().st_size < 1.01 * 2**20
    assert outcome.log.startswith("first\n") and outcome.log.endswith("last\n")
    assert "bytes left out here]" in outcome.log


def test_two_programs_run_side_by_side(default_runner, tmp_path):
    first = default_runner.start("sleep", "30")
    second = type(default_runner)(default_runner.sandbox, tmp_path / "second", tmp_path / "second.log")
    second.sandbox.prepare_workspace(second.workspace)
    assert second.run("sh", "-c", "ls /workspace; ps ax | grep -c '[s]leep 30'").log == "0\n"
    first.stop(1)


def test_a_sandbox_that_breaks_on_the_way_is_an_error_with_its_words(default_runner, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text(
        '#!/bin/sh\ncase "$1" in --version) echo bubblewrap 0.8.0;; --args) echo "bwrap: no luck" >&2; exit 1;; esac'
    )
    broken.chmod(0o755)
    sandbox = type(default_runner.sandbox)(str(broken))
    runner = type(default_runner)(sandbox, default_runner.workspace, default_runner.log)
    with pytest.raises(SandboxError, match="did not start: bwrap: no luck"):
        runner.start("true")


def test_the_log_path_must_be_writable(default_runner):
    runner = type(default_runner)(default_runner.sandbox, default_runner.workspace, Path("/proc/none/agent.log"))
    with pytest.raises(SandboxError, match=r"agent\.log cannot be written"):
        runner.start("true")


def test_descriptors_do_not_pile_up(default_runner):
    default_runner.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        default_runner.run("true")
    _until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # a watch may be in the middle of its last look


def _until(claim, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _family_with(pid: int, *command: str) -> list[psutil.Process]:
    """The process `pid` and its descendants, once one of them runs `command`: a fork has its parent's for a while."""
    family: list[psutil.Process] = []

    def seen() -> bool:
        family[:] = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return any(_command(p) == list(command) for p in family)

    _until(seen)
    return family


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_program_whose_limits_can_no_longer_be_watched_is_stopped(default_runner):
    process = default_runner.start("sleep", "60")
    default_runner.workspace.rename(default_runner.workspace.with_name("elsewhere"))
    end = process.wait(120)
    assert end is not None
    assert end.broke == "watch"
    assert "was removed while it ran" in end.reason


def test_a_start_that_fails_before_the_program_is_an_error_and_no_endless_wait(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    spec = SandboxSpec(("true",), workspace, tmp_path / "log")
    met: list[BaseException] = []

    def start():
        try:
            find_sandbox("none").start(spec).wait(120)  # so that it gives no descriptor back later
        except SandboxError as error:
            met.append(error)

    start()  # loads what has to be loaded
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    starter = threading.Thread(target=start, daemon=True)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.dup(0))
        for _ in range(3):  # its log and the two ends of its link; none is left for the file with its input
            os.close(held.pop())
        starter.start()
        starter.join(120)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not starter.is_alive()
    assert "Too many open files" in str(met[0])
