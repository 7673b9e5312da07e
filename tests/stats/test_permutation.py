import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.hypothesis_tests import permutation_p, unpaired_difference

scores = st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=5)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_separated_runs_have_the_hand_computed_exact_p():
    result = unpaired_difference([0.7, 0.8, 0.9], [0.1, 0.2, 0.3], rng())
    assert result.p_value == pytest.approx(2 / 20)  # of the 20 splits only the two extreme ones differ as much
    assert result.delta == pytest.approx(0.6)
    assert "all 20 splits" in str(result)
    assert "n=3 and 3" in str(result)
    assert "interval is too narrow" in result.warning


def test_random_splits_approach_the_exact_p_of_scipy():
    a, b = rng(1).normal(0.8, size=8), rng(2).normal(size=7)
    exact = stats.permutation_test(
        (a, b), lambda x, y: abs(x.mean() - y.mean()), n_resamples=10_000, alternative="greater"
    )
    all_splits, random_splits = permutation_p(a, b, rng(), 10_000), permutation_p(a, b, rng(), 6000)
    assert all_splits == (pytest.approx(exact.pvalue), "all 6435 splits")
    assert random_splits[0] == pytest.approx(all_splits[0], abs=0.02)
    assert random_splits[1] == "6000 random splits"


def test_random_splits_never_give_zero():
    assert permutation_p(np.ones(20), np.zeros(20), rng(), 99)[0] == 1 / 100


def test_equal_scores_differ_by_nothing():
    result = unpaired_difference([0.1] * 3, [0.1] * 4, rng(), 100)
    assert (result.delta, result.low, result.high) == pytest.approx((0.0, 0.0, 0.0))
    assert result.p_value == 1.0


def test_the_interval_approaches_welchs():
    a, b = rng(1).normal(1.0, 1.0, size=400), rng(2).normal(0.0, 2.0, size=300)
    result = unpaired_difference(a, b, rng(3), 5000)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert [result.low, result.high] == pytest.approx([expected.low, expected.high], abs=0.03)


def test_bad_input_is_refused():
    with pytest.raises(NotEnoughData, match="at least 2"):
        unpaired_difference([1.0], [1.0, 2.0], rng())
    with pytest.raises(NotEnoughData, match="missing"):
        unpaired_difference([1.0, np.nan], [1.0, 2.0], rng())
    with pytest.raises(NotEnoughData, match="empty"):
        unpaired_difference([], [1.0, 2.0], rng())
    with pytest.raises(ValueError, match="n_replicates"):
        unpaired_difference([1.0, 2.0], [1.0, 2.0], rng(), 0)


@settings(max_examples=50, deadline=None)
@given(scores, scores)
def test_p_is_symmetric_and_does_not_depend_on_a_shift(a, b):
    a, b = np.array(a), np.array(b)
    p, _ = permutation_p(a, b, rng(), 1000)
    assert 0.0 < p <= 1.0
    assert permutation_p(b, a, rng(), 1000)[0] == pytest.approx(p)
    assert permutation_p(a + 7, b + 7, rng(), 1000)[0] == pytest.approx(p)


def test_few_runs_on_one_side_are_warned_about():
    assert "fewer than 10 runs" in unpaired_difference(range(12), range(3), rng(), 100).warning
    assert unpaired_difference(range(12), range(10), rng(), 100).warning == ""
