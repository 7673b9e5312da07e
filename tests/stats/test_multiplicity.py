import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.hypothesis_tests import benjamini_hochberg, holm

families = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def test_holm_equals_the_hand_computed_steps():
    result = holm([0.01, 0.04, 0.03, 0.005])
    assert result.adjusted == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert result.significant() == (True, False, False, True)
    assert str(result) == "2 of n=4 comparisons significant at 0.05, smallest p=0.02 (Holm)"


def test_benjamini_hochberg_equals_the_hand_computed_steps():
    result = benjamini_hochberg([0.01, 0.04, 0.03, 0.005])
    assert result.adjusted == pytest.approx((0.02, 0.04, 0.04, 0.02))
    assert result.p_values == (0.01, 0.04, 0.03, 0.005)


def test_one_comparison_needs_no_correction():
    assert holm([0.04]).adjusted == benjamini_hochberg([0.04]).adjusted == (0.04,)


def test_adjusted_values_stay_at_most_one():
    assert holm([0.6, 0.7, 1.0]).adjusted == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_bad_p_values_are_refused(adjust):
    with pytest.raises(NotEnoughData, match="empty"):
        adjust([])
    with pytest.raises(NotEnoughData, match="missing"):
        adjust([0.1, np.nan])
    for outside in (-0.1, 1.1):
        with pytest.raises(ValueError, match="outside 0-1"):
            adjust([0.5, outside])
    with pytest.raises(ValueError, match="level"):
        adjust([0.5]).significant(0.0)


@given(families)
def test_holm_is_at_least_benjamini_hochberg_which_is_at_least_the_raw_p(p_values):
    raw, strict, lenient = np.array(p_values), np.array(holm(p_values).adjusted), benjamini_hochberg(p_values).adjusted
    assert (strict >= np.array(lenient) - 1e-12).all()
    assert (np.array(lenient) >= raw - 1e-12).all()


@given(families, st.randoms(use_true_random=False))
def test_adjustment_follows_the_p_values_when_they_are_reordered(p_values, random):
    order = list(range(len(p_values)))
    random.shuffle(order)
    for adjust in (holm, benjamini_hochberg):
        straight = adjust(p_values).adjusted
        assert adjust([p_values[i] for i in order]).adjusted == pytest.approx([straight[i] for i in order])
