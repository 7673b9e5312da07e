import pytest

from agent2.errors import Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.constraints import ConstraintScorer

WORDS, COMMA, KEYWORD, GERMAN = (
    "length_constraints:number_words",
    "punctuation:no_comma",
    "keywords:existence",
    "language:response_language",
)


def score(names, kwargs, answer):
    item = Item("i", Split.DEV, "?", None, {"instruction_id_list": names, "kwargs": kwargs})
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())
    return ConstraintScorer().score(item, rollout)


def test_the_score_is_prompt_level_strict_and_the_views_hold_the_other_three_numbers():
    names = [WORDS, COMMA]
    arguments = [{"num_words": 3, "relation": "less than"}, {}]
    assert score(names, arguments, "one two").value == 1.0
    half = score(names, arguments, "one, two")
    assert half.value == 0.0
    assert half.views["instruction_level"] == 0.5
    assert half.views["prompt_level_loose"] == 0.0
    assert half.reason == "punctuation:no_comma: 1 commas"


def test_the_loose_reading_forgives_a_first_line_and_asterisks():
    verdict = score(["startend:quotation"], [{}], 'Sure!\n*"Yes."*')
    assert (verdict.value, verdict.views["prompt_level_loose"]) == (0.0, 1.0)
    assert (verdict.views["instructions_followed"], verdict.views["instructions_followed_loose"]) == (0.0, 1.0)


def test_each_instruction_may_be_loosely_followed_in_another_variant():
    names, kwargs = ["startend:quotation", "startend:end_checker"], [{}, {"end_phrase": "bye"}]
    verdict = score(names, kwargs, '"Yes."\nbye')
    assert verdict.views["prompt_level_loose"] == 1.0
    assert verdict.views["instruction_level"] == 0.5


def test_counts_of_each_class_make_pooled_accuracies():
    verdict = score([WORDS, KEYWORD], [{"num_words": 2, "relation": "at least"}, {"keywords": ["sun"]}], "two words")
    counts = {key: value for key, value in verdict.views.items() if key.endswith(("_instructions", "_followed"))}
    assert counts == {
        "keyword_instructions": 1.0,
        "keyword_followed": 0.0,
        "length_instructions": 1.0,
        "length_followed": 1.0,
        "format_instructions": 0.0,
        "format_followed": 0.0,
        "language_instructions": 0.0,
        "language_followed": 0.0,
        "instructions_followed": 1.0,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "label"),
    [
        (KEYWORD, {"keywords": ["sun"]}, "rain", "ifeval_keyword_missing"),
        ("keywords:forbidden_words", {"forbidden_words": ["sun"]}, "sun", "ifeval_keyword_forbidden"),
        ("keywords:frequency", {"keyword": "a", "frequency": 9, "relation": "at least"}, "a", "ifeval_keyword_missing"),
        (
            "keywords:frequency",
            {"keyword": "a", "frequency": 1, "relation": "less than"},
            "a",
            "ifeval_keyword_forbidden",
        ),
        (WORDS, {"num_words": 1, "relation": "less than"}, "a b", "ifeval_length_constraint_violation"),
        (COMMA, {}, ",", "ifeval_format_constraint_violation"),
        (GERMAN, {"language": "de"}, "the dog is red", "ifeval_language_constraint_violation"),
    ],
)
def test_a_failure_is_labelled_with_its_class(name, arguments, answer, label):
    assert score([name], [arguments], answer).labels == (label,)


def test_one_class_is_labelled_once_and_a_success_not_at_all():
    assert score([COMMA, "startend:quotation"], [{}, {}], "a,b").labels == ("ifeval_format_constraint_violation",)
    assert score([COMMA], [{}], "a").labels == ()


@pytest.mark.parametrize("answer", [None, "", "  \n"])
def test_no_answer_follows_nothing_strictly_or_loosely(answer):
    verdict = score([COMMA], [{}], answer)
    assert (verdict.value, verdict.views["prompt_level_loose"]) == (0.0, 0.0)


@pytest.mark.parametrize("payload", [{}, {"instruction_id_list": ["x:y"], "kwargs": [{}]}])
def test_an_item_that_cannot_be_judged_is_missing_and_not_zero(payload):
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), "a", {}, Usage())
    verdict = ConstraintScorer().score(Item("i", Split.DEV, "?", None, payload), rollout)
    assert (verdict.value, verdict.fault) == (None, Fault.JUDGE)
