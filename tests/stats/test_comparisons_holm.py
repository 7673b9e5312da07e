import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.comparisons import holm

families = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


def test_holm_equals_the_hand_computed_steps():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_one_comparison_needs_no_correction():
    assert holm([0.04]) == (0.04,)


def test_adjusted_values_stay_at_most_one():
    assert holm([0.6, 0.7, 1.0]) == (1.0, 1.0, 1.0)


def test_bad_p_values_are_refused():
    with pytest.raises(NotEnoughData, match="empty"):
        holm([])
    with pytest.raises(NotEnoughData, match="missing"):
        holm([0.1, np.nan])
    for outside in (-0.1, 1.1):
        with pytest.raises(ValueError, match="outside 0-1"):
            holm([0.5, outside])


@given(families)
def test_holm_is_at_least_benjamini_hochberg_which_is_at_least_the_raw_p(p_values):
    strict, lenient = np.array(holm(p_values)), stats.false_discovery_control(p_values, method="bh")
    assert (strict >= lenient - 1e-12).all()
    assert (lenient >= np.array(p_values) - 1e-12).all()


@given(families, st.randoms(use_true_random=False))
def test_adjustment_follows_the_p_values_when_they_are_reordered(p_values, random):
    order = list(range(len(p_values)))
    random.shuffle(order)
    straight = holm(p_values)
    assert holm([p_values[i] for i in order]) == pytest.approx([straight[i] for i in order])
