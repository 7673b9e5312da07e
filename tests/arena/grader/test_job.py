import json

import pytest
from pydantic import ValidationError

from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome, outcome_of
from agent2.cards.aggregate import summarize
from agent2.cards.card import ReportingRule
from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Score, ScoredRollout, Split, Usage
from agent2.stats.estimates import Estimate


def scored(item_id: str, value: float | None, fault: Fault | None = None) -> ScoredRollout:
    status = RolloutStatus.COMPLETED if fault is None else RolloutStatus.FAILED
    rollout = Rollout(item_id, 0, 1, status, (), (), None, {}, Usage(), fault, "")
    return ScoredRollout(rollout, Score(value, "because", fault if value is None else None))


def outcome(*rollouts: ScoredRollout, max_missing: int = 0) -> EvaluationOutcome:
    return outcome_of(summarize(rollouts, ReportingRule()), "d" * 64, max_missing)


def test_a_full_card_is_a_score_with_its_interval():
    result = outcome(scored("a", 1.0), scored("b", 0.0))
    assert result.fault is None and result.score is not None
    assert (result.score.value, result.score.n, result.score.n_missing, result.score.method) == (0.5, 2, 0, "Wilson")
    assert 0 < result.score.low < 0.5 < result.score.high < 1


def test_all_wrong_is_a_zero_and_all_missing_is_a_fault():
    assert outcome(scored("a", 0.0)).score.value == 0.0
    lost = outcome(scored("a", None, Fault.INFRASTRUCTURE), max_missing=5)
    assert lost.score is None and lost.fault is Fault.INFRASTRUCTURE


def test_more_missing_than_allowed_is_the_fault_of_the_commonest_kind():
    rollouts = [
        scored("a", 1.0),
        scored("b", None, Fault.JUDGE),
        scored("c", None, Fault.JUDGE),
        scored("d", None, Fault.ENVIRONMENT),
    ]
    result = outcome(*rollouts, max_missing=2)
    assert result.score is None and result.fault is Fault.JUDGE
    assert "3 of 4 answers could not be scored" in result.reason and "at most 2 may be missing" in result.reason
    allowed = outcome(*rollouts, max_missing=3)
    assert (allowed.score.value, allowed.score.n, allowed.score.n_missing) == (1.0, 1, 3)


def test_a_broken_models_zeros_are_no_missing_scores():
    result = outcome(scored("a", 1.0), scored("b", 0.0, Fault.MODEL))
    assert (result.score.value, result.score.n_missing) == (0.5, 0)


SCORE = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8, "n_missing": 0, "method": "Wilson"}
DIGEST = "d" * 64


@pytest.mark.parametrize(
    "fields",
    [{}, {"weights_digest": DIGEST}, {"score": SCORE}, {"score": SCORE, "weights_digest": DIGEST, "fault": "model"}],
)
def test_an_outcome_is_a_score_or_a_fault(fields):
    with pytest.raises(ValidationError, match="an outcome is a score or a fault"):
        EvaluationOutcome.model_validate(fields)


def test_a_score_and_its_method_survive_the_way_from_the_child():
    outcome = EvaluationOutcome(score=Estimate(**SCORE), weights_digest=DIGEST)
    assert EvaluationOutcome.model_validate_json(outcome.model_dump_json()).score == Estimate(**SCORE)


def test_a_job_survives_the_way_to_the_child(tmp_path):
    items = (Item("i1", Split.TEST_PUBLIC, "1 + 1", "2", {"nested": {"list": [1, 2]}}), Item("i2", Split.DEV, "?"))
    job = EvaluationJob(
        checkpoint=tmp_path,
        base=tmp_path,
        name="n",
        benchmark="arithmetic",
        split=Split.TEST_PUBLIC,
        items=items,
        card=tmp_path,
        scratch=tmp_path,
        seed=2**62,
    )
    again = EvaluationJob.model_validate_json(job.model_dump_json())
    assert again == job and again.items == items


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("value", "NaN"),
        ("low", "NaN"),
        ("low", "-1e400"),
        ("high", "1e400"),
        ("high", "Infinity"),
        ("low", "0.9"),
        ("low", "-5"),
        ("value", "-5"),
        ("n", "-5"),
        ("n", "1" + "0" * 400),
        ("n_missing", "-1"),
        ("low", "null"),
        ("method", '"' + "x" * 10_000 + '"'),
        ("weights_digest", '"' + "x" * 64 + '"'),
        ("weights_digest", '"' + "d" * 65 + '"'),
    ],
)
def test_what_no_evaluation_can_return_is_refused(name, text):
    score = {key: json.dumps(value) for key, value in SCORE.items()}
    fields = {"score": as_json(score), "weights_digest": f'"{DIGEST}"'}
    assert EvaluationOutcome.model_validate_json(as_json(fields)).score.value == 0.5
    wrong = {name: text} if name in fields else {"score": as_json({**score, name: text})}
    with pytest.raises(ValidationError):
        EvaluationOutcome.model_validate_json(as_json({**fields, **wrong}))


def as_json(fields: dict[str, str]) -> str:
    return "{" + ",".join(f'"{key}":{text}' for key, text in fields.items()) + "}"


def test_a_long_reason_is_cut():
    assert len(EvaluationOutcome(fault=Fault.MODEL, reason="x" * 10**6).reason) == 4_000
