import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.comparisons import (
    EXACT_PAIRS,
    detectable_difference,
    mcnemar_p,
    mcnemar_power,
)


def enumerated_power(n, difference, discordance, alpha):
    total = 0.0
    only_a, only_b = (discordance + difference) / 2, (discordance - difference) / 2
    for a in range(n + 1):
        for b in range(n + 1 - a):
            if mcnemar_p(a, b) <= alpha:
                total += stats.multinomial.pmf([a, b, n - a - b], n, [only_a, only_b, 1 - discordance])
    return total


@pytest.mark.parametrize(("n", "difference", "discordance", "alpha"), [(12, 0.4, 0.6, 0.05), (20, -0.2, 0.5, 0.1)])
def test_power_equals_the_sum_over_all_outcomes(n, difference, discordance, alpha):
    assert mcnemar_power(n, difference, discordance, alpha) == pytest.approx(
        enumerated_power(n, difference, discordance, alpha), abs=1e-9
    )


def test_power_agrees_with_simulation():
    rng = np.random.default_rng(0)
    draws = rng.multinomial(300, [0.1, 0.04, 0.86], size=1500)
    significant = np.mean([mcnemar_p(int(a), int(b)) <= 0.05 for a, b, _ in draws])
    assert mcnemar_power(300, 0.06, 0.14) == pytest.approx(significant, abs=3 * math.sqrt(0.25 / 1500))


def test_five_items_can_never_be_significant():
    assert mcnemar_power(5, 1.0, 1.0) == 0.0
    assert mcnemar_power(6, 1.0, 1.0) == pytest.approx(1.0)


def test_the_smallest_visible_difference_of_a_suite_is_seen_with_the_power_asked():
    plan = detectable_difference(500, 0.1)
    assert mcnemar_power(500, plan.difference, 0.1) == pytest.approx(0.8, abs=1e-6)
    assert detectable_difference(1000, 0.1).difference < plan.difference < detectable_difference(500, 0.3).difference


def test_a_suite_too_small_to_see_anything_says_so():
    with pytest.raises(NotEnoughData, match="add items"):
        detectable_difference(20, 0.1)


@pytest.mark.parametrize(
    ("difference", "discordance"), [(0.2, 0.1), (0.1, 0.0), (0.1, 1.5), (0.1, -0.1), (math.nan, 0.5), (0.1, math.nan)]
)
def test_rates_that_cannot_be_are_refused(difference, discordance):
    with pytest.raises(ValueError):
        mcnemar_power(100, difference, discordance)


def test_other_bad_arguments_are_refused():
    for value in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="power"):
            detectable_difference(100, 0.2, power=value)
        with pytest.raises(ValueError, match="alpha"):
            mcnemar_power(100, 0.1, 0.2, alpha=value)
    with pytest.raises(NotEnoughData):
        mcnemar_power(0, 0.1, 0.2)
    with pytest.raises(ValueError, match="false finding"):
        detectable_difference(1000, 0.5, power=0.01)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400), st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_power_grows_with_the_difference_and_starts_below_alpha(n, discordance, share_a, share_b):
    smaller, larger = sorted([share_a * discordance, share_b * discordance])
    assert mcnemar_power(n, 0.0, discordance) <= 0.05
    assert mcnemar_power(n, smaller, discordance) <= mcnemar_power(n, larger, discordance) + 1e-9
    assert mcnemar_power(n, -larger, discordance) == pytest.approx(mcnemar_power(n, larger, discordance))


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.0, 2.8, 4.0])
def test_power_does_not_jump_where_the_exact_sum_gives_way_to_the_approximation(shift):
    discordance = 0.5
    n = int(EXACT_PAIRS / discordance)
    difference = shift * math.sqrt(discordance / n)
    exact, approximate = (mcnemar_power(n + more, difference, discordance) for more in (0, 1))
    assert exact == pytest.approx(approximate, abs=1e-3)
    assert "normal" in detectable_difference(n + 1, discordance).method
