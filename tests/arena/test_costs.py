"""What a sweep will take: from earlier trials where they can be compared, else from stated bounds."""

import json

import pytest

from agent2.arena.costs import SweepToRun, estimate_sweep, read_earlier
from agent2.arena.plan import draft_trial
from agent2.arena.pruning import plan_pruning, prune
from agent2.arena.sweep import SweepSpec, all_trials
from agent2.arena.trial_folder import EventLog, TrialPaths
from agent2.sandbox.spec import GIB, MIB
from cli_builders import run_agent2
from trial_builders import write_task

WALL_S = 600.0
"""Of the task that `write_task` makes."""


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "agent2"))
    (tmp_path / "home").mkdir()
    return str(write_task(tmp_path / "home"))


def spec(task, agents=("nop", "sft"), seeds=(0, 1), **changes):
    return SweepSpec(name="s", tasks=[task], agents=list(agents), seeds=list(seeds), **changes)


def write_trial(root, task, agent, agent_s, grading_s, *, end="exited", events=(), overrides=(), n_bytes=0):
    """A finished trial that took so long: base scored at 0, half of the grading before the agent, half after."""
    paths = TrialPaths(root)
    root.mkdir(parents=True)
    config = draft_trial(task, agent, 0, overrides=overrides, trial_id=root.name)
    paths.trial_json.write_text(config.model_dump_json())
    log, before = EventLog(paths.trial_log), grading_s / 2
    log.append("base_scored", t=0.0)
    log.append("agent_started", t=before, deadline=before + WALL_S)
    for event in events:
        log.append(event, t=before + 1)
    log.append("agent_ended", t=before + agent_s, end=end)
    log.append("finished", t=agent_s + grading_s)
    log.close()
    (root / "submissions" / "1" / "snapshot").mkdir(parents=True)
    (root / "submissions" / "1" / "snapshot" / "model.safetensors").write_bytes(b"w" * n_bytes)
    return root


def estimate(plan, tmp_path, folder="trials", **options):
    root = tmp_path / "sweeps" / "s"
    sweep = SweepToRun(
        name=plan.name, root=root, trials=all_trials(plan, root), overrides=plan.set, parallel=plan.parallel,
        reproduces_best=plan.reproduce is not None,
    )  # fmt: skip
    return estimate_sweep(sweep, read_earlier([tmp_path / folder]), **options)


def test_without_earlier_trials_every_figure_is_a_bound_and_says_which(task, tmp_path):
    cost = estimate(spec(task), tmp_path)
    (nop, sft) = cost.cells
    assert nop.agent_s.value == WALL_S and not nop.agent_s.is_measured and "wall-clock budget" in nop.agent_s.source
    assert nop.grading_s.value == 4 * 600 and "4 evaluations" in nop.grading_s.source
    assert 0.1 * GIB < sft.disk_bytes.value < 0.2 * GIB and "10 copies" in sft.disk_bytes.source
    assert cost.seconds.value == 4 * (WALL_S + 2400) and not cost.seconds.is_measured
    assert cost.n_earlier == cost.n_others == 0 and any("upper bound" in note for note in cost.notes)


def test_earlier_trials_of_the_agent_measure_its_costs_and_those_of_the_task_its_grading(task, tmp_path):
    for number, agent_s in enumerate((100.0, 200.0)):
        write_trial(tmp_path / "trials" / f"a{number}", task, "nop", agent_s, 40.0, n_bytes=MIB)
    cost = estimate(spec(task), tmp_path)
    (nop, sft) = cost.cells
    assert (nop.agent_s.value, nop.agent_s.is_measured) == (150.0, True)
    assert nop.agent_s.source == "2 earlier trials of this agent"
    assert (nop.grading_s.value, sft.grading_s.value) == (40.0, 40.0)
    assert sft.grading_s.source == "2 earlier trials of this task" and sft.grading_s.is_measured
    assert (sft.agent_s.value, sft.agent_s.is_measured) == (WALL_S, False)
    assert MIB <= nop.disk_bytes.value < 1.2 * MIB and nop.disk_bytes.is_measured
    assert not cost.seconds.is_measured, "half of it is a bound"
    assert cost.seconds.value == 2 * (150 + 40) + 2 * (WALL_S + 40)
    assert estimate(spec(task, agents=["nop"]), tmp_path).seconds.is_measured


def test_trials_run_beside_each_other_and_the_last_one_decides(task, tmp_path):
    write_trial(tmp_path / "trials" / "nop", task, "nop", 90.0, 10.0)
    write_trial(tmp_path / "trials" / "sft", task, "sft", 290.0, 10.0)
    # in the order of the plan, 100 300 100 300 on two: 100+100+300 beside 300
    assert estimate(spec(task, parallel=2), tmp_path).seconds.value == 500.0
    assert estimate(spec(task, parallel=8), tmp_path).seconds.value == 300.0
    assert estimate(spec(task, reproduce="best"), tmp_path).seconds.value == 800.0 + 300.0


@pytest.mark.parametrize(
    "overrides",
    [["task.n_items.test_private=21"], ["base_model=tiny-arithmetic"], ["scoring.max_batch=3"]],
)
def test_a_trial_of_another_exam_measures_nothing_and_is_counted(task, tmp_path, overrides):
    write_trial(tmp_path / "trials" / "other", task, "nop", 5.0, 5.0, overrides=overrides)
    cost = estimate(spec(task), tmp_path)
    assert (cost.n_earlier, cost.n_others) == (0, 1) and not cost.cells[0].agent_s.is_measured


