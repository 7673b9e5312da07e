import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.stats.agent_metrics import repeated_share, repetition_rate


def test_repeated_share_of_known_cases():
    assert repeated_share("a b c d e f") == 0.0
    assert repeated_share("a b a b a b", 2) == pytest.approx(1 - 2 / 5)
    assert repeated_share("too short") == repeated_share("") == 0.0
    assert repeated_share("go " * 1000) > 0.99
    with pytest.raises(ValueError, match="n_words"):
        repeated_share("a", 0)


def test_repetition_rate_counts_loops():
    found = repetition_rate(["go " * 50, "one two three four five six", None])
    assert (found.value, found.n, found.n_missing) == (0.5, 2, 1)
    with pytest.raises(ValueError, match="threshold"):
        repetition_rate(["a"], threshold=0.0)


@given(st.lists(st.sampled_from("ab"), max_size=30), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_repeated_share_is_bounded(words, n_words):
    assert 0.0 <= repeated_share(" ".join(words), n_words) < 1.0
