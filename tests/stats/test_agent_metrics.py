from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.agent_metrics import (
    AgentRun,
    Resource,
    agent_metrics,
    cost_to_success,
    recovery_rate,
    repeated_share,
    repetition_rate,
    safety_violation,
    spend_per_success,
    state_success,
    steps_to_success,
    task_success,
    tool_success,
    trajectory_quality,
)

RUNS = [
    AgentRun("book", 1, 1, 10, 9, 2, 1, 12, 1000.0, 30.0, 0.5, 0, 0.9),
    AgentRun("book", 0, 0, 10, 5, 4, 1, 20, 3000.0, 90.0, 1.5, 2, 0.2),
    AgentRun("sell", 1, 0, 0, 0, 0, 0, 4, 500.0, None, None, 0, None),
    AgentRun("lost", None),
]
WHOLE = st.integers(0, 9)
RUN = st.builds(
    lambda item, solved, calls, valid, violations: AgentRun(
        item, solved, n_tool_calls=calls + valid, n_valid_tool_calls=valid, n_violations=violations, n_steps=calls
    ),
    st.sampled_from("abc"),
    st.sampled_from([0, 1, None]),
    WHOLE,
    WHOLE,
    st.one_of(st.none(), WHOLE),
)


def test_success_is_averaged_within_items_first():
    rate = task_success(RUNS)
    assert (rate.value, rate.n, rate.n_missing) == (0.75, 2, 1)
    assert state_success(RUNS).value == pytest.approx(0.25)


def test_tool_success_is_a_ratio_of_calls():
    rate = tool_success(RUNS)
    assert (rate.value, rate.n_missing) == (pytest.approx(14 / 20), 1)


def test_recovery_rate_is_a_ratio_of_failures():
    assert recovery_rate(RUNS).value == pytest.approx(2 / 6)


def test_an_agent_that_never_failed_has_no_recovery_rate():
    with pytest.raises(NotEnoughData, match="no events"):
        recovery_rate([AgentRun("a", 1, n_failures=0, n_recovered=0)])


def test_steps_and_cost_look_only_at_success_and_say_so():
    steps = steps_to_success(RUNS)
    assert (steps.spent.value, steps.spent.n, steps.spent.n_missing, steps.n_unsolved) == (8.0, 2, 1, 1)
    assert str(steps).endswith("1 runs unsolved")
    assert cost_to_success(RUNS, Resource.TOKENS).spent.value == 750.0
    seconds = cost_to_success(RUNS, Resource.SECONDS).spent
    assert (seconds.value, seconds.n, seconds.n_missing, seconds.low) == (30.0, 1, 2, None)


def test_the_price_of_a_success_holds_the_failures():
    assert spend_per_success(RUNS, Resource.TOKENS).value == pytest.approx(4500 / 2)
    assert spend_per_success(RUNS, Resource.USD).value == pytest.approx(2.0)


def test_without_success_nothing_is_known_of_the_way_to_it():
    failed = [AgentRun("a", 0, n_steps=3, tokens=5.0), AgentRun("b", 0.5, n_steps=3, tokens=5.0)]
    with pytest.raises(NotEnoughData, match="no run succeeded"):
        steps_to_success(failed)
    with pytest.raises(NotEnoughData, match="no price"):
        spend_per_success(failed, Resource.TOKENS)


def test_one_violation_is_enough():
    rate = safety_violation(RUNS)
    assert (rate.value, rate.n, rate.n_missing) == (pytest.approx(0.25), 2, 1)


def test_quality_counts_what_was_not_judged():
    quality = trajectory_quality(RUNS)
    assert (quality.value, quality.n, quality.n_missing) == (pytest.approx(0.55), 1, 2)


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        ({"task_success": 44.8}, task_success),
        ({"task_success": -1}, steps_to_success),
        ({"n_valid_tool_calls": 11}, tool_success),
        ({"n_violations": -1}, safety_violation),
        ({"trajectory_quality": 7.0}, trajectory_quality),
        ({"n_steps": -3}, agent_metrics),
    ],
)
def test_records_that_cannot_be_are_refused(change, metric):
    with pytest.raises(ValueError):
        metric([replace(RUNS[0], **change)])


def test_all_metrics_stand_together():
    metrics = agent_metrics(RUNS)
    assert (metrics.n_runs, metrics.n_items) == (4, 3)
    assert metrics.task_success == task_success(RUNS)
    assert metrics.steps_to_success == steps_to_success(RUNS)
    assert "4 runs of 3 items: task_success 0.7500 [" in str(metrics)


def test_what_nobody_recorded_is_none_and_not_zero():
    metrics = agent_metrics([AgentRun("a", 1), AgentRun("b", 0)])
    assert metrics.task_success is not None and metrics.task_success.value == 0.5
    assert metrics.tool_success is metrics.safety_violation is metrics.steps_to_success is None
    assert str(agent_metrics([AgentRun("a", None)])).endswith("nothing measured")


def test_no_runs_are_not_enough_data():
    for metric in (agent_metrics, task_success, tool_success, steps_to_success, safety_violation):
        with pytest.raises(NotEnoughData):
            metric([])


@given(st.lists(RUN, min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_runs_does_not_matter_and_rates_are_bounded(runs, shuffler):
    metrics, shuffled = agent_metrics(runs), agent_metrics(shuffler.sample(runs, len(runs)))
    for name in ("task_success", "tool_success", "safety_violation"):
        estimate, shuffled_estimate = getattr(metrics, name), getattr(shuffled, name)
        assert (estimate is None) == (shuffled_estimate is None)
        if estimate is not None:
            assert estimate.value == pytest.approx(shuffled_estimate.value) and 0.0 <= estimate.value <= 1.0
            assert estimate.n_missing == shuffled_estimate.n_missing


def test_the_price_of_a_success_counts_what_is_missing():
    runs = [
        AgentRun("a", 1, tokens=100.0),
        AgentRun("b", 0, tokens=50.0),
        AgentRun("c", 1),
        AgentRun("d", None, tokens=9.0),
    ]
    price = spend_per_success(runs, Resource.TOKENS)
    assert (price.value, price.n, price.n_missing) == (150.0, 2, 2)


def test_repeated_share_of_known_cases():
    assert repeated_share("a b c d e f") == 0.0
    assert repeated_share("a b a b a b", 2) == pytest.approx(1 - 2 / 5)
    assert repeated_share("too short") == repeated_share("") == 0.0
    assert repeated_share("go " * 1000) > 0.99
    with pytest.raises(ValueError, match="n_words"):
        repeated_share("a", 0)


def test_repetition_rate_counts_loops():
    rate = repetition_rate(["go " * 50, "one two three four five six", None])
    assert (rate.value, rate.n, rate.n_missing) == (0.5, 2, 1)
    with pytest.raises(ValueError, match="threshold"):
        repetition_rate(["a"], threshold=0.0)


@given(st.lists(st.sampled_from("ab"), max_size=30), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_repeated_share_is_bounded(text_words, n_words):
    assert 0.0 <= repeated_share(" ".join(text_words), n_words) < 1.0
