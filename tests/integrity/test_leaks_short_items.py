import pytest

from agent2.integrity.leaks import ShortIndex

SUMS = ["Calculate 93 + 61", "Calculate 3 + 6", "Calculate 12 - 88"]
GIVEN = ["Calculate 5 + 5", "Calculate 44 - 2"]


@pytest.fixture
def index():
    return ShortIndex(SUMS, GIVEN)


@pytest.mark.parametrize(
    "text",
    [
        "Calculate 93 + 61",
        "calculate  93+61",
        "<|user|>Calculate 93 + 61<|assistant|>154<|end|>",
        "### Question Calculate 93 + 61 ### Answer 154",
        "table = {'93 + 61': 154}",
        "93 + 61 = 154",
        "93+61 -> 154",
    ],
)
def test_a_short_item_is_found_in_every_usual_form(index, text):
    assert index.search(text) == [0]


@pytest.mark.parametrize(
    "text",
    [
        "Calculate 93 - 61",
        "Calculate 93 + 610",
        "Calculate 193 + 61",
        "Calculate 61 + 93",
        "add 93 and 61",
        "Calculate 93 + 6\n1",  # a question and its answer, in two fields of one row
        "Calculate 93 + 6 1",
        "13 + 6",
        "Calculate 5 + 5",
        "",
    ],
)
def test_other_questions_are_not_met(index, text):
    assert index.search(text) == []


def test_the_sign_is_part_of_the_question(index):
    assert index.search("Calculate 12 - 88") == [2] and index.search("Calculate 12 + 88") == []


def test_visible_data_proves_nothing():
    assert ShortIndex([*SUMS, GIVEN[0]], GIVEN).search(GIVEN[0]) == []


def test_a_longer_short_item_is_found_inside_a_text():
    item = "Write about the star and use no commas"
    assert ShortIndex([item, "Who sang first in the hall"]).search(f"Some words. {item}! More words") == [0]


def test_one_item_is_not_cut_down_to_nothing():
    assert ShortIndex(["What is the capital of Peru"]).search("what is the capital of peru") == [0]


def test_no_items_find_nothing():
    assert ShortIndex([]).search("anything") == []
