import pytest

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.answers import ExactScorer


def score(answer, reference="Blue whale", **settings):
    item = Item("i", Split.DEV, "?", reference)
    return ExactScorer(**settings).score(item, Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage()))


@pytest.mark.parametrize(
    ("answer", "value"), [("Blue whale", 1.0), (" Blue whale\n", 1.0), ("blue whale", 0.0), ("", 0.0), (None, 0.0)]
)
def test_only_white_space_at_the_ends_is_forgiven(answer, value):
    assert score(answer).value == value


def test_an_empty_reference_is_one_and_a_missing_one_is_a_fault_of_the_item():
    assert score("  ", "").value == 1.0
    missing = score("x", None)
    assert (missing.value, missing.fault) == (None, Fault.JUDGE)


def test_a_long_answer_is_cut_in_the_reason():
    assert len(score("x" * 10_000).reason) < 150


@pytest.mark.parametrize("answer", ["cafe\u0301", "\u200bcaf\u00e9\u200b", "\ufeffcaf\u00e9", " caf\u00e9\n"])
def test_what_looks_like_the_reference_is_the_reference(answer):
    assert score(answer, "caf\u00e9").value == 1.0
    assert score("cafe", "caf\u00e9").value == 0.0


@pytest.mark.parametrize(
    ("answer", "value"),
    [("\n \nBlue whale \nand so on", 1.0), ("Blue whale", 1.0), ("and\nBlue whale", 0.0), ("\n", 0.0), ("", 0.0)],
)
def test_of_a_text_that_goes_on_the_first_line_may_be_the_answer(answer, value):
    assert score(answer, first_line=True).value == value
    assert ExactScorer(first_line=True).version != ExactScorer().version


def test_the_first_line_and_what_follows_a_phrase_are_two_readings():
    with pytest.raises(ConfigError, match="keep one of them"):
        ExactScorer(first_line=True, after="the answer is")
