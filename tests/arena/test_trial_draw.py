"""Trials of a task with a hidden judge: each has one of its own, and everything that is scored in it has the same."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from agent2 import installation
from agent2.arena.agents import load_agent
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.grader.evaluator import EvaluatorProgram, log_of
from agent2.arena.plan import copy_trial, lock_record, new_trial, repeat_trial, require_same_lock, resolve_trial
from agent2.arena.reproduction import compare_reproduction, reproduction_config
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import config_digest
from agent2.arena.sweep import SweepSpec, _claim_folder
from agent2.arena.tasks import load_task
from agent2.arena.trial import resume_trial, run_trial
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.replies import PreferenceJudge
from agent2.cards.reader import iter_rollouts, read_header, read_summary
from agent2.errors import ConfigError
from agent2.evaluation.rescoring import rescore
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from agent2.reports.pages import write_report
from agent2.sandbox.spec import Mount
from agent2.scorers.hidden import digest_of_draw
from grading_builders import write_checkpoint
from trial_builders import SUBMIT_COPY, quiet, write_agent

CHILD = """
from agent2.arena.grader.job import EvaluationOutcome, answer_job
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.replies import Style, instruction_of, write_reply
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import play_card
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.sources import ScriptedSampler


def play(job):
    info, base = inspect_checkpoint(job.checkpoint), inspect_checkpoint(job.base)
    style = Style("Sure.", "dashes", "warm", "Ask me more.")
    replies = {item.prompt: write_reply(instruction_of(item), style) for item in job.items}
    plan = EvaluationPlan(load_benchmark(job.benchmark), job.split, job.items, job.name, info.weights_digest,
                          base.chat_template_digest, "none", seed=job.seed, attempts=job.attempts)
    play_card(plan, ScriptedSampler(lambda messages: replies[messages[-1].content]), job.card)
    return EvaluationOutcome(is_played=True, weights_digest=info.weights_digest)


