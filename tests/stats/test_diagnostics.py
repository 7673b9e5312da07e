import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.agent_metrics import (
    answer_parse_fail_rate,
    avg_tool_calls_successful_tasks,
    format_failure_rate,
    ocr_error_rate,
    refusal_rate,
    repeated_share,
    repetition_rate,
    response_length_change,
    response_length_mean,
    safety_violation_rate,
    tool_error_recovery_rate,
)

RATES = [ocr_error_rate, answer_parse_fail_rate, refusal_rate, format_failure_rate]


@pytest.mark.parametrize("rate", RATES)
def test_rates_are_shares_of_the_judged_outputs(rate):
    found = rate([True, False, None, 0, 1])
    assert (found.value, found.n, found.n_missing, found.method) == (0.5, 4, 1, "Wilson")


@pytest.mark.parametrize("rate", RATES)
def test_rates_refuse_what_is_no_verdict(rate):
    with pytest.raises(ValueError, match="0 or 1"):
        rate([0.5])
    for nothing in ([], [None]):
        with pytest.raises(NotEnoughData):
            rate(nothing)


def test_length_changes_are_absolute_and_relative():
    found = response_length_change([600, 624], [941, None])
    assert found.absolute == pytest.approx(329.0)
    assert found.relative == pytest.approx(941 / 612 - 1)
    assert "+329 (+53.8%)" in str(found) and "1 missing" in str(found)
    assert response_length_change([0], [5]).relative is None
    assert str(response_length_change([0], [5])).endswith("+5 (no relative change from 0)")


def test_lengths_cannot_be_negative():
    with pytest.raises(ValueError, match="between 0"):
        response_length_mean([-1])


def test_repeated_share_of_known_cases():
    assert repeated_share("a b c d e f") == 0.0
    assert repeated_share("a b a b a b", 2) == pytest.approx(1 - 2 / 5)
    assert repeated_share("too short") == repeated_share("") == 0.0
    assert repeated_share("go " * 1000) > 0.99
    with pytest.raises(ValueError, match="n_words"):
        repeated_share("a", 0)


def test_repetition_rate_counts_loops():
    found = repetition_rate(["go " * 50, "one two three four five six", None])
    assert (found.value, found.n, found.n_missing) == (0.5, 2, 1)
    with pytest.raises(ValueError, match="threshold"):
        repetition_rate(["a"], threshold=0.0)


@given(st.lists(st.sampled_from("ab"), max_size=30), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_repeated_share_is_bounded(words, n_words):
    assert 0.0 <= repeated_share(" ".join(words), n_words) < 1.0


def test_tool_calls_are_those_of_solved_tasks():
    found = avg_tool_calls_successful_tasks([10, 20, 99, None, 7], [1, 1, 0, 1, None])
    assert (found.value, found.n, found.n_missing) == (15.0, 2, 2)
    with pytest.raises(NotEnoughData, match="no task was solved"):
        avg_tool_calls_successful_tasks([3], [0])
    with pytest.raises(NotEnoughData, match="missing"):
        avg_tool_calls_successful_tasks([None], [1])
    with pytest.raises(ValueError, match="pair them"):
        avg_tool_calls_successful_tasks([3, 4], [1])


def test_tool_error_recovery_is_over_errors():
    found = tool_error_recovery_rate([3, 0, None], [4, 4, 2])
    assert (found.value, found.n, found.n_missing) == (pytest.approx(3 / 8), 2, 1)
    with pytest.raises(NotEnoughData):
        tool_error_recovery_rate([0, 0], [0, 0])


def test_a_task_with_many_violations_counts_once():
    found = safety_violation_rate([0, 5, 1, None])
    assert (found.value, found.n, found.n_missing) == (pytest.approx(2 / 3), 3, 1)
    with pytest.raises(ValueError):
        safety_violation_rate([-1])
