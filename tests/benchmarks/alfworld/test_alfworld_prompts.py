import json

import pytest

from agent2.benchmarks.alfworld import (
    AUTHORS_EXAMPLES,
    examples,
    published_examples,
    react_opening,
    read_examples,
    translate_placements,
    unknown_commands,
)
from agent2.environments.household.engine import shared_engine
from agent2.environments.household.game import TASK_TYPES, Game
from agent2.environments.household.world import OBSERVATION_SLOT
from agent2.errors import ConfigError

pytestmark = pytest.mark.engine

OLD = """You are in the middle of a room. Looking quickly around you, you see a shelf 1.
Your task is to: put a hot mug in shelf.
> think: I need to put mug 1 in/on shelf 1.
OK.
>go to desk 1
On the desk 1, you see a mug 1.
> take mug 1 from desk 1
You pick up the mug 1 from the desk 1.
> heat mug 1 with microwave 1
You heat the mug 1 using the microwave 1.
> put mug 1 in/on shelf 1
You put the mug 1 in/on the shelf 1.
> use desklamp 1
You turn on the desklamp 1.
> look
"""
"""An example in the words of alfworld before 0.4.0."""


def write_authors_file(folder, example=OLD):
    keys = ("put", "clean", "heat", "cool", "examine", "puttwo")
    (folder / AUTHORS_EXAMPLES).write_text(json.dumps({f"react_{key}_{n}": example for key in keys for n in range(3)}))
    return folder


@pytest.mark.parametrize("record", read_examples(), ids=lambda record: record["task_type"])
def test_every_example_is_what_the_engine_says_to_its_actions(record):
    engine = shared_engine()
    position = engine.start(Game.from_payload(record["game"]))
    assert record["opening"].split("\n")[-1] in position.observation
    for action, observation in record["lines"]:
        if action.startswith("think:"):
            assert observation == "OK."
            continue
        position = engine.move(position, action)
        assert position.observation == observation
    assert position.won


def test_every_task_type_has_two_different_examples_of_its_own():
    assert set(examples()) == set(TASK_TYPES)
    assert all(first != second for first, second in examples().values())


def test_a_prompt_is_two_examples_and_then_the_game():
    (message,) = react_opening("pick_two_obj_and_place")
    first, second = examples()["pick_two_obj_and_place"]
    text = message["content"]
    assert text.index(first) < text.index(second) < text.index(OBSERVATION_SLOT)
    assert text.count("> think:") >= 4


def test_old_placements_are_read_in_the_words_of_the_installed_engine_and_nothing_else_changes(tmp_path):
    assert unknown_commands(OLD) == ["put mug 1 in/on shelf 1"]
    (first, second), *_ = published_examples(write_authors_file(tmp_path)).values()
    assert first == second == translate_placements(OLD)
    changed = [(old, new) for old, new in zip(OLD.splitlines(), first.splitlines(), strict=True) if old != new]
    assert changed == [
        ("> put mug 1 in/on shelf 1", "> move mug 1 to shelf 1"),
        ("You put the mug 1 in/on the shelf 1.", "You move the mug 1 to the shelf 1."),
    ]


def test_a_translated_placement_is_carried_out_and_answered_as_the_example_says():
    record = read_examples()[0]
    move, reply = record["lines"][-1]
    _, noun, number, _, place, place_number = move.split()
    old = f"> put {noun} {number} in/on {place} {place_number}\n"
    old += f"You put the {noun} {number} in/on the {place} {place_number}."
    assert translate_placements(old) == f"> {move}\n{reply}"


def test_every_action_of_every_example_is_a_command_of_the_installed_grammar():
    texts = [text for pair in examples().values() for text in pair]
    assert [unknown_commands(text) for text in texts] == [[]] * 12
    assert unknown_commands(translate_placements(OLD)) == []


def test_an_example_with_a_command_that_nobody_knows_is_refused(tmp_path):
    write_authors_file(tmp_path, "> toggle desklamp 1\nYou turn it on.")
    with pytest.raises(ConfigError, match=r"toggle desklamp 1.*does not know; correct that line, or remove"):
        published_examples(tmp_path)
