import json

import pytest

from agent2.executors import node
from agent2.executors.gpu_shares import GpuShares, lock_folder
from agent2.executors.jobs import ExecutorSettings, Job, Resources, run_jobs
from agent2.executors.local import LocalExecutor, gpus_of

STAND_IN = """
import fcntl, json, os, pathlib, sys, time

def is_owned(path):
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

numbers = [json.loads(word.removeprefix("gpus=")) for word in sys.argv if word.startswith("gpus=")]
for number in numbers[0] if numbers else []:
    pathlib.Path(f"in-use-{number}").touch(exist_ok=False)
time.sleep(0.2)
for number in numbers[0] if numbers else []:
    pathlib.Path(f"in-use-{number}").unlink()
locks = pathlib.Path(os.environ["AGENT2_HOME"], "gpus").glob("*/*.lock")
owned = [] if numbers else ["owns", sorted(path.name for path in locks if is_owned(path))]
with open("ran", "a") as file:
    file.write(json.dumps([sys.argv[1], *numbers, *owned]) + chr(10))
"""
"""In place of `agent2`, which jobs start in their folder; fails while another one has one of its GPUs."""


@pytest.fixture
def folder(tmp_path, home, monkeypatch):
    for name in node.GPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "agent2").mkdir()
    (tmp_path / "agent2" / "__init__.py").touch()
    (tmp_path / "agent2" / "__main__.py").write_text(STAND_IN)
    return tmp_path


def run(folder, jobs, parallel, gpus):
    """Ends of jobs, and what each was started with."""
    executor = LocalExecutor(ExecutorSettings(parallel=parallel, gpus=gpus), folder)
    try:
        ends = list(run_jobs(executor, jobs))
    finally:
        executor.close()
    lines = (folder / "ran").read_text().splitlines() if (folder / "ran").exists() else []
    return ends, sorted(json.loads(line) for line in lines)


def job(folder, name, each=1, **fields):
    resources = Resources(gpus=each, scores_on_gpu=fields.pop("scores_on_gpu", False))
    start = fields.pop("start", (name,))
    return Job(name, start, folder, folder / f"{name}.log", resources=resources, **fields)


def test_trials_at_the_same_time_get_disjoint_gpus(folder):
    ends, ran = run(folder, [job(folder, f"job-{k}", 2) for k in range(5)], 3, (0, 1, 4, 6))
    assert all(end.fault is None for end in ends), [end.reason for end in ends]
    assert [name for name, _ in ran] == [f"job-{k}" for k in range(5)]
    assert {tuple(numbers) for _, numbers in ran} <= {(0, 1), (4, 6), (0, 4), (0, 6), (1, 4), (1, 6)}


@pytest.mark.parametrize("numbers", [[-1], [10**12], ["0"], [True], []])
def test_what_is_no_list_of_gpus_in_a_record_is_not_waited_for(folder, numbers):
    record = folder / "trial.json"
    record.write_text(json.dumps({"gpus": numbers}))
    assert gpus_of(job(folder, "a", resumes_if=record)) is None


def test_two_sweeps_share_one_machine(folder):
    held = GpuShares((0, 1), lock_folder()).take(1)
    _, ran = run(folder, [job(folder, "a"), job(folder, "b")], 2, (0, 1))
    assert ran == [["a", [1]], ["b", [1]]]
    held.release()


def test_a_resumed_trial_gets_the_gpus_that_it_began_with(folder):
    record = folder / "trial.json"
    record.write_text(json.dumps({"gpus": [3]}))
    resumed = job(folder, "a", resume=("resumed",), resumes_if=record)
    assert gpus_of(resumed) == (3,)
    assert run(folder, [resumed], 1, (2, 3))[1] == [["resumed", "owns", ["3.lock"]]]


@pytest.mark.parametrize("text", ["{", "[]", '{"gpus": []}', '{"gpus": ["0"]}', '{"gpus": [true]}', "{}"])
def test_a_record_that_names_no_gpus_says_nothing(folder, text):
    (folder / "trial.json").write_text(text)
    assert gpus_of(job(folder, "a", resumes_if=folder / "trial.json")) is None
    assert gpus_of(job(folder, "a", resumes_if=folder / "missing.json")) is None


def test_a_trial_that_names_its_gpus_is_given_no_others(folder):
    _, ran = run(folder, [job(folder, "a", start=("a", "gpus=[7]"))], 1, (0,))
    assert ran == [["a", [7]]]


def test_without_gpus_to_share_out_a_trial_that_asks_for_some_does_not_start(folder):
    ends, ran = run(folder, [job(folder, "a")], 1, ())
    assert ran == [] and "1 GPUs were asked for" in ends[0].reason
