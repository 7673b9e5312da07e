import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Verdict
from agent2.arena.evidence import TypeScore
from builders import (
    DESIGN,
    SFT_SOURCE,
    make_evidence,
    make_gain,
    make_metrics,
    make_rejected,
    make_revision,
    make_score,
    make_submission,
)


def verdicts(**changes):
    return [criterion.verdict for criterion in analyse(make_evidence(**changes)).criteria]


def kind(name, base, final, n=400):
    return TypeScore(name, make_score(base, n) if base is not None else None, make_score(final, n))


def test_a_good_rl_trial_meets_the_four_that_are_measured():
    assert verdicts() == [*[Verdict.PASS] * 4, Verdict.UNKNOWN]
    fifth = analyse(make_evidence()).criteria[4]
    assert "not measured" in fifth.reason and "agent2 eval" in fifth.reason


@pytest.mark.parametrize(
    ("base", "final", "verdict"),
    [(0.3, 0.6, Verdict.PASS), (0.3, 0.33, Verdict.PARTIAL), (0.3, 0.2, Verdict.FAIL), (None, 0.6, Verdict.UNKNOWN)],
)
def test_generalisation_is_shown_on_kinds_that_training_had_no_row_of(base, final, verdict):
    by_type = [kind("sums", 0.3, 0.9), kind("products", base, final)]
    changes = {"by_type": by_type, "train_kinds": frozenset({"sums"})}
    assert verdicts(**changes)[3:] == [Verdict.PASS, verdict]
    assert verdicts(**changes | {"train_kinds": frozenset({"sums", "products"})})[4] is Verdict.UNKNOWN
    assert verdicts(**changes | {"train_kinds": None})[4] is Verdict.UNKNOWN, "which kinds were visible is not known"


def test_a_supervised_pipeline_designs_no_rl():
    changes = {
        "design": {**DESIGN, "algorithm": "SFT on the train split"},
        "revisions": [make_revision({"code/train.py": SFT_SOURCE})],
        "metrics": make_metrics("log.jsonl", [{"loss": 1.0}]),
    }
    assert verdicts(**changes) == [Verdict.FAIL, *[Verdict.PASS] * 3, Verdict.UNKNOWN]


def test_no_submission_improves_nothing_and_generalises_nothing():
    changes = {"submissions": [], "metrics": [], "processes": [], "revisions": [], "design": None}
    analysis = analyse(make_evidence(**changes))
    assert [c.verdict for c in analysis.criteria][3:] == [Verdict.FAIL, Verdict.FAIL]
    assert "no submission" in analysis.criteria[3].reason


@pytest.mark.parametrize(
    ("delta", "half_width", "improves"),
    [
        (0.10, 0.05, Verdict.PASS),
        (0.02, 0.05, Verdict.PARTIAL),
        (0.04, 0.05, Verdict.PARTIAL),
        (-0.10, 0.05, Verdict.FAIL),
    ],
)
def test_improvement_needs_more_than_noise_and_shows_no_generalisation(delta, half_width, improves):
    assert verdicts(gain=make_gain(delta, half_width))[3:] == [improves, Verdict.UNKNOWN]


def test_a_refused_submission_is_a_bug():
    submissions = [make_rejected(1, "pickle weights", at=50), make_submission(2, score=0.6)]
    assert verdicts(submissions=submissions)[1] is Verdict.FAIL


def test_a_failed_final_evaluation_leaves_the_gain_unknown():
    assert verdicts(gain=None, final_private=None)[3:] == [Verdict.UNKNOWN, Verdict.UNKNOWN]


def test_a_crash_is_a_bug_even_when_no_code_was_recorded():
    log = "Traceback (most recent call last):\n  File x\nNameError: y\n"
    changes = {"submissions": [], "revisions": [], "processes": [], "metrics": [], "agent_log_tail": log}
    assert verdicts(**changes)[1:3] == [Verdict.FAIL, Verdict.FAIL]
    assert verdicts(**{**changes, "agent_log_tail": ""})[1] is Verdict.UNKNOWN
