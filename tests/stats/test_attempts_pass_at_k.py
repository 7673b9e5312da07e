from math import comb

import numpy as np
import pytest

from agent2.errors import NotEnoughData
from agent2.stats.attempts import pass_at_k, pass_at_k_by_item


def test_pass_at_k_of_a_hand_computed_case():
    # n=5, c=2, k=2: 1 - C(3,2)/C(5,2) = 1 - 3/10; n=4, c=0: 0
    assert pass_at_k_by_item([2, 0], [5, 4], 2) == pytest.approx([0.7, 0.0])
    assert pass_at_k([2, 0], [5, 4], 2) == pytest.approx(0.35)


def test_pass_at_1_is_the_mean_of_the_rates():
    assert pass_at_k([1, 3], [4, 4], 1) == pytest.approx(0.5)


def test_pass_at_n_is_whether_any_attempt_was_correct():
    assert pass_at_k_by_item([0, 1, 8], [8, 8, 8], 8).tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("k", [1, 3, 10, 64])
def test_pass_at_k_equals_the_ratio_of_binomials(k):
    correct = np.arange(65)
    expected = [1 - comb(64 - c, k) / comb(64, k) for c in range(65)]
    assert pass_at_k_by_item(correct, np.full(65, 64), k) == pytest.approx(expected, abs=1e-12)


def test_large_numbers_of_attempts_do_not_overflow():
    assert 0.99 < pass_at_k([100], [10_000], 1000) < 1.0


def test_no_items_are_not_enough_data():
    with pytest.raises(NotEnoughData, match="empty"):
        pass_at_k([], [], 1)


def test_too_few_attempts_at_one_item_is_not_enough_data():
    with pytest.raises(NotEnoughData, match="1 of 2 items have fewer"):
        pass_at_k([1, 1], [4, 3], 4)


@pytest.mark.parametrize(
    ("correct", "samples", "k"), [([3], [2], 1), ([-1], [2], 1), ([0.5], [2], 1), ([1], [2, 2], 1), ([1], [2], 0)]
)
def test_counts_that_cannot_be_are_refused(correct, samples, k):
    with pytest.raises(ValueError, match="must"):
        pass_at_k(correct, samples, k)
