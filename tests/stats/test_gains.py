import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.gains import (
    gap_closed,
    held_out_gain,
    normalised_score,
    seed_spread,
)

SCORE = st.floats(-100, 100)


def test_held_out_gain_pairs_by_name_and_counts_missing_tasks():
    gain = held_out_gain({"a": 0.2, "b": 0.5, "c": 0.9, "d": None}, {"b": 0.6, "a": 0.5, "d": 0.4, "e": 1.0})
    assert (gain.value, gain.n, gain.n_missing) == (pytest.approx(0.2), 2, 3)
    with pytest.raises(NotEnoughData):
        held_out_gain({"a": 0.2}, {"b": 0.3})


def test_one_held_out_task_has_no_interval():
    assert held_out_gain({"a": 0.2}, {"a": 0.1}).low is None


def test_seed_spread_of_a_hand_computed_case():
    spread = seed_spread([0.1, 0.2, -0.3, None])
    assert spread.mean.value == pytest.approx(0.0)
    assert spread.std == pytest.approx(math.sqrt((0.01 + 0.04 + 0.09) / 2))
    assert (spread.lowest, spread.highest, spread.mean.n_missing) == (-0.3, 0.2, 1)
    assert spread.share_positive == pytest.approx(2 / 3)
    assert "67% of seeds gained" in str(spread)


def test_equal_seeds_have_no_spread_and_one_seed_says_nothing():
    assert seed_spread([0.25, 0.25]).std == 0.0
    assert seed_spread([0.0, 0.25]).share_positive == 0.5
    for few in ([], [0.1], [0.1, None]):
        with pytest.raises(NotEnoughData, match="at least 2"):
            seed_spread(few)


def test_gap_closed_of_known_cases():
    assert gap_closed(0.2, 0.2, 0.8) == 0.0
    assert gap_closed(0.2, 0.8, 0.8) == 1.0
    assert gap_closed(0.2, 0.5, 0.8) == pytest.approx(0.5)
    assert gap_closed(0.2, 0.1, 0.8) < 0.0
    assert gap_closed(10.0, 6.0, 2.0) == pytest.approx(0.5)  # lower is better
    with pytest.raises(ValueError, match="no scale"):
        gap_closed(0.5, 0.7, 0.5)
    for broken in ((0.2, math.nan, 0.8), (math.nan, 0.2, 0.8), (0.2, 0.3, math.inf)):
        with pytest.raises(NotEnoughData):
            gap_closed(*broken)


def test_normalised_scores_broadcast_over_tasks():
    scores_RT = np.array([[10.0, -5.0], [20.0, np.nan]])
    normalised = normalised_score(scores_RT, [0.0, -10.0], [20.0, 10.0])
    assert normalised[0].tolist() == [0.5, 0.25]
    assert normalised[1, 0] == 1.0 and np.isnan(normalised[1, 1])


def test_scores_that_cannot_be_normalised_are_refused():
    with pytest.raises(ValueError, match="no scale"):
        normalised_score([1.0], [2.0], [2.0])
    with pytest.raises(ValueError, match="infinity"):
        normalised_score([math.inf], [0.0], [1.0])
    with pytest.raises(NotEnoughData):
        normalised_score([], 0.0, 1.0)
    with pytest.raises(NotEnoughData):
        normalised_score([1.0], [math.nan], [1.0])


@given(SCORE, SCORE, SCORE, st.floats(0.5, 3), st.floats(-5, 5))
@settings(max_examples=60, deadline=None)
def test_a_normalised_score_does_not_depend_on_the_unit(score, low, high, scale, shift):
    if abs(high - low) < 1e-3:
        return
    plain = normalised_score([score], low, high)
    scaled = normalised_score([scale * score + shift], scale * low + shift, scale * high + shift)
    assert scaled == pytest.approx(plain, rel=1e-6, abs=1e-6)
