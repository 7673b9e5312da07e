import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Verdict
from builders import (
    DESIGN,
    SFT_SOURCE,
    make_evidence,
    make_gain,
    make_metrics,
    make_rejected,
    make_revision,
    make_submission,
)


def verdicts(**changes):
    return [criterion.verdict for criterion in analyse(make_evidence(**changes)).criteria]


def test_a_good_rl_trial_meets_all_five():
    assert verdicts() == [Verdict.PASS] * 5


def test_a_supervised_pipeline_designs_no_rl():
    changes = {
        "design": {**DESIGN, "algorithm": "SFT on the train split"},
        "revisions": [make_revision({"code/train.py": SFT_SOURCE})],
        "metrics": make_metrics("log.jsonl", [{"loss": 1.0}]),
    }
    assert verdicts(**changes) == [Verdict.FAIL, *[Verdict.PASS] * 4]


def test_no_submission_improves_nothing_and_generalises_nothing():
    changes = {"submissions": [], "metrics": [], "processes": [], "revisions": [], "design": None}
    analysis = analyse(make_evidence(**changes))
    assert [c.verdict for c in analysis.criteria][3:] == [Verdict.FAIL, Verdict.FAIL]
    assert "no submission" in analysis.criteria[3].reason


@pytest.mark.parametrize(
    ("delta", "half_width", "improves", "generalises"),
    [
        (0.10, 0.05, Verdict.PASS, Verdict.PASS),
        (0.02, 0.05, Verdict.PARTIAL, Verdict.PARTIAL),
        (0.04, 0.05, Verdict.PARTIAL, Verdict.PARTIAL),
        (-0.10, 0.05, Verdict.FAIL, Verdict.FAIL),
    ],
)
def test_improvement_needs_more_than_noise_and_generalisation_an_interval_above_zero(
    delta, half_width, improves, generalises
):
    assert verdicts(gain=make_gain(delta, half_width))[3:] == [improves, generalises]


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
