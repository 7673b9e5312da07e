import pytest

from agent2.errors import EndpointFailed, Fault
from agent2.evaluation.judging import (
    ADDED_PHRASES,
    ContrastPair,
    LabelledPair,
    judge_pairs,
    judge_with_phrases,
    score_contrasts,
)
from agent2.records import Preference, Score

PAIRS = [
    LabelledPair("a", "1 + 1", ("2", "3"), 1.0),
    LabelledPair("b", "1 + 2", ("4", "3"), 0.0),
    LabelledPair("c", "say hello", ("hello", "hi"), 0.5),
]


class FirstShown:
    """Prefers the answer that is shown first, and remembers what it was shown."""

    name, version = "first", "1"

    def __init__(self):
        self.shown = []

    def prefer(self, item, first, second):
        self.shown.append((first.answer, second.answer))
        return Preference(1.0, "the first one")


class Gone(FirstShown):
    def prefer(self, item, first, second):
        return Preference(None, "no route to the server", Fault.INFRASTRUCTURE)


def test_each_pair_is_judged_in_both_orders_and_points_are_those_of_the_first_answer():
    judge = FirstShown()
    judged = judge_pairs(PAIRS, judge)
    assert judge.shown[:2] == [("2", "3"), ("3", "2")]
    assert [(pair.shown_first, pair.shown_second) for pair in judged] == [(1.0, 0.0)] * 3


def test_a_judge_that_cannot_be_reached_ends_the_check():
    with pytest.raises(EndpointFailed, match="no route to the server"):
        judge_pairs(PAIRS, Gone())


def test_phrases_are_added_to_the_worse_answer_and_ties_are_left_out():
    judge = FirstShown()
    judged = judge_with_phrases(PAIRS, judge)
    assert set(judged) == set(ADDED_PHRASES)
    assert all([pair.pair.id for pair in pairs] == ["a", "b"] for pairs in judged.values())
    right, wrong = judge.shown[0]
    assert right == "2"
    assert wrong.startswith("Thank you") and "\n\n3\n\n" in wrong


def test_both_answers_are_scored_under_both_instructions():
    class Reads:
        def score(self, item, rollout):
            return Score(float(item.prompt == rollout.answer), "compared")

    assert score_contrasts([ContrastPair("x", ("red", "blue"), ("red", "blue"))], Reads()) == [1.0, 0.0, 0.0, 1.0]