def test_a_smaller_budget_that_was_used_up_says_nothing_of_a_larger_one(task, tmp_path):
    budget = ["budget.wall_clock_s=60"]
    write_trial(tmp_path / "trials" / "cut", task, "nop", 60.0, 10.0, end="deadline", overrides=budget)
    (nop, _) = estimate(spec(task), tmp_path).cells
    assert (nop.agent_s.value, nop.agent_s.is_measured) == (WALL_S, False)
    (nop, _) = estimate(spec(task, set=["budget.wall_clock_s=30"]), tmp_path).cells
    assert (nop.agent_s.value, nop.agent_s.is_measured) == (30.0, True)


def test_pauses_and_resumed_gradings_are_not_counted(task, tmp_path):
    root = write_trial(tmp_path / "trials" / "paused", task, "nop", 100.0, 10.0, events=["resumed"])
    log = EventLog(TrialPaths(root).trial_log)
    log.append("agent_restarted", t=65.0, stopped_at=25.0, deadline=700.0)
    log.close()
    (nop, _) = estimate(spec(task), tmp_path).cells
    assert nop.agent_s.value == 60.0, "stopped at 25 s, started again at 65 s"
    assert not nop.grading_s.is_measured


def test_finished_trials_of_the_sweep_are_not_run_again(task, tmp_path):
    root = tmp_path / "sweeps" / "s" / "trials" / "arithmetic-nop-s0"
    write_trial(root, task, "nop", 90.0, 10.0)
    cost = estimate(spec(task), tmp_path, "sweeps")
    assert (cost.n_trials, cost.n_finished) == (4, 1)
    assert [cell.n_trials for cell in cost.cells] == [1, 2]
    assert cost.seconds.value == 100 + 2 * (WALL_S + 10)


def test_gpus_are_paid_for_as_long_as_the_sweep_takes(task, tmp_path):
    overrides = ["scoring.gpu=1", "budget.wall_clock_s=9000"]
    write_trial(tmp_path / "trials" / "nop", task, "nop", 3500.0, 100.0, overrides=overrides)
    plan = spec(task, agents=["nop"], parallel=2, set=["gpus=[0]", *overrides])
    cost = estimate(plan, tmp_path, gpu_price=2.5)
    assert cost.gpus == (0, 1) and cost.gpu_hours.value == 2.0 and cost.gpu_dollars.value == 5.0
    assert any("the same GPUs (0, 1)" in note for note in cost.notes)
    assert estimate(spec(task), tmp_path, gpu_price=2.5).gpu_dollars is None, "no GPU is named: not known to be free"
    assert estimate(plan, tmp_path).gpu_dollars is None
    assert cost.gpu_dollars.source == "$2.50 for each GPU hour"


def test_gpus_that_trials_share_out_are_paid_for_and_not_called_the_same(task, tmp_path):
    plan = spec(task, agents=["nop"], parallel=4)
    root = tmp_path / "sweeps" / "s"
    trials = all_trials(plan, root)
    cost = estimate_sweep(SweepToRun("s", root, trials, parallel=2, shared_gpus=(0, 1)), [])
    assert cost.gpus == (0, 1) and cost.gpu_hours.value == pytest.approx(2 * cost.seconds.value / 3600)
    assert not any("the same GPUs" in note for note in cost.notes)


def test_a_pruned_trial_measures_what_it_took_before(task, tmp_path):
    root = write_trial(tmp_path / "trials" / "nop", task, "nop", 90.0, 10.0, n_bytes=4 * MIB)
    before = estimate(spec(task), tmp_path).disk_bytes.value
    prune(plan_pruning([root])[0])
    # the record itself and the lock are new
    assert before <= estimate(spec(task), tmp_path).disk_bytes.value <= before + 4 * 16_384


def test_a_damaged_trial_is_passed_over(task, tmp_path):
    write_trial(tmp_path / "trials" / "nop", task, "nop", 90.0, 10.0)
    for name, text in (("torn", "{"), ("list", "[]"), ("other", '{"task": 3}')):
        (tmp_path / "trials" / name).mkdir()
        (tmp_path / "trials" / name / "trial.json").write_text(text)
    assert len(read_earlier([tmp_path / "trials"])) == 1


def test_dry_run_prints_where_each_figure_comes_from_and_writes_nothing(task, tmp_path):
    home = tmp_path / "home"
    write_trial(home / "trials" / "nop", task, "nop", 90.0, 10.0)
    (home / "s.yaml").write_text(json.dumps(spec(task).model_dump(mode="json", exclude_none=True)))
    before = sorted(home.glob("[!.]*/**"))
    printed = run_agent2(
        "sweep", "s.yaml", "--dry-run", "--gpu-price", "2", home=home, installation=tmp_path / "agent2"
    )
    assert printed.returncode == 0, printed.stderr
    assert "4 to run, 0 finished" in printed.stdout and "90 s, measured" in printed.stdout
    assert "agent, measured: 1 earlier trial of this agent" in printed.stdout and "at most" in printed.stdout
    assert "agent, estimated: no earlier trial of this agent: its whole wall-clock budget" in printed.stdout
    assert sorted(home.glob("[!.]*/**")) == before
    document = run_agent2("sweep", "s.yaml", "--dry-run", "--json", home=home, installation=tmp_path / "agent2")
    assert json.loads(document.stdout)["cells"][0]["agent_s"] == {
        "value": 90.0, "is_measured": True, "source": "1 earlier trial of this agent"
    }  # fmt: skip


def test_a_price_without_an_estimate_is_refused(task, tmp_path):
    (tmp_path / "s.yaml").write_text(json.dumps(spec(task).model_dump(mode="json", exclude_none=True)))
    refused = run_agent2("sweep", "s.yaml", "--gpu-price", "2", home=tmp_path)
    assert refused.returncode == 2 and "add --dry-run" in refused.stderr
