"""Verdicts on answers about pictures, worked out by hand from the published rules, and what was misread."""

import pytest

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers import load_scorer
from agent2.scorers.vision_answers import mathvista_form, mmmu_letter, mmmu_open_answers

OPTIONS = ["red", "blue", "dark green"]
MISTAKES = {"chart_axis_value_misread": ["50"], "ocr_error": ["38"], "reasoning_error": ["50", "70"]}


def score(name, answer, reference, payload=None, **settings):
    item = Item("i", Split.DEV, "?", reference, payload or {})
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())
    return load_scorer(name, settings).score(item, rollout)


@pytest.mark.parametrize(
    ("answer", "reference", "relaxed", "exact", "any_notation"),
    [
        ("100", "100", 1.0, 1.0, 1.0),
        ("105", "100", 1.0, 0.0, 1.0),
        ("106", "100", 0.0, 0.0, 0.0),
        ("45%", "0.45", 1.0, 1.0, 1.0),
        ("1,000", "1000", 0.0, 1.0, 1.0),  # the published rule reads no commas
        ("$5", "5", 0.0, 1.0, 1.0),
        ("0", "0", 1.0, 1.0, 1.0),
        ("0.001", "0", 0.0, 0.0, 0.0),
        ("2008", "2010", 1.0, 0.0, 0.0),
        ("YES", "yes", 1.0, 1.0, 1.0),
        ("yes.", "yes", 0.0, 0.0, 0.0),
        ("nan", "3", 0.0, 0.0, 0.0),
        ("9" * 100_000, "9", 0.0, 0.0, 0.0),
    ],
)
def test_the_published_relaxed_verdict_stands_beside_the_exact_layer(answer, reference, relaxed, exact, any_notation):
    verdict = score("relaxed_accuracy", answer, reference)
    assert (verdict.value, verdict.views["exact_match"], verdict.views["relaxed_numeric"]) == (
        relaxed,
        exact,
        any_notation,
    )


def test_what_follows_a_marker_is_the_answer_and_nothing_behind_it_is_none():
    marked = {"after": "Final answer:"}
    assert score("relaxed_accuracy", "It has 3 bars. FINAL ANSWER: 41", "41", **marked).value == 1.0
    assert score("relaxed_accuracy", "41", "41", **marked).value == 1.0
    empty = score("relaxed_accuracy", "Final answer:", "41", **marked)
    assert (empty.value, empty.labels, empty.views["answer_parsed"]) == (0.0, ("answer_parse_fail",), 0.0)
    with pytest.raises(ConfigError, match="'after' is empty"):
        load_scorer("relaxed_accuracy", {"after": " "})
    with pytest.raises(ConfigError, match="tolerance is 1"):
        load_scorer("relaxed_accuracy", {"tolerance": 1})


def test_the_published_form_of_anls_differs_at_one_half_and_in_blanks():
    assert (score("anls", "ab", "ac").value, score("anls", "ab", "ac", rule="published").value) == (0.0, 0.5)
    assert score("anls", "a  b", "a b").value == 1.0
    assert score("anls", "a  b", "a b", rule="published").value == 1.0
    assert score("anls", "x" * 1_000_000, "y", rule="published").value == 0.0
    assert load_scorer("anls", {"rule": "published"}).version != load_scorer("anls").version == "1.0"
    with pytest.raises(ConfigError, match="rule 'lmms' is unknown"):
        load_scorer("anls", {"rule": "lmms"})


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("(A) or (C)", "C"),
        ("The answer is B.", "B"),
        ("The DNA is long", "A"),  # as published: the end of a word counts
        ("It seems to me that it is blue", "B"),
        ("It is blue", None),  # as published: texts of options only in longer answers
        ("I cannot tell", None),
        ("", None),
    ],
)
def test_mmmu_reads_letters_as_published_and_draws_none(answer, letter):
    assert mmmu_letter(answer, OPTIONS) == letter
    assert score("mmmu", answer, "B", {"options": OPTIONS}).value == float(letter == "B")


def test_an_unread_choice_is_told_apart_from_a_wrong_one():
    assert score("mmmu", "I cannot tell", "B", {"options": OPTIONS}).labels == ("answer_parse_fail",)
    assert score("mmmu", "A", "B", {"options": OPTIONS}).labels == ("wrong_choice",)
    assert score("mmmu", "", "B", {"options": OPTIONS}).labels == ("no_answer",)
    assert score("mmmu", "A", "Q", {"options": OPTIONS}).fault is Fault.JUDGE


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("The result is 1,234.567", "1234.57", 1.0),
        ("x = 3\ny = 4", "3", 0.0),  # only the last line's "=" leads to an answer
        ("x = 3\ny = 4", "4", 1.0),
        ("so it is the Doppler effect", "doppler effect", 1.0),
        ("a magnet", "a", 1.0),  # a single letter, with a blank behind it
        ("magnet", "a", 0.0),
        ("5", "6", 0.0),
    ],
)
def test_an_open_answer_matches_by_number_or_by_text_within(answer, reference, value):
    assert score("mmmu", answer, reference, {"question_type": "open"}).value == value


