"""Agreement of raters, on published examples."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from agent2.errors import NotEnoughData
from agent2.stats.quality import cohens_kappa, krippendorff_alpha, preference_tau, shared_errors

GAP = None


def test_kappa_of_a_worked_table():
    ratings_a, ratings_b = ["y"] * 25 + ["n"] * 25, ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    kappa = cohens_kappa(ratings_a, ratings_b)
    assert kappa.value == pytest.approx(0.4) and kappa.low < 0.4 < kappa.high and kappa.n == 50


def test_alpha_of_the_example_of_its_authors():
    """Krippendorff 2011, section C: four observers, twelve units, missing data, nominal alpha 0.743."""
    ratings = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, GAP, GAP, GAP],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, GAP, 3],
        [GAP, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, GAP],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, GAP],
    ]
    alpha = krippendorff_alpha(ratings)
    assert alpha.value == pytest.approx(0.743, abs=5e-4) and alpha.n == 11 and alpha.n_missing == 1


def test_missing_ratings_are_no_category():
    assert cohens_kappa(["a", "b", None, "a"], ["a", "b", "b", None]).value == 1.0
    assert cohens_kappa(["a", "b", None, "a"], ["a", "b", "b", None]).n_missing == 2


@pytest.mark.parametrize("ratings", [([None], ["a"]), (["a", "a"], ["a", "a"]), ([], [])])
def test_too_little_raises(ratings):
    with pytest.raises(NotEnoughData):
        cohens_kappa(*ratings)
    with pytest.raises(NotEnoughData):
        krippendorff_alpha(list(ratings))


def test_tau_of_worked_verdicts():
    """Three right and one wrong: 2 * 3/4 - 1. Three right and a tie: 15 concordant, 0 discordant of 28 pairs, 7 tied
    in the verdicts and 12 in the labels, so 15 / sqrt(21 * 16)."""
    assert preference_tau([1, 1, 0, 1], [1, 1, 0, 0]).value == pytest.approx(0.5)
    tau = preference_tau([1, 1, 0, 0.5, None], [1, 1, 0, 0, 1])
    assert tau.value == pytest.approx(15 / (21 * 16) ** 0.5) and (tau.n, tau.n_missing) == (4, 1)
    assert tau.low <= tau.value <= tau.high


def test_tau_looks_at_degrees_and_does_not_depend_on_which_answer_is_the_first():
    points, labels = [0.9, 0.6, 0.2, 0.45], [1, 1, 0, 1]
    turned = preference_tau([1 - point for point in points[:2]] + points[2:], [0, 0, 0, 1])
    assert preference_tau(points, labels).value == pytest.approx(turned.value)
    assert (
        preference_tau([0.9, 0.6, 0.2, 0.1], [1, 1, 1, 1]).value < preference_tau([0.9, 0.6, 0.4, 0.3], [1] * 4).value
    )
    assert preference_tau([1, 0, 1], [0, 1, 0]).value == pytest.approx(-1.0)


def test_tau_is_that_of_scipy_over_both_sides():
    rng = np.random.default_rng(3)
    points, labels = rng.integers(0, 9, 80) / 8, rng.integers(0, 3, 80) / 2
    expected = kendalltau(np.r_[points, 1 - points], np.r_[labels, 1 - labels]).statistic
    assert preference_tau(list(points), list(labels)).value == pytest.approx(expected)


@pytest.mark.parametrize("points", [[], [None, 1.0], [0.5, 0.5]])
def test_tau_needs_verdicts_that_are_not_all_ties(points):
    with pytest.raises(NotEnoughData, match="tau"):
        preference_tau(points, [1.0, None][: len(points)])


def test_other_lengths_are_refused():
    for function in (cohens_kappa, shared_errors, preference_tau):
        with pytest.raises(ValueError, match="got 1 and 2"):
            function([1.0], [1.0, 0.0])


def test_errors_in_common():
    errors = shared_errors([True, True, False, False], [True, True, False, False])
    assert (errors.both_wrong.value, errors.expected, errors.correlation) == (0.5, 0.25, pytest.approx(1.0))
    assert shared_errors([False, False], [True, False]).correlation is None
