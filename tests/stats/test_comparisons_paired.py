import numpy as np
import pytest

from agent2.stats.comparisons import mcnemar_p, paired_evidence, sign_flip_p, tango_interval


def test_verdicts_get_tangos_interval_and_exact_mcnemar():
    old = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0, "only old": 1.0}
    new = {"d": 1.0, "c": 1.0, "b": 0.0, "a": 1.0, "only new": 0.0}
    difference = paired_evidence(old, new)
    assert (difference.change.n, difference.n_won, difference.n_lost, difference.change.value) == (4, 2, 1, 0.25)
    assert (difference.change.low, difference.change.high) == tango_interval(2, 1, 4)
    assert difference.p_value == mcnemar_p(2, 1) == 1.0


def test_other_values_get_paired_t_and_sign_flips_with_a_fixed_seed():
    old = {str(place): place / 10 for place in range(10)}
    new = {str(place): place / 10 + 0.1 * (place % 2) for place in range(10)}
    evidence = paired_evidence(old, new)
    difference = np.array([new[key] - old[key] for key in sorted(old)])
    assert evidence.change.value == pytest.approx(0.05)
    assert evidence.sd == pytest.approx(difference.std(ddof=1))
    half = 2.262157 * evidence.sd / np.sqrt(10)  # t quantile of 97.5% with 9 degrees of freedom
    assert (evidence.change.low, evidence.change.high) == pytest.approx((0.05 - half, 0.05 + half), abs=1e-6)
    assert evidence.p_value == pytest.approx(sign_flip_p(difference, np.random.default_rng(1), 100_000), abs=0.02)
    assert (evidence.n_won, evidence.n_lost) == (None, None)
    assert paired_evidence(old, new) == evidence


@pytest.mark.parametrize(("old", "new"), [({}, {}), ({"a": 1.0}, {"b": 1.0}), ({"a": 0.3}, {"a": 0.4})])
def test_nothing_to_pair_gives_nothing(old, new):
    assert paired_evidence(old, new) is None


def test_one_pair_of_verdicts_says_next_to_nothing():
    difference = paired_evidence({"a": 0.0}, {"a": 1.0})
    assert difference.change.n == 1
    assert difference.change.low < 0 < difference.change.value


def test_beyond_2000_items_the_t_test_agrees_with_sign_flips():
    rng = np.random.default_rng(3)
    difference = rng.normal(0.02, 0.5, 2500).round(3)
    old = {f"{place:05d}": 1.0 for place in range(2500)}
    new = {f"{place:05d}": 1.0 + value for place, value in enumerate(difference)}
    evidence = paired_evidence(old, new)
    assert "paired t test" in evidence.change.method
    assert evidence.p_value == pytest.approx(sign_flip_p(difference, np.random.default_rng(1), 5000), abs=0.01)


@pytest.mark.parametrize(("shift", "is_significant"), [(0.0, False), (0.2, True)])
def test_equal_differences_of_many_items_are_judged_without_spread(shift, is_significant):
    old = {f"{place:05d}": 0.5 for place in range(3000)}
    difference = paired_evidence(old, {item: value + shift for item, value in old.items()})
    assert (difference.p_value < 0.001) is is_significant
