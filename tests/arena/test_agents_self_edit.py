"""The rules by which the agent self-edit edits a text, with the verifier of the task."""

import sys

import pytest

from agent2.arena.agents import load_agent
from agent2.benchmarks import load_benchmark
from agent2.evaluation.engine import scored_answers
from agent2.records import Split

WRITTEN = (
    "**Old Lamp**\n\nThe lamp was broken, but it still shone in the window. I was so happy, and we all laughed! "
    "Come and see it soon, my dear friend, before the winter comes and the river is frozen.",
    'Title: "Coffee"\n\n1. Drink it in the morning, slowly.\n2. Share it with people you love.\n3. Enjoy the smell.',
    "I'm glad that you asked. Here is a short text about a rainy day in the old town, as you wanted it to be",
)


@pytest.fixture(scope="module")
def edits():
    folder = str(load_agent("self-edit").folder)
    sys.path.insert(0, folder)
    try:
        from edits import edits as edits_of_text
    finally:
        sys.path.remove(folder)
        sys.modules.pop("edits", None)
    return edits_of_text


def constraints(item):
    return dict(zip(item.payload["instruction_id_list"], item.payload["kwargs"], strict=True))


def is_accepted(benchmark, item, text):
    (scored,) = scored_answers(benchmark, [(item, [text])])
    return scored.score.value == 1.0


@pytest.mark.parametrize("written", WRITTEN)
def test_nearly_every_text_has_an_edit_that_the_verifier_accepts_and_that_still_says_something(edits, written):
    benchmark = load_benchmark("instructions")
    items = benchmark.items(Split.TRAIN, 150, None)
    accepted = {item.id: next((t for t in edits(written, constraints(item)) if is_accepted(benchmark, item, t)), None)
                for item in items}  # fmt: skip
    unsolved = [item.prompt for item in items if accepted[item.id] is None]
    assert len(unsolved) <= 8, unsolved
    own = set(written.lower().replace(",", " ").replace(".", " ").split())
    for item in items:
        if (text := accepted[item.id]) is not None:
            kept = [word for word in text.lower().replace(",", " ").replace(".", " ").split() if word in own]
            assert len(kept) >= 3, (item.prompt, text)


def test_edits_come_from_the_longest_to_the_shortest_and_end_with_whole_sentences_where_they_can(edits):
    texts = list(edits("It rains today. We stay at home and read. Come over!", {}))
    assert texts[:2] == [
        "It rains today. We stay at home and read. Come over.",
        "It rains today. We stay at home and read.",
    ]


@pytest.mark.parametrize("written", ["", "* ***\n* ***", "<<Title>>", "Yes, I do."])
def test_a_text_of_fewer_than_four_words_has_no_edit(edits, written):
    assert list(edits(written, {"change_case:english_lowercase": {}})) == []
