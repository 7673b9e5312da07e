"""A scorer that runs programs, in a real grading: the contained child plays, the grader scores outside of it."""

import shutil
import threading

import pytest

from agent2.arena.grader import evaluator
from agent2.arena.grader.evaluator import ChildEvaluator, EvaluatorProgram
from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome, EvaluationStopped
from agent2.benchmarks import load_benchmark
from agent2.cards.folder import load_card
from agent2.cards.reader import iter_rollouts, read_header, validate_card
from agent2.errors import Fault
from agent2.evaluation import runner
from agent2.evaluation.runner import played_beside
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from agent2.sandbox.spec import Mount
from agent2.scorers.python_tests import PythonTestsScorer
from agent2.stats.estimates import Estimate

pytestmark = pytest.mark.slow  # starts many sandboxes

MODULE = """
from agent2.environments import QuestionEnvironment
from agent2.records import Item, SamplingSettings, Split
from agent2.scorers.python_tests import PythonTestsScorer

PROGRAMS = {
    "double": "```python\\ndef double(x):\\n    return 2 * x\\n```",
    "half": "def half(x):\\n    return x",
    "loop": "while True: pass",
    "quit": "import os\\nprint('passed')\\nos._exit(0)",
}
TESTS = {
    "double": "assert double(4) == 8", "half": "assert half(4) == 2", "loop": "assert loop(1) == 1",
    "quit": "assert quit_(1) == 1",
}


class Functions:
    name, version, primary_metric, max_turns, attempts = "functions", "1", "pass_rate", 1, 1
    sampling = SamplingSettings()

    def items(self, split, n, secret):
        return [Item(name, split, f"write {name}", None, {"tests": [test]}) for name, test in list(TESTS.items())[:n]]

    def environment(self):
        return QuestionEnvironment()

    def environment_version(self):
        return "question-v1"

    def scorer(self):
        return PythonTestsScorer(timeout_s=3)
"""

CHILD = """
import sys
from agent2.arena.grader.job import answer_job
from agent2.arena.grader.job import EvaluationOutcome
from agent2.benchmarks import load_benchmark
from agent2.evaluation.runner import EvaluationPlan, evaluate, play_card
from agent2.evaluation.scoring import score_played
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.sources import ScriptedSampler
sys.path.insert(0, "/child")
from functions import PROGRAMS


def play(job):
    benchmark = load_benchmark(job.benchmark)
    info, base = inspect_checkpoint(job.checkpoint), inspect_checkpoint(job.base)
    plan = EvaluationPlan(benchmark, job.split, job.items, job.name, info.weights_digest, base.chat_template_digest,
                          "none", seed=job.seed)
    sampler = ScriptedSampler(lambda messages: PROGRAMS[messages[-1].content.split()[-1]])
    if not job.plays_only:
        evaluate(plan, sampler, job.card)  # a scorer that needs a sandbox, inside of one
        raise AssertionError("unreached")
    play_card(plan, sampler, job.card)
    return EvaluationOutcome(is_played=True, weights_digest=info.weights_digest)


answer_job(play)
"""


