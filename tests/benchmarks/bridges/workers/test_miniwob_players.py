import json
import runpy
from pathlib import Path

import pytest

from agent2.benchmarks.bridges.workers.miniwob_players import PLAYERS, Outline
from agent2.records import Message, Picture

EXAMPLE = Path(__file__).parents[4] / "examples" / "browser_players.py"
BOXES = """- generic [ref=e2]:
  - generic [ref=e3]: Select ok, "b", c and click Submit.
  - checkbox "ok" [ref=e6]
  - 'checkbox "a: b" [ref=e7]'
  - checkbox "c" [checked] [ref=e8]
  - generic [ref=e9]: "12"
  - button "Submit" [ref=e10]"""
OPENED = """- generic [ref=e2]:
  - tab "Section #7" [ref=e5] [cursor=pointer]
  - button "Submit" [ref=e7]"""


@pytest.fixture
def players():
    return runpy.run_path(str(EXAMPLE))


def opening(task, sentence, tree):
    return [Message("system", "s"), Message("user", f"Task: {sentence}\nPage: {task}\n\n{tree}")]


def test_an_outline_finds_elements_by_role_and_name_also_where_the_tree_quotes_them():
    outline = Outline(BOXES)
    assert outline.find("checkbox", "ok") == "e6" and outline.find("checkbox", "a: b") == "e7"
    assert outline.find("checkbox", number=2) == "e8" and outline.find("generic", "12") == "e9"
    with pytest.raises(LookupError, match="no button named 'Cancel'"):
        outline.find("button", "Cancel")


def test_a_player_clicks_what_the_sentence_names_and_nothing_else():
    calls = PLAYERS["click-checkboxes"]("Select ok, c and click Submit.", lambda: Outline(BOXES))
    assert [arguments["ref"] for _, arguments in calls] == ["e6", "e8", "e10"]
    nothing = PLAYERS["click-checkboxes"]("Select nothing and click Submit.", lambda: Outline(BOXES))
    assert [arguments["ref"] for _, arguments in nothing] == ["e10"]


def test_the_solver_of_the_example_goes_on_from_the_chat_alone(players):
    chat = opening("click-collapsible", "Expand the section below and click submit.", OPENED)
    first = players["solver"](chat)
    assert json.loads(first) == {"name": "click", "arguments": {"ref": "e5"}}
    later = OPENED.replace("e7", "e12")
    chat += [Message("assistant", first), Message("user", f"done\n\n{later}")]
    assert json.loads(players["solver"](chat)) == {"name": "click", "arguments": {"ref": "e12"}}


def test_the_solver_says_that_it_does_not_know_a_page(players):
    assert players["solver"](opening("no-such-task", "Do it.", OPENED)) == players["GIVEN_UP"]
    assert players["solver"](opening("click-tab", "Click on Tab #2.", OPENED)) == players["GIVEN_UP"]


def test_random_clicks_are_calls_on_what_is_on_the_page_and_the_same_for_the_same_chat(players):
    chat = opening("click-checkboxes", "Select ok and click Submit.", BOXES)
    call = players["random_clicks"](chat)
    assert call == players["random_clicks"](chat)
    assert json.loads(call)["name"] in ("click", "type", "press", "scroll")
    assert json.loads(call)["arguments"].get("ref", "e6") in BOXES


def test_random_points_are_inside_the_picture_and_the_same_for_the_same_chat(players):
    screenshot = Picture("0" * 64, "image/png", 0, 160, 210, "as-brought")
    chat = [Message("system", "s"), Message("user", "Task: Click.\nPage: click-test", (screenshot,))]
    assert players["random_points"](chat) == players["random_points"](chat)
    names = set()
    for number in range(60):
        call = json.loads(players["random_points"]([*chat, Message("assistant", str(number))]))
        names.add(call["name"])
        assert 0 <= call["arguments"].get("x", 0) < 160 and 0 <= call["arguments"].get("y", 0) < 210
    assert names == {"click", "type", "press", "scroll"}
    assert players["random_points"]([Message("user", "no picture")]) == players["GIVEN_UP"]
