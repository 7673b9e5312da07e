"""What a node is compared in, and how a job's command runs there."""

import fcntl
import signal
import subprocess
import sys
import threading
import time

import pytest

from agent2.errors import ConfigError, Fault
from agent2.executors.jobs import Resources
from agent2.executors.node import (
    LEASH,
    allowed_gpus,
    differences,
    facts_here,
    gpu_arguments,
    gpu_override,
    needs_here,
    run_checked,
    run_here,
)
from executor_fakes import FakeCluster, facts, job, needs


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        ({"python": "3.12.1"}, "runs Python 3.12.1, the driver 3.11.7"),
        ({"packages": {"numpy": "2.3.0"}}, r"has numpy 2.3.0 \(driver: 2.4.0\)"),
        ({"packages": {}}, "has numpy not installed"),
        ({"source": "other"}, "has another source of agent2"),
        ({"secret": "other"}, "has another installation secret"),
        ({"secret": ""}, "has no installation secret"),
        ({"token": ""}, "does not see /shared/sweep"),
        ({"sandbox": "bubblewrap: is not installed"}, "cannot sandbox trials: bubblewrap: is not installed"),
        ({"unset": ("LAB_KEY",)}, "has no variable LAB_KEY"),
    ],
)
def test_a_node_that_differs_is_refused_before_anything_starts(fact, sentence):
    cluster = FakeCluster(nodes=[facts(), facts(node="node-2", **fact)])
    with pytest.raises(ConfigError, match=f"node node-2 {sentence}"):
        cluster.require([job("a")], needs())
    assert cluster.disk == {}


def test_a_node_like_the_driver_is_not_refused():
    assert differences(facts(), needs()) == []


def test_this_process_is_like_itself_and_the_secret_is_not_in_what_it_asks_for(home, tmp_path):
    shared = tmp_path / "driver"
    shared.write_text("token")
    asked = needs_here(shared, "token", sandbox=False, variables=("PATH",))
    assert differences(facts_here(asked), asked) == []
    assert (home / "secret").read_bytes().hex() not in repr(asked)


def test_a_job_on_a_node_that_differs_is_not_started(tmp_path):
    end = run_checked(job("a", log=tmp_path / "log"), 1, needs(sandbox=False))
    assert (end.fault, end.exit_code) == (Fault.INFRASTRUCTURE, None)
    assert end.reason.startswith("not started: node ")
    assert not (tmp_path / "log").exists()


def test_a_command_that_fails_ends_with_its_last_line(tmp_path):
    failing = job("a", start=("tasks", "show", "arithmetik"), folder=tmp_path, log=tmp_path / "logs" / "a.log")
    end = run_here(failing, 1, is_leashed=True)
    assert (end.exit_code, end.fault) == (2, Fault.SUBMITTER)
    assert "did you mean 'arithmetic'" in end.reason


@pytest.mark.parametrize(
    ("number", "on_cluster", "is_lost"),
    [
        (signal.SIGTERM, True, True),
        (signal.SIGUSR2, True, True),
        (signal.SIGKILL, True, False),  # the kernel, for memory
        (signal.SIGTERM, False, False),  # somebody here
    ],
)
def test_a_command_that_gets_the_notice_of_a_scheduler_is_lost_with_its_node(
    home, tmp_path, number, on_cluster, is_lost
):
    (home / "engines").mkdir(parents=True)
    with (home / "engines" / ".llama-cpp.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # so that the command waits for as long as it lives
        waiting = job("a", start=("engines", "install", "llama-cpp"), folder=tmp_path, log=tmp_path / "log")
        end = run_here(waiting, 1, is_leashed=on_cluster, on_start=lambda process: process.send_signal(number))
    assert (end.exit_code, end.fault, end.is_lost) == (-number, Fault.INFRASTRUCTURE, is_lost)


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,5"}, ("--set", "gpus=[2,5]")),
        ({"SLURM_JOB_GPUS": "3,4", "CUDA_VISIBLE_DEVICES": "0,1"}, ("--set", "gpus=[3,4]")),
        ({"SLURM_JOB_GPUS": "0,1,2,3", "CUDA_VISIBLE_DEVICES": "1,2"}, ("--set", "gpus=[1,2]")),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}, None),
        ({"CUDA_VISIBLE_DEVICES": "1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "1,1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "1,²"}, None),
        ({"CUDA_VISIBLE_DEVICES": "1,-2"}, None),
        ({}, None),
    ],
)
def test_a_job_gets_the_gpus_that_its_scheduler_names_and_never_runs_without(environment, arguments):
    asking = job("a", resources=Resources(gpus=2))
    assert gpu_override(asking, environment) == arguments
    assert gpu_override(job("a", start=("run", "--set", "gpus=[7]"), resources=Resources(gpus=2)), environment) == ()
    assert gpu_override(job("a"), environment) == ()


def test_a_job_waits_for_the_process_that_holds_its_lock(tmp_path):
    lock = tmp_path / "harness.lock"
    handle = lock.open("w")
    fcntl.flock(handle, fcntl.LOCK_EX)
    waiting = job("a", start=("--version",), lock=lock, folder=tmp_path, log=tmp_path / "a.log")
    ends = []
    thread = threading.Thread(target=lambda: ends.append(run_here(waiting, 1, is_leashed=False)))
    thread.start()
    time.sleep(0.5)
    assert ends == [] and not waiting.log.exists()
    handle.close()
    thread.join()
    assert [end.exit_code for end in ends] == [0]


def test_a_leashed_command_dies_with_the_process_that_waits(tmp_path):
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    parent = (
        "import os, subprocess, sys; "
        f"subprocess.Popen([sys.executable, {str(LEASH)!r}, str(os.getpid()), sys.executable, '-c', {child!r}]).wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    _wait(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait()
    _wait(lambda: not _is_alive(pid))


def test_a_leashed_command_whose_parent_is_gone_is_not_started(tmp_path):
    ended = subprocess.run([sys.executable, str(LEASH), "1", "touch", str(tmp_path / "started")], check=False)
    assert ended.returncode == 137
    assert not (tmp_path / "started").exists()


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(condition, seconds=120):
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


def test_a_lock_that_cannot_be_opened_ends_the_attempt_and_not_the_sweep(tmp_path):
    (tmp_path / "lock").mkdir()
    end = run_here(job("a", folder=tmp_path, log=tmp_path / "log", lock=tmp_path / "lock"), 1, is_leashed=False)
    assert end.fault is Fault.INFRASTRUCTURE and "cannot be opened" in end.reason


def test_a_trial_may_be_scored_on_the_first_of_its_own_gpus():
    assert gpu_arguments((5, 2), Resources(gpus=2)) == ("--set", "gpus=[5,2]")
    assert gpu_arguments((5, 2), Resources(gpus=2, scores_on_gpu=True)) == (
        "--set", "gpus=[5,2]", "--set", "scoring.gpu=5",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "3, 1"}, [3, 1]),
        ({"SLURM_JOB_GPUS": "4", "CUDA_VISIBLE_DEVICES": "0"}, [4]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_a_process_may_use_the_gpus_that_it_was_given(environment, numbers):
    assert allowed_gpus(environment) == numbers


@pytest.mark.parametrize("value", ["GPU-8a3f", "0,0", "0;1"])
def test_gpus_that_have_no_numbers_are_asked_for(value):
    with pytest.raises(ConfigError, match="list those to use under gpus"):
        allowed_gpus({"CUDA_VISIBLE_DEVICES": value})
