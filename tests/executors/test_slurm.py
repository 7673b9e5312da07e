"""Slurm's executor on submitit's stand-in, which runs on this machine what Slurm would run elsewhere."""

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import psutil
import pytest

from agent2.errors import ConfigError, Fault
from agent2.executors import open_executor
from agent2.executors.jobs import ExecutorSettings, JobEnd, Resources, SlurmSettings, run_jobs
from agent2.executors.node import needs_here
from agent2.executors.slurm import _end_of
from executor_fakes import job

pytest.importorskip("submitit")


@pytest.fixture
def opened(home, tmp_path):
    shared = tmp_path / "driver"
    shared.write_text("token")
    executor = open_executor(ExecutorSettings("slurm", "local", parallel=2), tmp_path / "executor")
    executor.require([job("a")], needs_here(shared, "token", sandbox=False))
    return executor


@pytest.mark.slow
def test_jobs_end_with_their_exit_codes_and_one_that_is_killed_is_run_again(opened, tmp_path):
    good = job("good", start=("--version",), folder=tmp_path, log=tmp_path / "good.log")
    bad = job("bad", start=("tasks", "show", "arithmetik"), folder=tmp_path, log=tmp_path / "bad.log")
    retried = []
    submit = opened.submit

    def submit_and_kill(submitted, attempt):
        submit(submitted, attempt)
        if submitted.name == "good" and attempt == 1:
            opened._submit_array()
            handle = opened._submitted[-1][0]
            os.kill(handle._process.pid, signal.SIGKILL)

    opened.submit = submit_and_kill
    ends = {end.name: end for end in run_jobs(opened, [good, bad], retried.append)}
    assert (ends["good"].exit_code, ends["good"].attempt, ends["good"].fault) == (0, 2, None)
    assert (ends["bad"].exit_code, ends["bad"].fault) == (2, Fault.SUBMITTER)
    assert [(end.name, end.is_lost) for end in retried] == [("good", True)]
    assert (tmp_path / "good.log").read_text().count(".") >= 2  # a version


@pytest.mark.slow
def test_a_job_whose_time_is_up_is_lost_and_submitted_again_as_often_as_nodes_may_be_lost(home, tmp_path):
    shared, lock = tmp_path / "driver", tmp_path / "harness.lock"
    shared.write_text("token")
    settings = ExecutorSettings("slurm", "local", parallel=1, slurm=SlurmSettings(minutes=9))
    executor = open_executor(settings, tmp_path / "executor")
    waiting = job("a", start=("--version",), folder=tmp_path, log=tmp_path / "a.log", lock=lock)
    executor.require([waiting], needs_here(shared, "token", sandbox=False))
    submit, retried = executor.submit, []
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # so that the job is there when the notice comes

        def submit_and_give_notice(submitted, attempt):
            submit(submitted, attempt)
            if attempt <= 2:
                executor._submit_array()
                os.kill(_who_has_open(lock, executor._submitted[-1][0]._process.pid), signal.SIGUSR2)
            else:
                held.close()

        executor.submit = submit_and_give_notice
        (end,) = run_jobs(executor, [waiting], retried.append)
    assert (end.exit_code, end.attempt, end.fault) == (0, 3, None)
    assert [(lost.is_lost, "was ended by Slurm" in lost.reason) for lost in retried] == [(True, True)] * 2


def _who_has_open(file, root):
    """The process below `root`, or `root`, that has a file open; waited for."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
            with suppress(psutil.Error, OSError):
                if any(opened.path == str(file) for opened in process.open_files()):
                    return process.pid
        time.sleep(0.05)
    raise AssertionError(f"nobody has opened {file}")


def test_slurm_without_submitit_is_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"--executor slurm: submitit is not installed; .*slurm"):
        open_executor(ExecutorSettings("slurm"), tmp_path)


def test_slurm_without_sbatch_is_refused_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="--executor slurm: "):
        executor = open_executor(ExecutorSettings("slurm"), tmp_path)
        executor.require([], None)


def test_another_address_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="reached through sbatch"):
        open_executor(ExecutorSettings("slurm", "login-1"), tmp_path)


def test_what_the_file_says_of_slurm_reaches_submitit(tmp_path, home):
    settings = ExecutorSettings("slurm", "local", slurm=SlurmSettings(partition="gpu", minutes=90, setup=["true"]))
    executor = open_executor(settings, tmp_path)
    executor.require([job("a", resources=Resources(cpus=2, memory_gib=4))], None)
    assert executor._executor.parameters["timeout_min"] == 90
    executor.close()


@pytest.mark.parametrize("left", [None, "done", JobEnd("another", 1, 0), JobEnd("trial", 2, 0)])
def test_the_result_of_another_job_in_its_folder_is_no_result_of_this_one(left):
    handle = SimpleNamespace(result=lambda: left, paths=SimpleNamespace(folder="jobs/7", stderr="log"), state="")
    end = _end_of(handle, SimpleNamespace(name="trial"), 1)
    assert (end.exit_code, end.fault) == (None, Fault.INFRASTRUCTURE) and "of another job in jobs/7" in end.reason
    own = JobEnd("trial", 1, 0)
    handle.result = lambda: own
    assert _end_of(handle, SimpleNamespace(name="trial"), 1) is own
