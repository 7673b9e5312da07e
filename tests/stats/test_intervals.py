import numpy as np
import pytest
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import wilson
from agent2.stats.measure import clopper_pearson, cluster_bootstrap_mean, clustered_mean


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("n_success", "n"), [(1, 10), (7, 20), (450, 500)])
def test_clopper_pearson_ends_are_the_rates_with_exact_tails_of_two_and_a_half_percent(n_success, n):
    result = clopper_pearson(n_success, n)
    assert stats.binom.sf(n_success - 1, n, result.low) == pytest.approx(0.025)
    assert stats.binom.cdf(n_success, n, result.high) == pytest.approx(0.025)
    assert result.low < wilson(n_success, n).low
    assert result.value == n_success / n


def test_clopper_pearson_of_no_success_is_the_hand_computed_limit():
    result = clopper_pearson(0, 10)
    assert (result.low, result.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))
    assert clopper_pearson(10, 10).high == 1.0


def test_clopper_pearson_refuses_counts_that_cannot_be():
    with pytest.raises(NotEnoughData):
        clopper_pearson(0, 0)
    for n_success, n in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="cannot be"):
            clopper_pearson(n_success, n)
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(1, 3, 1.5)


def test_one_observation_a_cluster_is_the_usual_t_interval():
    values = rng().normal(size=30)
    result = clustered_mean(values, np.arange(30))
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (result.low, result.high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert result.warning == ""


def test_the_hand_computed_clustered_interval():
    # mean 0.5; cluster sums of deviations 1, -1: squared error 2/1 * 2 / 16 = 0.25; t with 1 degree of freedom
    result = clustered_mean([1, 1, 0, 0], ["a", "a", "b", "b"])
    assert result.value == 0.5
    assert result.high == pytest.approx(0.5 + stats.t.ppf(0.975, 1) * 0.5)
    assert (result.n, result.n_clusters) == (4, 2)
    assert "fewer than 20 clusters" in str(result)


def test_repeating_every_observation_in_its_cluster_adds_no_certainty():
    values = rng(1).normal(size=25)
    once = clustered_mean(values, np.arange(25))
    thrice = clustered_mean(np.repeat(values, 3), np.repeat(np.arange(25), 3))
    assert (thrice.low, thrice.high) == (pytest.approx(once.low), pytest.approx(once.high))
    assert thrice.n == 75


def test_the_cluster_bootstrap_approaches_the_robust_interval_with_many_clusters():
    of_cluster = np.repeat(np.arange(200), rng().integers(1, 6, size=200))
    values = rng(1).normal(size=200)[of_cluster] + rng(2).normal(size=of_cluster.size)
    robust, resampled = clustered_mean(values, of_cluster), cluster_bootstrap_mean(values, of_cluster, rng(3))
    width = robust.high - robust.low
    assert [resampled.low, resampled.high] == pytest.approx([robust.low, robust.high], abs=0.05 * width)
    assert resampled.value == robust.value == pytest.approx(values.mean())


def test_equal_values_have_an_interval_of_no_width():
    for result in (
        clustered_mean([2.0] * 4, [1, 1, 2, 2]),
        cluster_bootstrap_mean([2.0] * 4, [1, 1, 2, 2], rng(), 100),
    ):
        assert (result.low, result.high) == (2.0, 2.0)


@pytest.mark.parametrize("estimate", [clustered_mean, lambda v, c: cluster_bootstrap_mean(v, c, rng(), 10)])
def test_bad_clusters_are_refused(estimate):
    with pytest.raises(NotEnoughData, match="one cluster"):
        estimate([0.1, 0.2], [1, 1])
    with pytest.raises(NotEnoughData, match="missing"):
        estimate([0.1, np.nan], [1, 2])
    with pytest.raises(NotEnoughData, match="empty"):
        estimate([], [])
    with pytest.raises(ValueError, match="one each"):
        estimate([0.1, 0.2], [1, 2, 3])


def test_the_cluster_bootstrap_needs_replicates():
    with pytest.raises(ValueError, match="n_replicates"):
        cluster_bootstrap_mean([0.1, 0.2], [1, 2], rng(), 0)


def test_a_clustered_rate_stays_within_its_bounds():
    verdicts, labels = [1, 1, 1, 0, 1, 1], [0, 0, 1, 1, 2, 2]
    assert clustered_mean(verdicts, labels).high > 1.0
    inside = clustered_mean(verdicts, labels, bounds=(0.0, 1.0))
    assert 0.0 <= inside.low <= inside.value <= inside.high == 1.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        clustered_mean([2.0, 1.0], [0, 1], bounds=(0.0, 1.0))
