"""Agreement of raters, on published examples."""

import pytest

from agent2.errors import NotEnoughData
from agent2.stats.quality import cohens_kappa, krippendorff_alpha, shared_errors

GAP = None


def test_kappa_of_a_worked_table():
    one, other = ["y"] * 25 + ["n"] * 25, ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    found = cohens_kappa(one, other)
    assert found.value == pytest.approx(0.4) and found.low < 0.4 < found.high and found.n == 50


def test_alpha_of_the_example_of_its_authors():
    """Krippendorff 2011, section C: four observers, twelve units, missing data, nominal alpha 0.743."""
    ratings = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, GAP, GAP, GAP],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, GAP, 3],
        [GAP, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, GAP],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, GAP],
    ]
    found = krippendorff_alpha(ratings)
    assert found.value == pytest.approx(0.743, abs=5e-4) and found.n == 11 and found.n_missing == 1


def test_missing_ratings_are_no_category():
    assert cohens_kappa(["a", "b", None, "a"], ["a", "b", "b", None]).value == 1.0
    assert cohens_kappa(["a", "b", None, "a"], ["a", "b", "b", None]).n_missing == 2


@pytest.mark.parametrize("ratings", [([None], ["a"]), (["a", "a"], ["a", "a"]), ([], [])])
def test_too_little_raises(ratings):
    with pytest.raises(NotEnoughData):
        cohens_kappa(*ratings)
    with pytest.raises(NotEnoughData):
        krippendorff_alpha(list(ratings))


def test_other_lengths_are_refused():
    for function in (cohens_kappa, shared_errors):
        with pytest.raises(ValueError, match="got 1 and 2"):
            function(["a"], ["a", "b"])


def test_errors_in_common():
    found = shared_errors([True, True, False, False], [True, True, False, False])
    assert (found.both_wrong.value, found.expected, found.correlation) == (0.5, 0.25, pytest.approx(1.0))
    assert shared_errors([False, False], [True, False]).correlation is None
