r"""Players of the web pages behind `miniwob`: one that reads the page and solves its task, one that acts at random.

    agent2 benchmarks install miniwob
    agent2 eval miniwob:click-checkboxes --role nightly --checkpoint scripted:examples/browser_players.py:solver \
        --baseline scripted:examples/browser_players.py:random_clicks --out browser
    agent2 view browser

Both see what a model sees: the task's sentence and the accessibility tree of the page. `random_points` acts at random
on the picture that `miniwob:click-checkboxes-screenshot` shows in its place.
"""

import argparse
import json
import random
import re
from collections.abc import Sequence

from agent2.benchmarks.bridges.workers.miniwob_players import PLAYERS, Call, Outline
from agent2.records import Message

OPENING = re.compile(r"^Task: (?P<sentence>.*)\nPage: (?P<task>.*)$", re.MULTILINE)
GIVEN_UP = "I do not know how to go on."
WORDS = ("ok", "Anna", "7", "submit", "lorem")


def solver(chat: Sequence[Message]) -> str:
    """The next call of the task's own player; words where it does not know how to go on."""
    pages = [message.text for message in chat if message.role == "user"]
    n_sent = sum(message.role == "assistant" for message in chat)
    opening = OPENING.search(pages[0])
    if opening is None or opening["task"] not in PLAYERS:
        return GIVEN_UP
    n_made = 0
    calls = PLAYERS[opening["task"]](opening["sentence"], lambda: Outline(pages[n_made]))
    try:
        for call in calls:
            if n_made == n_sent:
                return _message(call)
            n_made += 1
    except (LookupError, ValueError):
        return GIVEN_UP  # the page is not what the player expects
    return GIVEN_UP


def random_clicks(chat: Sequence[Message]) -> str:
    """A call drawn from all that the last page allows; the same chat gives the same call."""
    last_page = next(message.text for message in reversed(chat) if message.role != "assistant")
    draw = random.Random("\n".join(message.text for message in chat))
    nodes = [node for node in Outline(last_page).nodes if node.ref]
    if not nodes:
        return _message(("press", {"key": "Tab"}))
    node = draw.choice(nodes)
    calls: list[Call] = [
        ("click", {"ref": node.ref}),
        ("type", {"ref": node.ref, "text": draw.choice(WORDS)}),
        ("press", {"key": draw.choice(("Enter", "Tab", "Escape"))}),
        ("scroll", {"ref": node.ref, "direction": draw.choice(("up", "down"))}),
    ]
    return _message(draw.choices(calls, weights=(6, 2, 1, 1))[0])


def random_points(chat: Sequence[Message]) -> str:
    """A call at a point drawn from the last picture; the same chat gives the same call."""
    pictures = [picture for message in chat for picture in message.pictures or ()]
    draw = random.Random("\n".join([*(message.text for message in chat), *(picture.digest for picture in pictures)]))
    if not pictures:
        return GIVEN_UP
    place = {"x": draw.randrange(pictures[-1].width), "y": draw.randrange(pictures[-1].height)}
    calls: list[Call] = [
        ("click", place),
        ("type", {"text": draw.choice(WORDS)}),
        ("press", {"key": draw.choice(("Enter", "Tab", "Escape"))}),
        ("scroll", {**place, "direction": draw.choice(("up", "down"))}),
    ]
    return _message(draw.choices(calls, weights=(6, 2, 1, 1))[0])


def _message(call: Call) -> str:
    name, arguments = call
    return json.dumps({"name": name, "arguments": arguments})


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
