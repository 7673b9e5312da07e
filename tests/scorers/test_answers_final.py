import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.answers import (
    FinalAnswerScorer,
    final_answer_line,
    flexible_answer,
    reference_value,
    strict_answer,
)


def score(answer, reference="#### 18"):
    item = Item("i", Split.DEV, "?", reference)
    return FinalAnswerScorer().score(item, Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage()))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#### 18", 18),
        ("3 + 15 = 18\n#### 18", 18),
        ("#### 18.", 18),
        ("#### 18.0", 18),
        ("#### 18 dollars", 18),
        ("#### 18kg", 18),
        ("#### 18%", 18),
        ("#### -18", -18),
        ("#### 1,234,567.50", Fraction("1234567.5")),
        ("#### .5", Fraction(1, 2)),
        ("```\n#### 18\n```", 18),
        ("#### 18\n\nQuestion: more?\n#### 5", 18),
        ("#### none\n#### 18", 18),
        ("#### 18, since 9 + 9 = 18", 18),
    ],
)
def test_the_strict_reading_takes_the_number_behind_the_first_marker(text, value):
    assert strict_answer(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "18",
        "The answer is 18.",
        "####18",
        "####  18",
        "### 18",
        "#### $18",
        "#### +18",
        "#### **18**",
        "#### −18",
        "#### １８",
        "#### 1,8",
        "#### 5/2",
        "#### 5 / 2",
        "#### 18-20",
        "#### 18k",
        "#### 18 million",
        "#### 1e3",
        "#### 5.k",
        "#### 1.2.3",
        "#### 2½",
        "#### ,5",
        "#### 12,34",
        "#### 2^3",
        "#### ",
        "#### -",
        "#### " + "9" * 301,
    ],
)
def test_what_is_no_final_line_or_no_whole_number_is_not_read_strictly(text):
    assert strict_answer(text).value is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It costs $18.", 18),
        ("The answer is 18...", 18),
        ("between 3-18", 18),
        ("x=-18", -18),
        ("−18", -18),
        ("-$18", -18),
        ("１８", 18),
        ("1\u202f800", 1800),
        ("1,800 or 18", 18),
        ("2½", Fraction(5, 2)),
        ("18th", 18),
        ("\\boxed{18}", 18),
        ("**18**", 18),
        ("3/4", 4),
        ("no number", None),
        ("18k", None),
        ("1,8", None),
        ("a1", None),
    ],
)
def test_the_flexible_reading_takes_the_last_number(text, value):
    assert flexible_answer(text).value == value


@given(st.integers(-(10**12), 10**12))
def test_the_line_that_we_ask_for_reads_back(value):
    text = f"some 12 work\n{final_answer_line(value)}"
    assert strict_answer(text).value == flexible_answer(text).value == reference_value(text) == value


@pytest.mark.parametrize(
    ("answer", "value", "parsed", "flexible", "labels"),
    [
        ("9 + 9 = 18\n#### 18", 1.0, 1.0, 1.0, ()),
        ("#### 20", 0.0, 1.0, 0.0, ("gsm8k_wrong_final_answer",)),
        ("It is 18.", 0.0, 0.0, 1.0, ("gsm8k_final_answer_format_error",)),
        ("It is 20.", 0.0, 0.0, 0.0, ("gsm8k_final_answer_format_error",)),
        ("#### 18k", 0.0, 0.0, 0.0, ("gsm8k_final_answer_format_error",)),
        ("", 0.0, 0.0, 0.0, ("gsm8k_final_answer_format_error",)),
        (None, 0.0, 0.0, 0.0, ("gsm8k_final_answer_format_error",)),
    ],
)
def test_full_marks_need_a_final_answer_that_can_be_read_and_the_views_tell_format_from_answer(
    answer, value, parsed, flexible, labels
):
    verdict = score(answer)
    assert (verdict.value, verdict.labels) == (value, labels)
    assert verdict.views == {"answer_parsed": parsed, "flexible_match": flexible}


@pytest.mark.parametrize(
    ("reference", "value"), [("18", 18), ("Work: 3.\n#### 1,800", 1800), ("$18", 18), ("ten", None), ("", None)]
)
def test_a_reference_is_a_number_or_a_worked_solution(reference, value):
    assert reference_value(reference) == value


@pytest.mark.parametrize("reference", [None, "ten", "18 or 20"])
def test_an_item_without_a_usable_reference_is_missing_and_not_zero(reference):
    verdict = score("#### 18", reference)
    assert (verdict.value, verdict.fault) == (None, Fault.JUDGE)


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "1," * 50_000, "#### " * 20_000, "-$" * 50_000, "1 " * 50_000, "½" * 50_000]
)
def test_no_answer_takes_long(text):
    started = time.process_time()
    score(text)
    assert time.process_time() - started < 10
