import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.quality import agreement_with_confidence, pair_brier_score, separability

intervals = st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 3)), min_size=2, max_size=7)


def test_separability_equals_the_hand_counted_pairs():
    result = separability([0.0, 0.5, 2.0], [1.0, 1.5, 3.0])  # 0 and 1 overlap, 2 stands apart
    assert result.value == pytest.approx(2 / 3)
    assert str(result) == "0.6667 (n=3 pairs of 3 models, 2 separated, separability)"


def test_touching_intervals_overlap():
    assert separability([0.0, 1.0], [1.0, 2.0]).value == 0.0
    assert separability([1.0, 0.0], [2.0, 1.0]).value == 0.0


def test_agreement_counts_one_for_the_same_order_minus_one_for_the_opposite_and_zero_if_unsure():
    low, high = [0.0, 2.0, 4.0], [1.0, 3.0, 5.0]
    assert agreement_with_confidence(low, high, low, high).value == 1.0
    assert agreement_with_confidence(low, high, low[::-1], high[::-1]).value == -1.0
    mixed = agreement_with_confidence(low, high, [2.0, 0.0, 2.5], [3.0, 1.0, 4.0])  # -1, 0 (overlap), +1
    assert (mixed.value, mixed.n_separated) == (0.0, 2)
    assert agreement_with_confidence(low, high, [0.0] * 3, [1.0] * 3).value == 0.0


def test_the_brier_score_is_hand_computed():
    strengths = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert pair_brier_score(strengths, [2.0, 1.0]).value == pytest.approx(0.25**2)
    assert pair_brier_score(strengths, [1.0, 2.0]).value == pytest.approx(0.75**2)
    assert pair_brier_score([[1.0, 1.0]], [1.0, 2.0]).value == 0.25


def test_bad_input_is_refused():
    with pytest.raises(NotEnoughData, match="no pair"):
        separability([0.0], [1.0])
    with pytest.raises(NotEnoughData, match="empty"):
        separability([], [])
    with pytest.raises(NotEnoughData, match="missing"):
        separability([0.0, np.nan], [1.0, 1.0])
    with pytest.raises(ValueError, match="must not exceed"):
        separability([0.0, 2.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="both ends"):
        separability([0.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="same ones"):
        agreement_with_confidence([0.0, 2.0], [1.0, 3.0], [0.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match="expected replicates x 2"):
        pair_brier_score([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(NotEnoughData, match="empty"):
        pair_brier_score(np.empty((0, 2)), [1.0, 2.0])


@given(intervals)
def test_agreement_of_a_benchmark_with_itself_is_its_separability(models):
    low = [middle for middle, _ in models]
    high = [middle + width for middle, width in models]
    assert agreement_with_confidence(low, high, low, high).value == pytest.approx(separability(low, high).value)
    assert 0.0 <= separability(low, high).value <= 1.0
