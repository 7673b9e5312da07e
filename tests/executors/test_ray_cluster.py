"""What Ray raises becomes the end of a job; one real cluster of two nodes, and a third that is not like the driver."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from agent2.errors import ConfigError, Fault, SandboxError
from agent2.executors import open_executor
from agent2.executors.jobs import ExecutorSettings, JobEnd, Resources, run_jobs
from agent2.executors.node import needs_here
from agent2.executors.ray_cluster import SANDBOX_RESOURCE, demand_of, end_of, fits
from agent2.executors.start_node import node_command
from agent2.sandbox.doctor import require_usable
from executor_fakes import job

exceptions = pytest.importorskip("ray.exceptions")


def test_a_trial_takes_a_sandbox_and_an_idle_node_without_one_has_no_room():
    demand = demand_of(Resources(cpus=2, gpus=1, memory_gib=4), needs_sandbox=True)
    assert demand == {"CPU": 2, "GPU": 1, "memory": 4 << 30, SANDBOX_RESOURCE: 1}
    assert fits(demand, {"CPU": 4.0, "GPU": 1.0, "memory": 2.0**33, SANDBOX_RESOURCE: 4.0})
    assert not fits(demand, {"CPU": 4.0, "GPU": 1.0, "memory": 2.0**33})
    assert not fits(demand_of(Resources(cpus=8), needs_sandbox=False), {"CPU": 4.0})


@pytest.mark.parametrize(
    ("error", "fault", "is_lost"),
    [
        (exceptions.WorkerCrashedError(), Fault.INFRASTRUCTURE, True),
        (exceptions.NodeDiedError("gone"), Fault.INFRASTRUCTURE, True),
        (exceptions.OutOfMemoryError("full"), Fault.INFRASTRUCTURE, True),
        (exceptions.ObjectStoreFullError("full"), Fault.INFRASTRUCTURE, True),
        (exceptions.LocalRayletDiedError(), Fault.INFRASTRUCTURE, True),
        (exceptions.RayTaskError("run_checked", "Traceback\nImportError: no agent2", ImportError()), "task", False),
        (exceptions.TaskCancelledError(), Fault.SUBMITTER, False),
    ],
)
def test_what_ray_raises_is_the_end_of_an_attempt(error, fault, is_lost):
    def get():
        raise error

    end = end_of(get, job("a"), 3)
    assert (end.name, end.attempt, end.exit_code, end.is_lost) == ("a", 3, None, is_lost)
    assert end.fault is (Fault.INFRASTRUCTURE if fault == "task" else fault)
    assert fault != "task" or "no agent2" in end.reason


def test_an_end_that_comes_back_is_passed_on():
    assert end_of(lambda: JobEnd("a", 1, 0), job("a"), 1) == JobEnd("a", 1, 0)


def test_a_node_offers_no_more_sandboxes_than_it_was_told():
    assert f'--resources={{"{SANDBOX_RESOURCE}": 3}}' in node_command("head:6379", 3)
    headless = node_command(None, 0, ["port=6379"])
    assert "--head" in headless and "--resources={}" in headless and headless[-1] == "--port=6379"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1", "head:port"])
def test_without_a_cluster_the_message_says_at_once_how_to_start_one(address, tmp_path):
    with pytest.raises(ConfigError, match=r"no Ray cluster can be used there .* agent2 node"):
        open_executor(ExecutorSettings("ray", address), tmp_path)


@pytest.mark.slow
def test_jobs_run_on_a_cluster_of_two_nodes_and_a_third_one_with_another_secret_is_refused_before_any_starts(
    home, tmp_path
):
    try:
        require_usable()
    except SandboxError as error:
        pytest.skip(str(error))
    head, address = _start(tmp_path, None, home)
    nodes = [head]
    try:
        nodes.append(_start(tmp_path, address, home)[0])
        executor = open_executor(ExecutorSettings("ray", address), tmp_path)
        shared = tmp_path / "driver"
        shared.write_text("token")
        needs = needs_here(shared, "token", sandbox=True)
        _wait(lambda: executor._ray.cluster_resources().get(SANDBOX_RESOURCE, 0) >= 2)
        executor.require([job("a")], needs)
        with pytest.raises(ConfigError, match="no node has CPU 64"):
            executor.require([job("a", resources=Resources(cpus=64))], needs)
        jobs = [
            job(name, start=("--version",), folder=tmp_path, log=tmp_path / f"{name}.log") for name in ("a", "b", "c")
        ]
        assert {end.exit_code for end in run_jobs(executor, jobs)} == {0}
        other = tmp_path / "other"
        nodes.append(_start(tmp_path, address, other)[0])
        _wait(lambda: executor._ray.cluster_resources().get(SANDBOX_RESOURCE, 0) >= 3)
        with pytest.raises(ConfigError, match="has no installation secret"):
            executor.require([job("a")], needs)
        executor.close()
    finally:
        for node in nodes:
            for process in [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]:
                process.kill()
            node.wait()


def _start(folder, address, home):
    """`agent2 node` with one CPU and one sandbox, as a head on a free port or joining one; its process and address."""
    log = folder / f"node-{time.monotonic_ns()}.log"
    joins = ["--address", address] if address else []
    ray = ["num-cpus=1", "object-store-memory=80000000"]
    ray += [] if address else ["port=0", "include-dashboard=false"]
    command = [sys.executable, "-m", "agent2", "node", *joins, "--sandboxes", "1"]
    command += [word for option in ray for word in ("--ray", option)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, "AGENT2_HOME": str(home)}, stdout=output, stderr=output, start_new_session=True
        )
    if address is None:
        _wait(lambda: "--address='" in log.read_text() or process.poll() is not None)
        address = log.read_text().partition("--address='")[2].partition("'")[0]
    return process, address


def _wait(condition, seconds=300):
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.2)
