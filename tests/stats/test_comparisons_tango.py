import math

import pytest
from scipy import optimize, stats

from agent2.errors import NotEnoughData
from agent2.stats.comparisons import tango_interval, tango_z


@pytest.mark.parametrize(("n_only_a", "n_only_b", "n"), [(3, 9, 50), (12, 1, 40), (5, 5, 100)])
@pytest.mark.parametrize("delta", [-0.3, -0.05, 0.1])
def test_the_score_uses_the_most_likely_rates_with_that_difference(n_only_a, n_only_b, n, delta):
    def minus_log_likelihood(rate_b):
        parts = [(n_only_a, rate_b + delta), (n_only_b, rate_b), (n - n_only_a - n_only_b, 1 - 2 * rate_b - delta)]
        return -sum(count * math.log(rate) for count, rate in parts if count)

    bounds = (max(0.0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12)
    rate_b = optimize.minimize_scalar(minus_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
    error = math.sqrt((2 * rate_b + delta - delta**2) / n)
    assert tango_z(n_only_a, n_only_b, n, delta) == pytest.approx(((n_only_a - n_only_b) / n - delta) / error, rel=1e-4)


def test_the_score_at_no_difference_is_mcnemars():
    assert tango_z(9, 3, 40, 0.0) == pytest.approx((9 - 3) / math.sqrt(9 + 3))


def test_the_interval_ends_where_the_score_is_the_quantile():
    low, high = tango_interval(9, 3, 40)
    assert tango_z(9, 3, 40, low) == pytest.approx(1.95996, abs=1e-4)
    assert tango_z(9, 3, 40, high) == pytest.approx(-1.95996, abs=1e-4)
    assert tango_interval(3, 9, 40) == pytest.approx((-high, -low))


def test_no_discordant_item_still_leaves_the_hand_computed_doubt():
    z2 = stats.norm.ppf(0.975) ** 2
    low, high = tango_interval(0, 0, 50)
    assert high == pytest.approx(z2 / (50 + z2))  # n d / (1 - d) = z^2
    assert low == -high


def test_discordant_items_all_on_one_side_reach_the_end_of_the_range():
    assert tango_interval(5, 0, 5)[1] == 1.0
    assert tango_interval(0, 5, 5)[0] == -1.0


def test_counts_that_cannot_be_are_refused():
    with pytest.raises(NotEnoughData):
        tango_interval(0, 0, 0)
    with pytest.raises(ValueError, match="cannot be"):
        tango_interval(3, 3, 5)
