import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.quality import decision_accuracy, signal_to_noise


def rng(seed=0):
    return np.random.default_rng(seed)


def test_snr_matches_a_hand_computed_case():
    # signal (0.8 - 0.4) / 0.6 = 2/3; noise: std of 0.5, 0.7 is 0.1 * sqrt 2, over 0.6
    result = signal_to_noise([0.4, 0.6, 0.8], [0.5, 0.7])
    assert result.signal == pytest.approx(2 / 3)
    assert result.noise == pytest.approx(0.1 * math.sqrt(2) / 0.6)
    assert result.ratio == pytest.approx(4 / math.sqrt(2))
    assert "n=3 models, 1 runs x 2 last checkpoints" in str(result)


def test_noise_is_averaged_over_runs():
    steady, moving = [0.5, 0.5], [0.4, 0.6]
    alone = signal_to_noise([0.2, 0.8], moving).noise
    assert signal_to_noise([0.2, 0.8], [steady, moving]).noise == pytest.approx(alone / 2)


def test_snr_limits():
    assert signal_to_noise([0.4, 0.8], [0.5, 0.5]).ratio == math.inf
    assert signal_to_noise([0.4, 0.4], [0.5, 0.6]).ratio == 0.0
    assert signal_to_noise([0.4, 0.4], [0.5, 0.5]).ratio == 0.0


@given(st.floats(0.01, 100))
def test_snr_does_not_depend_on_the_unit(scale):
    plain = signal_to_noise([0.4, 0.6], [0.5, 0.55, 0.6]).ratio
    assert signal_to_noise(np.array([0.4, 0.6]) * scale, np.array([0.5, 0.55, 0.6]) * scale).ratio == pytest.approx(
        plain
    )


def test_snr_refuses_too_little_and_impossible_input():
    with pytest.raises(NotEnoughData, match="2 models and 2 last"):
        signal_to_noise([0.4], [0.5, 0.6])
    with pytest.raises(NotEnoughData, match="2 models and 2 last"):
        signal_to_noise([0.4, 0.5], [0.5])
    with pytest.raises(NotEnoughData, match="missing"):
        signal_to_noise([0.4, math.nan], [0.5, 0.6])
    with pytest.raises(NotEnoughData, match="empty"):
        signal_to_noise([], [0.5, 0.6])
    with pytest.raises(ValueError, match="not positive"):
        signal_to_noise([-0.4, -0.5], [0.5, 0.6])


def test_decision_accuracy_counts_pairs():
    result = decision_accuracy([1, 2, 3, 4], [1, 2, 4, 3], rng())
    assert result.value == pytest.approx(5 / 6)
    assert result.low <= 5 / 6 <= result.high
    assert result.n == 4
    assert decision_accuracy([1, 2, 3], [3, 2, 1], rng()).value == 0.0
    assert decision_accuracy([1, 2, 3], [10, 20, 30], rng()).value == 1.0


def test_ties_in_decision_accuracy():
    assert decision_accuracy([1, 1], [1, 2], rng()).value == 0.5
    assert decision_accuracy([1, 1], [2, 2], rng()).value == 1.0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8), st.randoms())
def test_decision_accuracy_ignores_the_order_of_models_and_stays_between_0_and_1(pairs, random):
    shuffled = list(pairs)
    random.shuffle(shuffled)
    value = decision_accuracy(*zip(*pairs, strict=True), rng(), 20).value
    assert 0.0 <= value <= 1.0
    assert decision_accuracy(*zip(*shuffled, strict=True), rng(), 20).value == pytest.approx(value)


def test_decision_accuracy_needs_paired_models():
    with pytest.raises(NotEnoughData, match="at least 2 models"):
        decision_accuracy([1], [1], rng())
    with pytest.raises(ValueError, match="pair them"):
        decision_accuracy([1, 2], [1], rng())
    with pytest.raises(NotEnoughData):
        decision_accuracy([1, math.nan], [1, 2], rng())
    with pytest.raises(ValueError, match="n_replicates"):
        decision_accuracy([1, 2], [1, 2], rng(), 0)
