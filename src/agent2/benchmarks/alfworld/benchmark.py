"""The published ALFWorld benchmark: the official games, 50 turns, won or not.

`alfworld` plays the ReAct protocol with two examples, greedily; `alfworld_chat` the bare chat. Splits are folders:
train and dev come out of `train` (apart by task folder), test_public is `valid_seen` (140 games), test_private
`valid_unseen` (134 games, the published number).

The hidden splits are hidden from the agent's workspace and nothing more: anybody can download them, and a base model
may have read them. Nothing here can change that; a trial's report says that the task is published.

Promises: an item holds all that is needed to play it, so that a grading process needs no data folder; a game's
walkthrough is in no item.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent2.benchmarks.alfworld.official import OfficialData, OfficialGame, data_root, is_dev
from agent2.benchmarks.alfworld.prompts import chat_opening, published_examples, react_opening
from agent2.benchmarks.home import Players
from agent2.benchmarks.household.generate import listed
from agent2.benchmarks.household.layout import shown_names
from agent2.benchmarks.household.players import PUBLISHED_PLAYERS, first_commands
from agent2.benchmarks.household.rows import item_of_row, row_of
from agent2.environments.household.world import NAME, VERSION, HouseholdSettings, HouseholdWorld, Protocol
from agent2.errors import ConfigError
from agent2.records import Environment, Item, JsonValue, SamplingSettings, Scorer, Split
from agent2.scorers.household import HouseholdScorer

MAX_TURNS = 50
FOLDERS: Mapping[Split, str] = {
    Split.TRAIN: "train",
    Split.DEV: "train",
    Split.TEST_PUBLIC: "valid_seen",
    Split.TEST_PRIVATE: "valid_unseen",
}
"""Folders of the official data."""
PARTS: Mapping[Split, Callable[[str], bool]] = {
    Split.TRAIN: lambda place: not is_dev(place),
    Split.DEV: is_dev,
    Split.TEST_PUBLIC: lambda place: True,
    Split.TEST_PRIVATE: lambda place: True,
}
"""Which trial folders of it."""


class Alfworld:
    """The official games under the ReAct protocol."""

    name = "alfworld"
    version = "1.0"
    primary_metric = "success"
    max_turns = MAX_TURNS
    sampling = SamplingSettings(temperature=0.0, max_tokens=100)
    attempts = 1
    protocol = Protocol.REACT

    def __init__(self, data: Path | None = None) -> None:
        """data: the folder that holds json_2.1.1; None: `$ALFWORLD_DATA` or the downloader's default."""
        self._root = data_root(data)
        self._games: dict[tuple[Split, int], list[OfficialGame]] = {}
        self.settings = HouseholdSettings(protocol=self.protocol, max_turns=MAX_TURNS)
        self.tool_protocol = self.settings.as_protocol()

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n games of a split; the secret changes nothing, but a hidden split is refused without it.

        Raises ConfigError if the official data are not there, not complete or not readable.
        """
        if split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE) and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is for the grader only; a workspace holds train and dev"
            )
        if (split, n) not in self._games:
            self._games[split, n] = OfficialData(self._root).first(FOLDERS[split], n, PARTS[split], split.value)
        texts = published_examples(self._root) if self.protocol is Protocol.REACT else None
        return [self._item(found, split, texts) for found in self._games[split, n]]

    def environment(self) -> Environment:
        """A fresh household."""
        return HouseholdWorld(self.settings)

    def scorer(self) -> Scorer:
        """Won or not."""
        return HouseholdScorer()

    def environment_version(self) -> str:
        """Name and version of the world, and what its settings are."""
        return f"{NAME}-v{VERSION}+{self.settings.digest}"

    def players(self) -> Players:
        """Who brackets the games."""
        return PUBLISHED_PLAYERS

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A first command that each opening allows."""
        return first_commands(items, seed)

    def visible_row(self, item: Item) -> dict[str, JsonValue]:
        """A visible item as a row of train.jsonl; the packaged examples, the same for all of a type, are left out."""
        row = {**row_of(item), "trial": item.payload["trial"]}
        opening = item.payload["opening"]
        return row if opening == self._opening(item.payload["task_type"], None) else {**row, "opening": opening}

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of a row, with its examples again. Raises ConfigError for another kind of row."""
        item = item_of_row(row)
        opening = row.get("opening") or self._opening(str(item.payload["task_type"]), None)
        return replace(item, payload={**item.payload, "opening": opening})

    def _opening(self, task_type: str, texts: dict[str, tuple[str, str]] | None) -> list[dict[str, str]]:
        if self.protocol is Protocol.CHAT:
            return chat_opening()
        return react_opening(task_type, texts[task_type] if texts is not None else None)

    def _item(self, found: OfficialGame, split: Split, texts: dict[str, tuple[str, str]] | None) -> Item:
        game = found.game
        digest = hashlib.sha256(found.trial.encode()).hexdigest()[:16]
        return Item(
            id=f"alfworld-{found.trial.split('/')[0]}-{digest}",
            split=split,
            prompt=opening_text(game.problem, game.goal),
            payload={
                "game": game.as_payload(),
                "task_type": game.task_type,
                "trial": found.trial,
                "opening": self._opening(game.task_type, texts),
            },
        )


class AlfworldChat(Alfworld):
    """The official games as a chat without examples: each message one command."""

    name = "alfworld_chat"
    sampling = SamplingSettings(temperature=0.0, max_tokens=32)
    protocol = Protocol.CHAT


def opening_text(problem: str, goal: str) -> str:
    """The room and the task of a game in the engine's words, without starting the engine."""
    declared = _declared(problem)
    names = shown_names([name for name, kind in declared.items() if kind in ("receptacle", "object")])
    receptacles = [shown for name, shown in names.items() if declared[name] == "receptacle"]
    return (
        f"You are in the middle of a room. Looking quickly around you, you see {listed(receptacles)}.\n\n"
        f"Your task is to: {goal}."
    )


def _declared(problem: str) -> dict[str, str]:
    """Name -> type of what a PDDL problem declares, one "names - type" a line."""
    objects = problem.partition("(:objects")[2].partition("(:init")[0]
    rows = (line.strip().rpartition(" - ") for line in objects.splitlines())
    return {name: kind.strip() for names, dash, kind in rows if dash for name in names.split()}
