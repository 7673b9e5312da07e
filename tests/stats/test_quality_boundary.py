import numpy as np
import pytest

from agent2.errors import NotEnoughData
from agent2.stats.estimates import wilson
from agent2.stats.quality import BoundaryChange, compare_boundaries


def rng(seed=0):
    return np.random.default_rng(seed)


def test_expansion_and_shrinkage_of_a_hand_computed_case():
    # items: 0 and 1 never solved by the base, 2 and 3 solved
    base = ([0, 0, 2, 4], [4] * 4)
    trained = ([2, 0, 0, 4], [4] * 4)
    report = compare_boundaries(base, trained, 2, rng())
    # pass@2 of 2 in 4: 1 - C(2,2)/C(4,2) = 5/6
    assert report.expansion.value == pytest.approx((5 / 6 + 0) / 2)
    assert report.shrinkage.value == pytest.approx((1 + 0) / 2)
    assert report.pass_at_1.change.value == pytest.approx(0.0)
    assert report.pass_at_k.change.value == pytest.approx(0.0)
    assert report.change is BoundaryChange.NONE_SHOWN
    assert "pass@1 " in str(report) and "pass@2 " in str(report)


def test_sharpening_is_told_from_expansion_and_narrowing():
    n = 100
    base = ([2] * n, [16] * n)
    assert compare_boundaries(base, ([16] * n, [16] * n), 15, rng(), 500).change is BoundaryChange.SHARPENING
    never = ([0] * n, [16] * n)
    assert compare_boundaries(never, base, 8, rng(), 500).change is BoundaryChange.EXPANSION
    # half of the items always, the other half never: pass@1 rises, pass@16 falls
    half = ([16, 0] * (n // 2), [16] * n)
    report = compare_boundaries(base, half, 16, rng(), 500)
    assert report.pass_at_1.change.low > 0
    assert report.change is BoundaryChange.NARROWING


def test_no_boundary_or_nothing_to_lose_is_none():
    solved = ([1, 2], [4, 4])
    report = compare_boundaries(solved, solved, 4, rng(), 100)
    assert report.expansion is None
    assert report.shrinkage.value == 0.0
    unsolved = ([0, 0], [4, 4])
    report = compare_boundaries(unsolved, unsolved, 4, rng(), 100)
    assert report.shrinkage is None
    assert report.expansion.value == 0.0
    assert "none to lose" in str(report)


def test_bad_input_is_refused():
    with pytest.raises(NotEnoughData, match="pass@8 needs 8"):
        compare_boundaries(([0], [8]), ([0], [4]), 8, rng())
    with pytest.raises(NotEnoughData, match="empty"):
        compare_boundaries(([], []), ([], []), 2, rng())
    with pytest.raises(ValueError, match="at least 2"):
        compare_boundaries(([0], [8]), ([0], [8]), 1, rng())
    with pytest.raises(ValueError, match="item by item"):
        compare_boundaries(([0], [8]), ([0, 1], [8, 8]), 2, rng())
    with pytest.raises(NotEnoughData, match="missing"):
        compare_boundaries(([np.nan], [8]), ([0], [8]), 2, rng())


def test_one_item_shows_no_change():
    report = compare_boundaries(([0], [10]), ([5], [10]), 2, rng(), 200)
    assert report.pass_at_k.change.low > 0  # equal differences: an interval without width
    assert report.change is BoundaryChange.NONE_SHOWN
    assert (report.expansion.n, report.expansion.low) == (1, None)


def test_few_items_all_gained_are_no_certain_expansion():
    report = compare_boundaries(([0] * 5, [8] * 5), ([8] * 5, [8] * 5), 8, rng(), 200)
    assert report.expansion.value == 1.0
    assert report.expansion.low == pytest.approx(wilson(5, 5).low)
