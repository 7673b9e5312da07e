import time

import pytest

from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.answers import ChoiceScorer, chosen_letter, last_letter

FOUR = ["red", "blue", "green", "gold"]
OPTIONS = {"options": FOUR}


def score(answer, reference="B", payload=OPTIONS):
    item = Item("i", Split.DEV, "?", reference, payload)
    return ChoiceScorer().score(item, Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage()))


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "b",
        " (B) ",
        "**B**",
        "`B`",
        "```\nB\n```",
        "B.",
        "B) blue",
        "b. blue",
        "B: blue",
        "The answer is (B).",
        "the answer is B",
        "The answer is: **B**",
        "The answer is [B].",
        "The answer is option B.",
        "The correct answer is\nB",
        "Answer: B",
        "ANSWER: b",
        "**Answer:** B",
        "The answer is (B), not (C).",
        "First the answer is (B), then the answer is (C).",
        "Answer: B\nAnswer: C",
        "The answer is Apples. Answer: B",
        "B) blue, as the sky is.",
        "b) Blue",
        "(a) The first part gives 3. (b) The second gives 4. The answer is (B).",
        "I. False. II. True. The answer is (B).",
        "The answer is $B$",
        "It is A. The answer is B",
    ],
)
def test_the_letter_is_read_as_published_and_where_nothing_else_can_be_meant(text):
    assert chosen_letter(text, FOUR).letter == "B"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "blue",
        "Blue",
        "I would choose B",
        "The answer is Blue",
        "the answer is B-side",
        "The answer is E",
        "E",
        "BB",
        "B C",
        "?",
        "Answer - B",
        "The answer is none",
        "B+",
        "(b) The ratio in the complementary strand is 1/0.3 = 3.3, which settles part two",
        "B) blueberries",
        "The answer is E. The answer is B",
    ],
)
def test_what_names_no_option_is_no_choice(text):
    assert chosen_letter(text, FOUR).letter is None


def test_the_number_of_options_decides_what_is_a_letter():
    assert chosen_letter("The answer is (J).", list("0123456789")).letter == "J"
    assert chosen_letter("C", FOUR[:2]).letter is None


@pytest.mark.parametrize(
    ("text", "letter"), [("I would choose B", "B"), ("A or B? C.", "C"), ("Blue", None), ("x", None)]
)
def test_the_flexible_reading_takes_the_last_letter_that_stands_alone(text, letter):
    assert last_letter(text, 4) == letter


@pytest.mark.parametrize(
    ("answer", "value", "parsed", "flexible", "chosen", "labels"),
    [
        ("B", 1.0, 1.0, 1.0, "chose_b", ()),
        ("The answer is C.", 0.0, 1.0, 0.0, "chose_c", ("mmlu_wrong_choice",)),
        ("I would choose B", 0.0, 0.0, 1.0, None, ("mmlu_answer_parse_fail",)),
        ("", 0.0, 0.0, 0.0, None, ("mmlu_answer_parse_fail",)),
        (None, 0.0, 0.0, 0.0, None, ("mmlu_answer_parse_fail",)),
    ],
)
def test_the_views_tell_format_answer_and_position_apart(answer, value, parsed, flexible, chosen, labels):
    verdict = score(answer)
    assert (verdict.value, verdict.labels) == (value, labels)
    assert (verdict.views["answer_parsed"], verdict.views["flexible_match"]) == (parsed, flexible)
    positions = {key: number for key, number in verdict.views.items() if key.startswith("chose_")}
    assert positions == {f"chose_{letter}": float(f"chose_{letter}" == chosen) for letter in "abcd"}


@pytest.mark.parametrize(
    ("reference", "payload"), [(None, OPTIONS), ("E", OPTIONS), ("BC", OPTIONS), ("B", {}), ("B", {"options": ["one"]})]
)
def test_an_item_that_cannot_be_judged_is_missing_and_not_zero(reference, payload):
    verdict = score("B", reference, payload)
    assert (verdict.value, verdict.fault) == (None, Fault.JUDGE)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "answer is " * 20_000,
        "answer is" + " " * 90_000,
        "answer is option" + " " * 90_000,
        "answer" + " " * 90_000 + "x",
        " " * 100_000,
        "*" * 99_000 + "B",
        "A" * 100_000,
        "answer:" * 20_000,
    ],
)
def test_no_answer_takes_long(text):
    started = time.process_time()
    score(text)
    assert time.process_time() - started < 1.0


def test_a_question_with_one_option_as_five_of_mmlu_pro_have_is_scored():
    assert score("The answer is (A).", "A", {"options": ["one"]}).value == 1.0
