import numpy as np
import pytest

from agent2.stats.ranking import bradley_terry, collect_matches, elo


def rng(seed=0):
    return np.random.default_rng(seed)


def test_one_match_between_equals_moves_half_a_step():
    result = elo(collect_matches([0], [1], [1.0], 2), rng(), 10, step=32.0)
    assert result.strength == (1016.0, 984.0)
    assert (result.low, result.high) == (result.strength, result.strength)


def test_two_matches_equal_the_hand_computed_rating():
    result = elo(collect_matches([0, 0], [1, 1], [1.0, 1.0], 2), rng(), 5, step=32.0)
    second = 32.0 * (1 - 1 / (1 + 10 ** (-32.0 / 400)))
    assert result.strength == pytest.approx((1016 + second, 984 - second))


def test_the_order_of_a_cycle_matters_and_the_interval_says_so():
    result = elo(collect_matches([0, 1, 2], [1, 2, 0], [1.0, 1.0, 1.0], 3), rng(), 500, step=32.0)
    assert result.low[0] < result.high[0]
    assert sum(result.strength) == pytest.approx(3000.0)
    assert "over orders" in str(result)


def test_the_interval_is_the_central_share_of_the_orders():
    # the six orders of this cycle leave the first model at six equally likely ratings
    matches = collect_matches([0, 1, 2], [1, 2, 0], [1.0, 1.0, 1.0], 3)
    whole, middle = (elo(matches, rng(), 600, confidence, step=32.0) for confidence in (0.99, 0.5))
    assert whole.low[0] < middle.low[0] < middle.high[0] < whole.high[0]


def test_many_matches_with_small_steps_approach_bradley_terry_points():
    draws = rng(3)
    first = draws.integers(3, size=6000)
    second = (first + draws.integers(1, 3, size=6000)) % 3
    strength = np.array([0.6, 0.0, -0.6])
    score = (draws.random(6000) < 1 / (1 + np.exp(strength[second] - strength[first]))).astype(float)
    matches = collect_matches(first, second, score, 3)
    points = 1000.0 + np.array(bradley_terry(matches).strength) * 400 / np.log(10)
    assert elo(matches, rng(), 20, step=2.0).strength == pytest.approx(points, abs=12.0)


def test_bad_arguments_are_refused():
    matches = collect_matches([0], [1], [1.0], 2)
    with pytest.raises(ValueError, match="above 0"):
        elo(matches, rng(), 0)
    with pytest.raises(ValueError, match="above 0"):
        elo(matches, rng(), 10, step=0.0)
    with pytest.raises(ValueError, match="confidence"):
        elo(matches, rng(), 10, confidence=1.0)