@pytest.fixture
def functions(tmp_path):
    """A benchmark from a file, which the grader and its child find by its path."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "functions.py").write_text(MODULE)
    (code / "child.py").write_text(CHILD)
    benchmark = load_benchmark(f"{code / 'functions.py'}:Functions")
    return benchmark, EvaluatorProgram(("python", "-P", "/child/child.py"), (Mount(code, "/child"),))


@pytest.fixture
def job(functions, base, tmp_path):
    items = functions[0].items(Split.TEST_PUBLIC, 4, None)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return EvaluationJob(
        checkpoint=base,
        base=base,
        name="submission-1",
        benchmark=f"{tmp_path / 'code' / 'functions.py'}:Functions",
        split=Split.TEST_PUBLIC,
        items=tuple(items),
        card=tmp_path / "submission" / "card",
        scratch=scratch,
        seed=0,
    )


def test_programs_are_scored_outside_the_child_and_no_hostile_one_passes(functions, job):
    outcome = ChildEvaluator(600.0, program=functions[1])(job, threading.Event())
    assert outcome.fault is None, outcome.reason + (job.card.parent / "card.log").read_text()[-2000:]
    assert (outcome.score.value, outcome.score.n, outcome.score.n_missing) == (0.25, 4, 0)
    assert outcome.weights_digest == inspect_checkpoint(job.checkpoint).weights_digest
    assert validate_card(job.card) == []
    scores = {r.rollout.item_id: r.score.value for r in iter_rollouts(job.card)}
    assert scores == {"double": 1.0, "half": 0.0, "loop": 0.0, "quit": 0.0}
    assert read_header(job.card).protocol.scorer == f"python_tests-v{PythonTestsScorer.version}"
    assert not played_beside(job.card).exists()
    assert sorted(entry.name for entry in job.card.parent.iterdir()) == ["card", "card.log"]


def test_inside_the_child_such_a_scorer_gives_no_score_at_all(functions, job, monkeypatch):
    monkeypatch.setattr(evaluator, "work_of", lambda scorer: runner.work_of(None))  # as if it were inline
    outcome = ChildEvaluator(600.0, program=functions[1])(job, threading.Event())
    assert (outcome.score, outcome.fault) == (None, Fault.INFRASTRUCTURE)


def test_a_grader_that_is_stopped_while_it_scores_does_not_play_again(functions, job, monkeypatch):
    stop = threading.Event()
    real = runner.score_card

    def stopping(*arguments, **named):
        threading.Timer(0.5, stop.set).start()  # while the programs run: one of them loops until its time is up
        return real(*arguments, **named)

    monkeypatch.setattr(runner, "score_card", stopping)
    with pytest.raises(EvaluationStopped):
        ChildEvaluator(600.0, program=functions[1])(job, stop)
    assert load_card(played_beside(job.card)).state == "closed" and load_card(job.card).state == "open"
    monkeypatch.setattr(runner, "score_card", real)
    shutil.rmtree(job.scratch)
    job.scratch.mkdir()
    nobody = EvaluatorProgram(("python", "-c", "raise SystemExit(9)"))
    outcome = ChildEvaluator(600.0, program=nobody)(job, threading.Event())
    assert (outcome.score.value, outcome.score.n) == (0.25, 4)


def test_a_stage_that_overruns_the_evaluations_time_is_no_score(functions, job, monkeypatch):
    monkeypatch.setattr(evaluator, "Until", lambda stop, ends_at: runner_until(stop))
    outcome = ChildEvaluator(600.0, program=functions[1])(job, threading.Event())
    assert (outcome.score, outcome.fault, outcome.is_resumable) == (None, Fault.INFRASTRUCTURE, True)
    assert "could not be scored in the time" in outcome.reason


def runner_until(stop):
    from agent2.evaluation.scoring import Until

    return Until(stop, 0.0)


SCORES_ITSELF = """
import sys
sys.path.insert(0, "/child")
from dataclasses import replace
import functions
from agent2.records import Score
from agent2.evaluation import runner
runner.PENDING = Score(1.0, "all is well")
exec(open("/child/child.py").read())
"""


def test_verdicts_that_a_child_writes_by_itself_count_for_nothing(functions, job, tmp_path):
    (tmp_path / "code" / "liar.py").write_text(SCORES_ITSELF)
    program = EvaluatorProgram(("python", "-P", "/child/liar.py"), functions[1].mounts)
    outcome = ChildEvaluator(600.0, program=program)(job, threading.Event())
    assert (outcome.score.value, outcome.score.n_missing) == (0.25, 0)


def test_a_child_that_only_plays_what_it_should_score_gives_no_score(functions, job, monkeypatch):
    monkeypatch.setattr(evaluator, "work_of", lambda scorer: runner.work_of(None))  # as if it were inline
    lazy = job.card.parents[1] / "code" / "lazy.py"
    lazy.write_text((lazy.parent / "child.py").read_text().replace("if not job.plays_only:", "if False:"))
    program = EvaluatorProgram(("python", "-P", "/child/lazy.py"), functions[1].mounts)
    outcome = ChildEvaluator(600.0, program=program)(job, threading.Event())
    assert (outcome.score, outcome.fault) == (None, Fault.INFRASTRUCTURE)
    assert "something else than it was asked" in outcome.reason


def test_an_outcome_is_one_of_score_fault_and_played():
    digest = "d" * 64
    assert EvaluationOutcome(is_played=True, weights_digest=digest).score is None
    for wrong in (
        {"is_played": True, "fault": Fault.MODEL},
        {"score": Estimate(1.0, 1.0, 1.0, 8), "is_played": True},
        {},
    ):
        with pytest.raises(ValueError, match="outcome"):
            EvaluationOutcome(weights_digest=digest, **wrong)
