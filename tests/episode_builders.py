"""A small world to train in, and a model that can play it now and then: a key is in one of three places."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agent2.errors import EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Split, Step
from model_builders import make_model

PLACES = ("box", "desk", "sofa")
THINGS = ("key", "cup", "pen", "coin")
PLAYS = [(f"find the {thing}", f"go {place}") for thing in THINGS for place in (*PLACES, PLACES[0], PLACES[1])]
"""What the model reads: any place, whatever is asked."""


class Hunt:
    """Go to the place where the thing is; each wrong place says that there is nothing. Three turns."""

    def __init__(self) -> None:
        self.item: Item | None = None
        self.n_invalid = 0
        self.won = False

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        self.item = item
        return [Message("user", item.prompt)]

    def act(self, action: str) -> Step:
        assert self.item is not None
        words = action.split()
        if len(words) != 2 or words[0] != "go" or words[1] not in PLACES:
            self.n_invalid += 1
            return Step("what?", done=False)
        self.won = words[1] == self.item.payload["place"]
        return Step(None if self.won else "nothing here", done=self.won)

    def state(self) -> Mapping[str, JsonValue]:
        return {"won": self.won, "n_invalid": self.n_invalid}


class BreaksAtFirst(Hunt):
    """The first worlds of a run break when they are opened."""

    left = 0

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        if BreaksAtFirst.left > 0:
            BreaksAtFirst.left -= 1
            raise EnvironmentFailed("the world would not open")
        return super().reset(item, seed)


def make_items(n: int = 12) -> list[Item]:
    """The pen is always in the box, the key on the desk, and so on: it can be learned from the prompt."""
    return [
        Item(f"hunt-{i}", Split.TRAIN, f"find the {THINGS[i % 4]}", payload={"place": PLACES[i % 4 % 3]})
        for i in range(n)
    ]


def make_player(folder: Path, steps: int = 150) -> Path:
    """A model that mostly goes somewhere."""
    return make_model(folder, PLAYS, steps)
