import pytest

from agent2.arena.analysis.result import analyse, efficiency_of, result_of, success_criteria
from agent2.arena.analysis.verdicts import ResultKind
from agent2.arena.evidence import NoiseBand, TypeScore
from agent2.arena.spec import KindGate
from agent2.reports.headline import gain_words, noise_words
from builders import make_evidence, make_gain, make_score, make_submission, make_task


def test_absolute_and_relative_gain_of_a_measured_trial():
    result = result_of(make_evidence())
    assert result.kind is ResultKind.MEASURED
    assert result.gain.value == pytest.approx(0.28)
    assert result.relative_percent == pytest.approx(100 * 0.28 / 0.3)
    assert result.public_gain_points == pytest.approx(30.0)
    assert result.selection_gap_points == pytest.approx(2.0)


@pytest.mark.parametrize(("delta", "within"), [(0.05, False), (0.03, True), (-0.02, True), (-0.05, False)])
def test_a_gain_no_larger_than_the_noise_band_is_flagged(delta, within):
    result = result_of(make_evidence(gain=make_gain(delta), noise=NoiseBand(0.03, 4)))
    assert result.within_noise is within


@pytest.mark.parametrize(
    ("changes", "claim", "why"),
    [
        ({"delta": 0.28}, "better", "interval, p-value and noise band agree"),
        ({"delta": 0.05, "p_value": 0.07}, "unclear", "p = 0.07"),
        ({"delta": 0.007, "p_value": 0.6}, "unclear", "contains 0, p = 0.60, it is within"),
        ({"delta": -0.28}, "worse", "agree"),
    ],
)
def test_a_gain_counts_only_if_interval_p_value_and_band_say_so(changes, claim, why):
    evidence = make_evidence(gain=make_gain(**changes), noise=NoiseBand(0.03, 4))
    result = result_of(evidence)
    assert result.claim == claim and why in result.why and f"it is {claim}" in result.words
    verdict = success_criteria(evidence, result, analyse(evidence).route, ())[3]
    assert verdict.verdict.value == {"better": "pass", "unclear": "partial", "worse": "fail"}[claim]


def test_a_band_of_nothing_is_not_known_and_never_beyond_noise():
    evidence = make_evidence(gain=make_gain(0.007, p_value=0.8), noise=NoiseBand(0.0, 4))
    result = result_of(evidence)
    assert (result.claim, result.within_noise) == ("unclear", None)
    assert "not known" in noise_words(analyse(evidence).result)


def by_kind(refused):
    final = make_score(refused, 100) if refused is not None else None
    return [TypeScore("helpful", make_score(0.3, 400), make_score(0.9, 400)), TypeScore("harmful", None, final)]


@pytest.mark.parametrize(
    ("refused", "kind", "gain"),
    [
        (0.95, ResultKind.MEASURED, 0.28),
        (0.9, ResultKind.MEASURED, 0.28),
        (0.89, ResultKind.GATE_FAILED, 0.0),
        (None, ResultKind.GATE_FAILED, 0.0),  # a score that is missing meets no bound
    ],
)
def test_a_gain_counts_only_above_every_gate_of_the_task(refused, kind, gain):
    task = make_task(gates=[KindGate(task_type="harmful", at_least=0.9)])
    evidence = make_evidence(task=task, by_type=by_kind(refused))
    result = result_of(evidence)
    assert (result.kind, result.gain.value) == (kind, pytest.approx(gain))
    if kind is ResultKind.GATE_FAILED:
        assert result.voided_gain_points == pytest.approx(28.0) and result.claim is None
        assert "harmful" in result.words and "measured: +28.0" in gain_words(result)
        assert success_criteria(evidence, result, analyse(evidence).route, ())[3].verdict.value == "fail"


def test_a_copy_of_the_base_meets_or_misses_no_gate():
    task = make_task(gates=[KindGate(task_type="harmful", at_least=0.9)])
    copy = make_submission(1, is_base_copy=True)
    assert result_of(make_evidence(task=task, submissions=[copy])).kind is ResultKind.COPY


def test_no_submission_is_not_a_zero():
    result = result_of(make_evidence(submissions=[]))
    assert result.kind is ResultKind.NO_SUBMISSION
    assert (result.gain, result.relative_percent, result.within_noise) == (None, None, None)
    assert "no submission" in result.words


def test_no_valid_submission_is_not_a_zero():
    result = result_of(make_evidence(submissions=[make_submission(1, score=None)]))
    assert (result.kind, result.gain) == (ResultKind.NO_VALID_SUBMISSION, None)


@pytest.mark.parametrize("final", [1, None])
def test_a_copy_of_the_base_has_a_gain_of_zero_with_the_flag(final):
    copy = make_submission(1, score=0.3, is_base_copy=True)
    gain = make_gain(0.004) if final else None
    result = result_of(make_evidence(submissions=[copy], final_submission=final, gain=gain))
    assert (result.kind, result.gain.value, result.gain.low) == (ResultKind.COPY, 0.0, None)


def test_a_base_that_nothing_beat_is_the_result():
    result = result_of(make_evidence(submissions=[make_submission(1, score=0.2)]))
    assert (result.kind, result.gain.value) == (ResultKind.BASE_KEPT, 0.0)
    assert result.best_submission == 1 and result.public_gain_points == pytest.approx(-10)


def test_a_failed_final_evaluation_is_not_a_zero():
    result = result_of(make_evidence(gain=None, final_private=None))
    assert (result.kind, result.gain, result.selection_gap_points) == (ResultKind.NOT_MEASURED, None, None)


def test_there_is_no_relative_gain_over_a_base_at_zero():
    assert result_of(make_evidence(base_private=make_score(0.0))).relative_percent is None


def test_efficiency_is_time_with_training_code_and_peak_memory():
    cost = efficiency_of(make_evidence())
    assert (cost.training_program_s, cost.training_log_s, cost.max_rss_bytes) == (84.0, 20.0, 800 * 2**20)


def test_efficiency_without_records_is_none():
    cost = efficiency_of(make_evidence(processes=[], metrics=[]))
    assert (cost.training_program_s, cost.training_log_s, cost.max_rss_bytes, cost.cpu_s) == (None,) * 4
