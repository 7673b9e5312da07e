from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.answers import RationalScorer, format_rational, parse_rational


def score(answer, reference="7/3"):
    item = Item(id="i", split=Split.DEV, prompt="?", reference=reference)
    rollout = Rollout(
        item_id="i",
        attempt=0,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=(),
        turns=(),
        answer=answer,
        state={},
        usage=Usage(),
    )
    return RationalScorer().score(item, rollout)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", Fraction(12)),
        (" -12\n", Fraction(-12)),
        ("+3", Fraction(3)),
        ("007", Fraction(7)),
        ("14/6", Fraction(7, 3)),
        ("-7 / 3", Fraction(-7, 3)),
        ("2.5", Fraction(5, 2)),
        (".5", Fraction(1, 2)),
        ("-0.125", Fraction(-1, 8)),
    ],
)
def test_integers_fractions_and_decimals_are_read_exactly(text, value):
    assert parse_rational(text) == value


WORDS = ["", "-", "twelve", "12 apples", "= 12", "inf", "nan"]
ODD_NOTATIONS = ["1 2", "1,000", "1e3", "7/0", "7/-3", "1/2/3", "5.", "0x10", "1_0", "\u0661\u0662", "9" * 5000]


@pytest.mark.parametrize("text", WORDS + ODD_NOTATIONS)
def test_anything_else_is_no_number(text):
    assert parse_rational(text) is None


@given(st.fractions())
def test_what_is_written_is_read_back(value):
    assert parse_rational(format_rational(value)) == value


def test_equal_numbers_score_one_however_they_are_written():
    assert score("7/3").value == 1.0
    assert score("14/6").value == 1.0
    assert score("2.5", reference="5/2").value == 1.0


def test_a_near_miss_scores_zero():
    assert score("2.3333333333").value == 0.0


def test_an_answer_that_is_no_number_or_is_missing_is_wrong_and_not_missing():
    unreadable = score("about two")
    assert (unreadable.value, unreadable.fault) == (0.0, None)
    assert "'about two' is not one integer" in unreadable.reason
    assert score(None).value == 0.0


@pytest.mark.parametrize("reference", [None, "x"])
def test_an_item_without_a_usable_reference_cannot_be_judged(reference):
    verdict = score("4", reference=reference)
    assert (verdict.value, verdict.fault) == (None, Fault.JUDGE)
