import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.ranking import pairwise_accuracy, win_rate


def test_ties_count_as_half():
    rate = win_rate([1, 0.5, 0, 1, None])
    assert rate.rate.value == pytest.approx(0.625)
    assert (rate.n_wins, rate.n_ties, rate.n_losses) == (2, 1, 1)
    assert (rate.rate.n, rate.rate.n_missing) == (4, 1)
    assert str(rate).endswith("2 won, 1 tied, 1 lost")


def test_without_ties_the_interval_is_wilsons_and_all_ties_are_a_half():
    assert win_rate([1, 0, 1]).rate.method == "Wilson"
    assert win_rate([0.5] * 3).rate.value == 0.5


def test_outcomes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        win_rate([-1, 1])
    for nothing in ([], [None]):
        with pytest.raises(NotEnoughData):
            win_rate(nothing)


def test_a_reward_model_is_right_where_it_prefers_the_chosen_answer():
    accuracy = pairwise_accuracy([2.0, -1.0, 0.0, None, 5.0], [1.0, 3.0, 0.0, 1.0, None])
    assert accuracy.rate.value == 0.5
    assert (accuracy.n_wins, accuracy.n_ties, accuracy.n_losses, accuracy.rate.n_missing) == (1, 1, 1, 2)


def test_a_constant_reward_model_is_at_chance():
    assert pairwise_accuracy([-3.0] * 4, [-3.0] * 4).rate.value == 0.5


def test_sides_must_match():
    with pytest.raises(ValueError, match="pair them"):
        pairwise_accuracy([1.0], [1.0, 2.0])
    with pytest.raises(NotEnoughData):
        pairwise_accuracy([], [])


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_swapping_the_sides_gives_one_minus_the_rate(pairs):
    scores_a, scores_b = np.array(pairs).T
    accuracy, reverse = pairwise_accuracy(scores_a, scores_b), pairwise_accuracy(scores_b, scores_a)
    assert accuracy.rate.value == pytest.approx(1.0 - reverse.rate.value)
    assert 0.0 <= accuracy.rate.value <= 1.0
    assert accuracy.n_ties == reverse.n_ties