def test_open_answers_take_the_shortest_text_behind_a_lead():
    assert mmmu_open_answers("I think so the answer is 7.") == [7.0, 7.0], "the text and the number in it"
    assert mmmu_open_answers("nothing leads") == ["nothing leads"]


def mathvista(answer, reference, kind, precision=0, options=(), **settings):
    form = "multi_choice" if options else "free_form"
    payload = {"question_type": form, "answer_type": kind, "precision": precision, "options": list(options)}
    return score("mathvista", answer, reference, payload, **settings)


def test_mathvista_rounds_to_the_form_of_the_question():
    assert mathvista("14.7", "14", "integer").value == 1.0
    assert mathvista("It is 0.649 in all", "0.6", "float", 1).value == 1.0
    assert mathvista("It is 0.66 in all", "0.6", "float", 1).value == 0.0
    assert mathvista("1.5", "1.50", "float", 2).value == 1.0
    assert mathvista("Between [2007, 2008].", "[2007, 2008]", "list").value == 1.0
    assert mathvista('The answer is "14".', "14", "integer").value == 1.0
    assert mathvista("many", "14", "integer").labels == ("answer_parse_fail",)
    assert mathvista("1e999", "14", "integer").value == 0.0
    assert mathvista("14", "14", "float", float("nan")).value == 1.0


def test_mathvista_takes_the_nearest_option_and_nothing_for_a_refusal():
    assert mathvista_form("(b) blue", OPTIONS, "text", 0) == "blue"
    assert mathvista_form("dark gren", OPTIONS, "text", 0) == "dark green"
    assert mathvista_form("I cannot see any picture", OPTIONS, "text", 0) is None
    assert mathvista("The answer is (C).", "C", "text", options=OPTIONS).value == 1.0
    assert mathvista("I cannot see any picture", "C", "text", options=OPTIONS).labels == ("answer_parse_fail",)
    assert mathvista("I cannot see any picture", "A", "text", options=OPTIONS).value == 0.0
    assert mathvista("C", "Z", "text", options=OPTIONS).fault is Fault.JUDGE
    with pytest.raises(ConfigError, match="rule 'model' is unknown"):
        load_scorer("mathvista", {"rule": "model"})


def test_errors_of_reading_and_of_reasoning_are_apart():
    misread = score("relaxed_accuracy", "38", "60", {"mistakes": MISTAKES})
    assert misread.labels == ("ocr_error",)
    assert {name: misread.views[name] for name in ("ocr_error", "grounding_error", "reasoning_error")} == {
        "ocr_error": 1.0,
        "grounding_error": 0.0,
        "reasoning_error": 0.0,
    }
    assert score("relaxed_accuracy", "70", "60", {"mistakes": MISTAKES}).views["reasoning_error"] == 1.0
    both = score("relaxed_accuracy", "50", "60", {"mistakes": MISTAKES})
    assert both.labels == ("wrong_answer",) and both.views["grounding_error"] == 0.0, "two classes lead to it"
    right = score("relaxed_accuracy", "60", "60", {"mistakes": MISTAKES})
    assert right.labels == () and right.views["ocr_error"] == 0.0


def test_a_misreading_that_nobody_looked_for_is_not_counted_as_absent():
    assert "ocr_error" not in score("relaxed_accuracy", "38", "60").views


@pytest.mark.parametrize(
    ("mistakes", "message"),
    [
        ({"ocr": ["1"]}, "names the class 'ocr'"),
        ({"ocr_error": "1"}, "ocr_error is not a list"),
        ({"ocr_error": ["60"]}, "leads to '60', a right answer"),
        (["ocr_error"], "has to be a record"),
    ],
)
def test_unusable_mistakes_are_refused_with_their_row(mistakes, message):
    with pytest.raises(ConfigError, match=message) as raised:
        load_scorer("relaxed_accuracy").read_item("60", {"mistakes": mistakes}, "test.jsonl:3")
    assert str(raised.value).startswith("test.jsonl:3: ")


def test_classes_that_a_table_leaves_empty_are_none():
    payload = {"mistakes": {"ocr_error": ["38"], "reasoning_error": None}}
    assert load_scorer("relaxed_accuracy").read_item("60", payload, "t:1") == payload
    assert score("relaxed_accuracy", "38", "60", payload).labels == ("ocr_error",)
    assert load_scorer("relaxed_accuracy").read_item("60", {"mistakes": {}, "type": "x"}, "t:1") == {"type": "x"}