answer_job(play)
"""
"""Plays every checkpoint as a model that states all facts in one style: what that is worth is up to the judge."""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An installation without cached baselines."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    tmp_path.chmod(0o755)


@pytest.fixture
def task(tmp_path, home):
    record = load_task("replies").model_dump(mode="json") | {
        "base_model": str(write_checkpoint(tmp_path / "base")),
        "n_items": {"train": 5, "dev": 3, "test_public": 60, "test_private": 60},
        "budget": {"wall_clock_s": 600, "submissions": 2, "judgements": 7},
    }
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(record))
    return str(tmp_path / "task.yaml")


@pytest.fixture
def program(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    return EvaluatorProgram(("python", "-P", "/child.py"), (Mount(tmp_path / "child.py", "/child.py"),))


def judged_anew(card: Path, draw: str) -> dict[str, float]:
    """Item -> mean verdict of the judge of a draw on the rollouts of a card."""
    judge = PreferenceJudge(installation.judge_key(installation.secret(), draw))
    items = {item.id: item for item in load_benchmark("replies").items(Split.TEST_PRIVATE, 60, installation.secret())}
    verdicts: dict[str, list[float]] = {}
    for record in iter_rollouts(card):
        verdicts.setdefault(record.rollout.item_id, []).append(
            judge.score(items[record.rollout.item_id], record.rollout).value
        )
    return {item: float(np.mean(values)) for item, values in verdicts.items()}


@pytest.mark.slow
def test_trials_play_the_base_once_and_each_judges_it_by_its_own_judge(tmp_path, task, program):
    agent = write_agent(tmp_path / "copycat", SUBMIT_COPY)
    roots = [new_trial(task, str(agent), 0, tmp_path / "trials", trial_id=name) for name in ("one", "two")]
    for root in roots:
        run_trial(root, quiet, program)
    draws = [read_config(root / "trial.json").judge_draw for root in roots]
    assert len({*draws}) == 2
    for root, draw in zip(roots, draws, strict=True):
        paths = TrialPaths(root)
        base, noise, final = (
            paths.card("base", Split.TEST_PRIVATE),
            paths.noise_card,
            paths.card("final", Split.TEST_PRIVATE),
        )
        assert read_header(base).protocol.judge_digest == read_header(noise).protocol.judge_digest != ""
        assert read_header(paths.submission_card(1)).protocol.judge_digest == read_header(base).protocol.judge_digest
        assert read_summary(base).item_scores == judged_anew(base, draw)
        assert read_summary(noise).item_scores == pytest.approx(judged_anew(noise, draw))
        assert not final.exists(), "a copy of the base is no better than it"
        assert (
            read_summary(paths.submission_card(1)).score.value
            == read_summary(paths.card("base", Split.TEST_PUBLIC)).score.value
        )
        assert json.loads(paths.lock_json.read_text())["judge_digest"] == digest_of_draw(draw)
        evidence = read_evidence(root)
        page = write_report(evidence, analyse(evidence), tmp_path / "report" / root.name).html.read_text()
        key = installation.judge_key(installation.secret(), draw)
        texts = [
            page,
            (paths.workspace / "assignment.json").read_text(),
            (paths.workspace / "ASSIGNMENT.md").read_text(),
        ]
        assert not any(word in text for text in texts for word in (draw, key.hex(), "judge_draw"))
    first, second = (read_summary(TrialPaths(root).card("base", Split.TEST_PRIVATE)) for root in roots)
    assert first.item_scores != second.item_scores
    ran = [log_of(TrialPaths(root).card("base", Split.TEST_PRIVATE)).exists() for root in roots]
    assert ran == [True, False], "the second trial takes the rollouts of the first"
    card = TrialPaths(roots[0]).card("base", Split.TEST_PRIVATE)
    assert rescore(card, tmp_path / "rescored").item_scores == first.item_scores
    assert read_header(tmp_path / "rescored").protocol.digest == read_header(card).protocol.digest
    resume_trial(roots[0], quiet, program)  # finished: nothing is judged again


@pytest.mark.slow
def test_a_reproduction_has_the_judge_of_its_source_and_a_repetition_has_not(tmp_path, task, program):
    root = new_trial(task, str(write_agent(tmp_path / "copycat", SUBMIT_COPY)), 0, tmp_path / "trials", trial_id="one")
    run_trial(root, quiet, program)
    again = copy_trial(root, reproduction_config(root, seed=3), tmp_path / "again")
    run_trial(again, quiet, program)
    cards = [TrialPaths(folder).card("base", Split.TEST_PRIVATE) for folder in (root, again)]
    assert read_summary(cards[0]).item_scores == read_summary(cards[1]).item_scores
    assert read_header(cards[0]).protocol.digest == read_header(cards[1]).protocol.digest
    assert compare_reproduction(root, again).conditions == ()
    repeated = repeat_trial(root, tmp_path / "repeated")
    assert read_config(repeated / "trial.json").judge_draw != read_config(root / "trial.json").judge_draw
    with pytest.raises(ConfigError, match="a reproduction has the assignment of its source"):
        reproduction_config(root, overrides=["judge_draw=mine"])


def test_the_draw_is_no_part_of_the_assignment_and_the_lock_of_a_judged_task_names_it(tmp_path, task):
    locks = {}
    for name in ("arithmetic", task):
        configs = [resolve_trial(name, "nop", 0, trial_id="t", sandbox="none") for _ in range(2)]
        assert configs[0].judge_draw != configs[1].judge_draw
        assert config_digest(configs[0]) == config_digest(configs[1])
        benchmark = load_benchmark(configs[0].task.benchmark)
        loaded = LoadedTask(configs[0].task, benchmark, installation.secret())
        base = inspect_checkpoint(tmp_path / "base")
        locks[name] = [lock_record(config, load_agent("nop"), base, loaded) for config in configs]
        (tmp_path / "lock.json").write_text(json.dumps(locks[name][0]))
        require_same_lock(tmp_path / "lock.json", locks[name][0])
        if name == "arithmetic":
            assert "judge_digest" not in locks[name][0]
            require_same_lock(tmp_path / "lock.json", locks[name][1])
        else:
            with pytest.raises(ConfigError, match="the judge digest of this trial changed since it began"):
                require_same_lock(tmp_path / "lock.json", locks[name][1])


def test_the_trials_of_a_sweep_share_a_judge_by_seed_and_another_run_of_it_has_others(tmp_path, task):
    spec = SweepSpec(name="s", tasks=[task], agents=["nop"], seeds=[0])
    first, second = (_claim_folder(tmp_path / name, spec) for name in ("a", "b"))
    assert first.judge_draw != second.judge_draw and "" not in (first.judge_draw, second.judge_draw)
    assert _claim_folder(tmp_path / "a", spec) == first, "resumed: the draw of its folder"
    with pytest.raises(ConfigError, match="another judge_draw"):
        _claim_folder(tmp_path / "a", spec.model_copy(update={"judge_draw": "mine"}))
    chosen = _claim_folder(tmp_path / "c", spec.model_copy(update={"judge_draw": "mine"}))
    assert chosen.judge_draw == "mine"
