import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.estimates import wilson
from agent2.stats.gains import compare_times, time_to_target

NEVER = math.inf


def test_time_to_target_is_the_first_time_reached_or_infinity():
    assert time_to_target([1, 2, 3, 4], [0.1, 0.5, 0.4, 0.9], 0.5) == 2.0
    assert time_to_target([1, 2], [0.1, 0.2], 0.5) == math.inf
    with pytest.raises(NotEnoughData, match="empty"):
        time_to_target([], [], 0.5)
    with pytest.raises(NotEnoughData, match="missing"):
        time_to_target([1, 2], [0.1, math.nan], 0.5)
    with pytest.raises(ValueError, match="increase"):
        time_to_target([2, 1], [0.1, 0.2], 0.5)
    with pytest.raises(ValueError, match="match"):
        time_to_target([2], [0.1, 0.2], 0.5)


def test_profiles_and_scores_of_a_hand_computed_case():
    result = compare_times(["fast", "slow"], [[1, 2, NEVER], [2, 2, 8]], max_ratio=3.0)
    assert result.ratios_SW.tolist() == [[1, 1, NEVER], [2, 1, 1]]
    assert result.profile(1.0) == pytest.approx([2 / 3, 2 / 3])
    assert result.profile(2.0) == pytest.approx([2 / 3, 1.0])
    # areas from 1 to 3, divided by 2: fast 1, 1, 0; slow 1/2, 1, 1
    assert [score.value for score in result.scores] == pytest.approx([2 / 3, 5 / 6])
    assert str(result).startswith("slow 0.8333")
    assert "n=3 workloads" in str(result)


def test_a_workload_nobody_reached_counts_for_nobody():
    result = compare_times(["a", "b"], [[1, NEVER], [1, NEVER]])
    assert [score.value for score in result.scores] == [0.5, 0.5]
    assert result.profile(100.0).tolist() == [0.5, 0.5]


def test_a_held_out_variant_not_reached_undoes_the_workload():
    result = compare_times(["a", "b"], [[1, 1], [2, 2]], held_out_SW=[[NEVER, 5], [9, 9]])
    assert result.ratios_SW.tolist() == [[NEVER, 1], [1, 2]]


def test_one_submission_alone_scores_its_reached_share():
    result = compare_times(["only"], [[3, NEVER, 7, 1]])
    assert result.scores[0].value == 0.75


def test_few_workloads_all_won_are_no_certain_score_and_one_has_no_interval():
    won = compare_times(["first", "second"], [[1, 1, 1], [9, 9, 9]]).scores[0]
    assert (won.value, won.low) == (1.0, pytest.approx(wilson(3, 3).low))
    profiles = compare_times(["first", "second"], [[1], [2]])
    assert profiles.scores[1].low is None
    assert str(profiles).startswith("first 1.0000")


times = st.lists(st.one_of(st.just(NEVER), st.floats(0.1, 100)), min_size=3, max_size=3)


@given(st.lists(times, min_size=2, max_size=4), st.lists(st.floats(1, 50), min_size=2, max_size=10))
def test_profiles_rise_with_the_ratio_and_bound_the_score(times_SW, ratios):
    result = compare_times([str(i) for i in range(len(times_SW))], times_SW, max_ratio=4.0)
    profiles = np.array([result.profile(ratio) for ratio in sorted(ratios)])
    assert np.all(np.diff(profiles, axis=0) >= 0)
    scores = np.array([score.value for score in result.scores])
    assert np.all(scores <= result.profile(4.0) + 1e-12)
    assert np.all(scores >= result.profile(1.0) - 1e-12)


@given(st.permutations(range(3)))
def test_the_order_of_submissions_changes_nothing(order):
    table = np.array([[1, 5, NEVER], [2, 1, 4], [9, 9, 1.0]])
    plain = compare_times(list("abc"), table)
    moved = compare_times(["abc"[i] for i in order], table[list(order)])
    assert [moved.scores[order.index(i)].value for i in range(3)] == [score.value for score in plain.scores]


def test_bad_times_are_refused():
    with pytest.raises(NotEnoughData, match="one of each"):
        compare_times([], np.zeros((0, 2)))
    with pytest.raises(NotEnoughData, match="1 missing"):
        compare_times(["a"], [[1, math.nan]])
    with pytest.raises(ValueError, match="positive"):
        compare_times(["a"], [[0, 1]])
    with pytest.raises(ValueError, match="names"):
        compare_times(["a"], [[1], [2]])
    with pytest.raises(ValueError, match="max_ratio"):
        compare_times(["a"], [[1]], max_ratio=1.0)
    with pytest.raises(ValueError, match="held_out_SW"):
        compare_times(["a"], [[1]], held_out_SW=[[1, 2]])
    with pytest.raises(ValueError, match="at least 1"):
        compare_times(["a"], [[1]]).profile(0.5)
