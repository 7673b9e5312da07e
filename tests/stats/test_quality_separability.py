import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats.quality import separability

intervals = st.lists(st.tuples(st.floats(-5, 5), st.floats(0, 3)), min_size=2, max_size=7)


def test_separability_equals_the_hand_counted_pairs():
    result = separability([0.0, 0.5, 2.0], [1.0, 1.5, 3.0])  # 0 and 1 overlap, 2 stands apart
    assert result.value == pytest.approx(2 / 3)
    assert str(result) == "0.6667 (n=3 pairs of 3 models, 2 separated, separability)"


def test_touching_intervals_overlap():
    assert separability([0.0, 1.0], [1.0, 2.0]).value == 0.0
    assert separability([1.0, 0.0], [2.0, 1.0]).value == 0.0


def test_bad_input_is_refused():
    with pytest.raises(NotEnoughData, match="no pair"):
        separability([0.0], [1.0])
    with pytest.raises(NotEnoughData, match="empty"):
        separability([], [])
    with pytest.raises(NotEnoughData, match="missing"):
        separability([0.0, np.nan], [1.0, 1.0])
    with pytest.raises(ValueError, match="must not exceed"):
        separability([0.0, 2.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="both ends"):
        separability([0.0, 2.0], [1.0])


@given(intervals)
def test_separability_is_a_share(models):
    low = [middle for middle, _ in models]
    high = [middle + width for middle, width in models]
    assert 0.0 <= separability(low, high).value <= 1.0
