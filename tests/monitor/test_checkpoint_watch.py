"""The schedule of a watch: what is evaluated when, with scripted players in the place of models."""

import json
import shutil
from dataclasses import replace

import pytest

from agent2.analysis.historical_best import with_earlier_evaluations
from agent2.analysis.outcome import read_outcome
from agent2.contract.suite import EvaluationRole
from agent2.errors import CheckpointError, ConfigError
from agent2.evaluation.suite_run import run_suite
from agent2.monitor.checkpoint_watch import ACTION, LOG, CheckpointWatch, WatchPlan
from agent2.records import digest_of
from agent2.reports.eval_pages import write_eval_report
from evaluation.test_run_checkpoints import write_model
from history_builders import BEST_GATE
from suite_fakes import make_request, make_suite, write_players

DEV, NIGHTLY, CANDIDATE = EvaluationRole.DEV, EvaluationRole.NIGHTLY, EvaluationRole.CANDIDATE
QUALITY = {10: "weak", 20: "strong", 30: "one_sided", 40: "broken", 50: "strong"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


class Run:
    """A run whose checkpoints are folders of files, and whose models are scripted players by step."""

    def __init__(self, folder, steps=(10, 20, 30)):
        self.folder, self.played, self.events = folder, [], []
        write_players(folder)
        for step in steps:
            write_model(folder / "run" / f"checkpoint-{step}")
        self.plan = WatchPlan(
            folder / "run", folder / "out", make_suite(folder, BEST_GATE).digest,
            only_present=True, settle_s=0.0, poll_s=0.0,
        )  # fmt: skip

    def evaluate(self, checkpoint, role, folder):
        request = make_request(self.folder, BEST_GATE, new=QUALITY[checkpoint.step])
        tested = replace(
            request.checkpoint, name=f"run-step-{checkpoint.step}", digest=digest_of(["run", checkpoint.step])
        )
        run_suite(replace(request, checkpoint=tested, out=folder, role=role))
        outcome = read_outcome(folder, with_earlier_evaluations(folder, None, None))
        write_eval_report(outcome, folder)
        self.played.append((checkpoint.step, role.value))
        return outcome.decision.training_action, ("because",)

    def watch(self, evaluate=None, clock=None, **changes):
        plan = replace(self.plan, **changes)
        fields = {} if clock is None else {"clock": clock}
        watch = CheckpointWatch(plan, evaluate or self.evaluate, self.events.append, lambda seconds: None, **fields)
        return watch.run()


def test_each_checkpoint_is_evaluated_once_in_the_order_of_steps(tmp_path):
    run = Run(tmp_path)
    assert run.watch().n_evaluated == 3
    assert run.played == [(10, "dev"), (20, "dev"), (30, "dev")]
    assert run.watch().n_evaluated == 0, "the same command plays nothing twice"
    write_model(tmp_path / "run" / "checkpoint-50")
    run.watch()
    assert run.played[3:] == [(50, "dev")]
    lines = [json.loads(line) for line in (tmp_path / "out" / LOG).read_text().splitlines()]
    assert [(line["event"], line["step"]) for line in lines] == [("evaluated", step) for step in (10, 20, 30, 50)]
    assert lines[2]["score"]["n"] == 60 and lines[2]["value"] == 1.0


def test_a_subset_of_steps_is_evaluated_alone(tmp_path):
    run = Run(tmp_path, (10, 20, 30, 40))
    run.watch(every=20)
    run.watch(steps=frozenset({30}))
    assert run.played == [(20, "dev"), (40, "dev"), (30, "dev")]


def test_a_collapse_asks_training_to_pause_and_names_the_best_checkpoint(tmp_path):
    run = Run(tmp_path, (10, 20, 30, 40))
    assert run.watch().stops == 1
    request = json.loads((tmp_path / "out" / ACTION).read_text())
    assert (request["action"], request["step"], request["last_good_step"]) == ("pause", 40, 30)
    assert request["last_good"].endswith("checkpoint-30")
    assert [event["training_action"] for event in run.events] == ["continue"] * 3 + ["pause"]
    assert all(event["outcome"].startswith(f"{event['release_decision']}, ") for event in run.events)


def test_an_evaluation_that_was_killed_is_resumed_and_not_begun_again(tmp_path):
    run = Run(tmp_path)

    class Killed(BaseException):
        pass

    def dies_before_the_report(checkpoint, role, folder):
        if checkpoint.step == 20:
            request = make_request(tmp_path, BEST_GATE, new=QUALITY[20])
            tested = replace(request.checkpoint, name="run-step-20", digest=digest_of(["run", 20]))
            run_suite(replace(request, checkpoint=tested, out=folder, role=role))
            raise Killed
        return run.evaluate(checkpoint, role, folder)

    with pytest.raises(Killed):
        run.watch(dies_before_the_report)
    card = tmp_path / "out/step-20-dev/cards/checkpoint/sums-dev/card.json"
    before = card.read_bytes()
    run.watch()
    assert run.played == [(10, "dev"), (20, "dev"), (30, "dev")]
    assert card.read_bytes() == before, "its rollouts were kept"


def test_a_checkpoint_that_disappears_meanwhile_is_told_and_the_watch_goes_on(tmp_path):
    run = Run(tmp_path)

    def deletes(checkpoint, role, folder):
        if checkpoint.step == 20:
            shutil.rmtree(checkpoint.model)
            raise CheckpointError(f"{checkpoint.model}: the checkpoint does not exist")
        return run.evaluate(checkpoint, role, folder)

    result = run.watch(deletes)
    assert (result.n_evaluated, result.n_failed) == (2, 1)
    assert [(event["event"], event["step"]) for event in run.events] == [
        ("evaluated", 10),
        ("gone", 20),
        ("evaluated", 30),
    ]


def test_a_checkpoint_that_fails_again_and_again_is_given_up(tmp_path):
    run = Run(tmp_path, (10, 20))

    def fails(checkpoint, role, folder):
        if checkpoint.step == 10:
            raise CheckpointError("broken weights")
        return run.evaluate(checkpoint, role, folder)

    watch = CheckpointWatch(
        replace(run.plan, only_present=False, until=20), fails, run.events.append, lambda seconds: None
    )
    for _ in range(5):
        watch.look()
    assert [event["event"] for event in run.events].count("failed") == 3
    assert run.played == [(20, "dev")]


def test_nightly_is_played_once_a_day_and_at_the_end_and_the_best_is_the_candidate(tmp_path):
    run = Run(tmp_path, (10, 20))
    now = [1000.0]
    roles = (DEV, NIGHTLY, CANDIDATE)
    watch = CheckpointWatch(
        replace(run.plan, only_present=False, until=50, roles=roles), run.evaluate, run.events.append,
        lambda seconds: None, lambda: now[0],
    )  # fmt: skip
    (tmp_path / "out").mkdir()
    for _ in range(3):
        watch.look()
    assert run.played == [(10, "dev"), (20, "dev")], "a day has not passed"
    now[0] += 25 * 3600.0
    watch.look()
    assert run.played[2:] == [(20, "nightly")]
    for step in (30, 50):
        write_model(tmp_path / "run" / f"checkpoint-{step}")
    now[0] = (tmp_path / "out/step-20-nightly").stat().st_mtime + 60.0
    for _ in range(3):
        watch.look()
    watch.finish()
    assert run.played[3:] == [(30, "dev"), (50, "dev"), (50, "nightly"), (30, "candidate")]


def test_another_contract_in_the_folder_is_refused_and_a_rewritten_checkpoint_is_told(tmp_path):
    run = Run(tmp_path, (10,))
    run.watch()
    with pytest.raises(ConfigError, match=r"was evaluated under quiz_regression-v1\.0 with"):
        run.watch(suite_digest="0" * 64)
    file = tmp_path / "run/checkpoint-10/model.safetensors"
    file.write_bytes(file.read_bytes())
    run.watch()
    assert run.played == [(10, "dev")]
    assert run.events[-1]["event"] == "rewritten"


def test_two_watches_never_share_a_folder(tmp_path):
    run = Run(tmp_path, (10,))

    def watches_too(checkpoint, role, folder):
        with pytest.raises(ConfigError, match="another process watches into this folder"):
            run.watch()
        return run.evaluate(checkpoint, role, folder)

    run.watch(watches_too)
    assert run.played == [(10, "dev")]


def test_an_evaluation_of_a_checkpoint_that_changed_meanwhile_does_not_count(tmp_path):
    run = Run(tmp_path, (40,))
    file = tmp_path / "run/checkpoint-40/model.safetensors"

    def rewrites_once(checkpoint, role, folder):
        stops = run.evaluate(checkpoint, role, folder)
        if len(run.played) == 1:
            file.write_bytes(file.read_bytes() + b"0")
        return stops

    result = run.watch(rewrites_once)
    assert (result.n_evaluated, result.n_failed) == (0, 1) and run.events[-1]["event"] == "rewritten"
    assert not (tmp_path / "out/step-40-dev").exists() and not (tmp_path / "out" / ACTION).exists()
    assert (tmp_path / "out/.step-40-dev-rewritten-1/report.json").is_file()
    file.write_bytes(file.read_bytes()[:-1])
    assert run.watch().n_evaluated == 1 and run.events[-1]["event"] == "evaluated"


def test_a_checkpoint_that_gains_or_loses_files_meanwhile_counts(tmp_path):
    run = Run(tmp_path, (10,))

    def adds_and_deletes(checkpoint, role, folder):
        stops = run.evaluate(checkpoint, role, folder)
        (checkpoint.model / "optimizer.pt").write_bytes(b"0")
        (checkpoint.model / "model.safetensors").unlink()
        return stops

    assert run.watch(adds_and_deletes).n_evaluated == 1


@pytest.mark.parametrize("name", ["run", "out"])
def test_a_folder_that_is_removed_while_it_is_watched_is_named_in_one_line(tmp_path, name):
    run = Run(tmp_path, steps=(10, 20))

    def removes(checkpoint, role, folder):
        shutil.rmtree(tmp_path / name)
        return run.evaluate(checkpoint, role, folder)

    with pytest.raises(ConfigError, match=rf"{name}: the folder of the .* was removed while it was watched; start"):
        run.watch(removes, until=20, only_present=False)
