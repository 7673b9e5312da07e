"""The published ALFWorld games: items, prompts, benchmark.

The folder of official games: `$ALFWORLD_DATA/json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/`.

A trial folder holds `game.tw-pddl` (the game) and `traj_data.json` (its task type). As the published loader does, it
leaves out folders with "movable" or "Sliced" in their path, those without a game file, and games that are marked as
not solvable. Walkthroughs in the files are never read into a game.

Promises: the same games in the same order on every machine (by a hash of the path, so that the first n are mixed in
task types); what is missing or cut off is an error that names the command and the variable. Does NOT download.

The opening messages of the published games: the ReAct protocol with two solved examples, and a chat without any.

The *form* of the ReAct prompt is the published one (Yao et al. 2022, arXiv:2210.03629): two episodes of the item's
own task type, lines that begin with "> ", thoughts that are answered "OK.", then the game. The *words* are our own: the
episodes were played on generated games (`scripts/write_alfworld_examples.py`), so a score made with them is not one
made with the authors' prompt. Who has their file (`alfworld_3prompts.json`) puts it into the data folder, and it is
used in place of ours; the items' digest on the card shows which.

The authors' file is older than the engine: it says `put X in/on Y` where the engine since alfworld 0.4.0 says
`move X to Y`. Those actions and their replies are translated when the file is read, nothing else; thoughts keep their
words, and replies to `go to` lack the sentence "You arrive at ..." that the engine begins them with.

The published ALFWorld benchmark: the official games, 50 turns, won or not.

`alfworld` plays the ReAct protocol with two examples, greedily; `alfworld_chat` the bare chat. Splits are folders:
train and dev come out of `train` (apart by task folder), test_public is `valid_seen` (140 games), test_private
`valid_unseen` (134 games, the published number).

The hidden splits are hidden from the agent's workspace and nothing more: anybody can download them, and a base model
may have read them. Nothing here can change that; a trial's report says that the task is published.

Promises: an item holds all that is needed to play it, so that a grading process needs no data folder; a game's
walkthrough is in no item.
"""

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path

import msgspec

from agent2.benchmarks.home import Players
from agent2.benchmarks.household import PUBLISHED_PLAYERS, first_commands, item_of_row, row_of
from agent2.benchmarks.household.generate import listed, shown_names
from agent2.environments.household.game import TASK_TYPES, Game, command_shape
from agent2.environments.household.world import (
    NAME,
    OBSERVATION_SLOT,
    VERSION,
    ActionProtocol,
    HouseholdSettings,
    HouseholdWorld,
    command_of,
)
from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.installation import install_hint
from agent2.records import HIDDEN_SPLITS, Environment, Item, JsonValue, SamplingSettings, Scorer, Split
from agent2.scorers.household import HouseholdScorer

VARIABLE = "ALFWORLD_DATA"
FOLDER = "json_2.1.1"
GAME_FILE = "game.tw-pddl"
TRAJECTORY_FILE = "traj_data.json"
PUBLISHED_GAMES = {"train": 3553, "valid_train": 200, "valid_seen": 140, "valid_unseen": 134}
"""How many playable games the published folders hold."""
SMALL_TRAIN = "valid_train"
"""A published choice of train games; they are train and dev where the data folder has it and no `train`."""
_LEFT_OUT = ("movable", "Sliced")


@dataclass(frozen=True, slots=True)
class OfficialGame:
    """One game of the folder."""

    trial: str
    """Its place below json_2.1.1, "valid_unseen/pick_and_place_simple-Mug-None-Desk-308/trial_T2019..."."""
    game: Game


def data_root(data: Path | None) -> Path:
    """The folder that holds json_2.1.1: the one that is given, `$ALFWORLD_DATA`, or the downloader's default."""
    if data is not None:
        return data.expanduser()
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".cache" / "alfworld"


def task_folder(trial: str) -> str:
    """The part of a trial's place that names room and goal: trials of one task folder differ in where things are."""
    return trial.split("/")[1]


def is_dev(place: str) -> bool:
    """True for a sixteenth of the task folders of `train`, a seventh of those of `valid_train`, by a public hash.

    A task folder's name holds room and goal, so train and dev share neither.
    """
    every = 7 if place.startswith(f"{SMALL_TRAIN}/") else 16
    return hashlib.sha256(f"alfworld dev\0{task_folder(place)}".encode()).digest()[0] % every == 0


class OfficialData:
    """Reads one data folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def first(
        self, folder: str, n: int, is_wanted: Callable[[str], bool] = lambda place: True, split: str = ""
    ) -> list[OfficialGame]:
        """The first n playable games of a folder, of those whose place is wanted.

        split: what a message calls those. Raises ConfigError if there is no such data, a file cannot be read, or
        there are fewer.
        """
        found, folder, places = self._found(folder, n, is_wanted)
        if len(found) < n:
            raise self._too_few(folder, n, len(found), places, split)
        return found

    def up_to(self, folder: str, n: int, is_wanted: Callable[[str], bool] = lambda place: True) -> list[OfficialGame]:
        """As `first`, or all that there are where those are fewer, but at least one."""
        return self._found(folder, n, is_wanted)[0] or self.first(folder, 1, is_wanted)

    def _found(
        self, folder: str, n: int, is_wanted: Callable[[str], bool]
    ) -> tuple[list[OfficialGame], str, list[str]]:
        """The games, the folder that they were looked for in, and the places that were considered."""
        if folder == "train" and not self._has(folder) and self._has(SMALL_TRAIN):
            folder = SMALL_TRAIN
        places = [place for place in self._places(folder) if is_wanted(place)]
        return list(islice((game for place in places if (game := self._read(place)) is not None), n)), folder, places

    def _has(self, folder: str) -> bool:
        return (self.root / FOLDER / folder).is_dir()

    def _places(self, folder: str) -> list[str]:
        """The trial folders of a folder, in their fixed order."""
        base = self.root / FOLDER
        top = base / folder
        if not top.is_dir():
            raise ConfigError(f"ALFWorld: no official games in {top}; {self._advice()}")
        places = [path.parent.relative_to(base).as_posix() for path in top.glob(f"*/*/{TRAJECTORY_FILE}")]
        kept = [place for place in places if not any(part in place for part in _LEFT_OUT)]
        return sorted(kept, key=lambda place: hashlib.sha256(place.encode()).digest())

    def _read(self, place: str) -> OfficialGame | None:
        """The game of a trial folder, None for one that the published loader leaves out."""
        folder = self.root / FOLDER / place
        if not (folder / GAME_FILE).is_file():
            return None
        data, trajectory = self._read_json(folder / GAME_FILE), self._read_json(folder / TRAJECTORY_FILE)
        task_type = trajectory.get("task_type")
        if task_type not in TASK_TYPES or not data.get("solvable"):
            return None
        try:
            return OfficialGame(place, Game.from_file(data, str(task_type)))
        except EnvironmentFailed as error:
            raise ConfigError(f"{folder / GAME_FILE}: {error} ({self._variable()} names this folder to it)") from error

    def _too_few(self, folder: str, n: int, n_found: int, places: list[str], split: str) -> ConfigError:
        n_without = sum(not (self.root / FOLDER / place / GAME_FILE).is_file() for place in places)
        without = f" ({n_without} of {len(places)} trial folders have no {GAME_FILE})" if n_without else ""
        key = f"n_items.{split or '<split>'}"
        fewer = (
            f", or ask for fewer: {key}: {n_found} in a task file of your own, or --set task.{key}={n_found} with "
            "agent2 run or tasks check"
            if n_found
            else ""
        )
        asked = f"{n} were asked for{f' as {split}' if split else ''}"
        return ConfigError(
            f"ALFWorld: {self.root / FOLDER / folder} holds {n_found or 'no'} playable games{without}, {asked}; "
            f"the published folder has {PUBLISHED_GAMES[folder]}: the download is not complete{fewer}; "
            f"{self._advice()}"
        )

    def _advice(self) -> str:
        return (
            f"get them with: {self._variable()} alfworld-download (where it is missing, {install_hint('household')}), "
            f"and name the folder with --data or the variable {VARIABLE}"
        )

    def _variable(self) -> str:
        """Tells the downloader which folder is meant, for a shell."""
        return f"{VARIABLE}={shlex.quote(str(self.root))}"

    def _read_json(self, path: Path) -> dict[str, JsonValue]:
        again = f"{self._variable()} alfworld-download -f"
        try:
            value = msgspec.json.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read ({error.strerror}); download the data again with: {again}"
            ) from error
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{path}: is cut off or no JSON ({error}); the download broke off: unpack it again with: {again}"
            ) from error
        if not isinstance(value, dict):
            raise ConfigError(
                f"{path}: contains a {type(value).__name__}, an object is needed; unpack it again with: {again}"
            )
        return value


OWN_PROMPTS = "alfworld_3prompts.json"
"""Name of the published file of examples, below the data folder."""
_PUBLISHED_KEYS: Mapping[str, str] = {
    "pick_and_place_simple": "put",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "look_at_obj_in_light": "examine",
    "pick_two_obj_and_place": "puttwo",
}
_OLD_PUT = re.compile(r"^(> ?)put (\w+ \d+) in/on (\w+ \d+)(?=[ \t]*$)", re.MULTILINE)
_OLD_REPLY = re.compile(r"^You put the (\w+ \d+) in/on the (\w+ \d+)\.", re.MULTILINE)
"""How alfworld before 0.4.0 worded a placement and its reply."""
_REACT = (
    "You solve tasks in a household by writing one line a turn. A line is a command, or a thought that begins with "
    '"think:" and changes nothing. Two tasks that were solved come first.\n\n{first}\n\n{second}\n\n'
    "Now it is your turn. Write the next line only.\n{observation}\n>"
)
_CHAT = (
    "You solve a task in a household. Answer each message with exactly one command and nothing else. Commands: "
    "go to X, open X, close X, take X from Y, move X to Y, clean X with Y, heat X with Y, cool X with Y, use X, "
    "examine X, look, inventory.\n\n{observation}"
)


@cache
def examples() -> dict[str, tuple[str, str]]:
    """Task type -> two solved episodes as texts."""
    records = read_examples()
    by_type: dict[str, list[str]] = {}
    for record in records:
        by_type.setdefault(record["task_type"], []).append(transcript(record["opening"], record["lines"]))
    return {task_type: (texts[0], texts[1]) for task_type, texts in by_type.items()}


def read_examples() -> list[dict[str, JsonValue]]:
    """The packaged episodes: task type, game, opening, and lines of (action, observation)."""
    text = (resources.files("agent2.benchmarks.alfworld") / "examples.json").read_text(encoding="utf-8")
    found: list[dict[str, JsonValue]] = json.loads(text)
    return found


def transcript(opening: str, lines: Sequence[Sequence[str]]) -> str:
    """An episode as the ReAct prompt shows it."""
    return "\n".join([opening, *(f"> {action}\n{observation}" for action, observation in lines)])


def react_opening(task_type: str, texts: tuple[str, str] | None = None) -> list[dict[str, str]]:
    """The one user message that a game of this type begins with. texts: other examples than the packaged ones."""
    first, second = texts or examples()[task_type]
    content = _REACT.replace("{first}", first.strip()).replace("{second}", second.strip())
    return [{"role": "user", "content": content.replace("{observation}", OBSERVATION_SLOT)}]


def chat_opening() -> list[dict[str, str]]:
    """The one user message of the chat protocol: which commands there are, and the game."""
    return [{"role": "user", "content": _CHAT.replace("{observation}", OBSERVATION_SLOT)}]


def published_examples(root: Path) -> dict[str, tuple[str, str]] | None:
    """The authors' own examples in the installed engine's words, if their file is in the data folder.

    Raises ConfigError for a file that does not hold two examples of each task type, or with a command that the
    installed engine does not know even after translation.
    """
    path = root / OWN_PROMPTS
    if not path.is_file():
        return None
    try:
        texts = json.loads(path.read_text(encoding="utf-8"))
        found = {
            task_type: (
                in_installed_words(str(texts[f"react_{key}_1"])),
                in_installed_words(str(texts[f"react_{key}_0"])),
            )
            for task_type, key in _PUBLISHED_KEYS.items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: is not the published file of ReAct examples ({type(error).__name__}: {error}); "
            "download it again, or remove it to play with the packaged examples"
        ) from error
    for task_type, pair in found.items():
        unknown = [command for text in pair for command in unknown_commands(text)]
        if unknown:
            raise ConfigError(
                f"{path}: an example of {task_type} has the action {quoted(unknown[0])}, which the installed engine "
                "does not know; correct that line, or remove the file to play with the packaged examples"
            )
    return found


def in_installed_words(example: str) -> str:
    """An example with its old placements, and the replies to them, as the installed engine words them."""
    return _OLD_REPLY.sub(r"You move the \1 to the \2.", _OLD_PUT.sub(r"\1move \2 to \3", example))


def unknown_commands(example: str) -> list[str]:
    """The actions of an example, without thoughts, that are no command of the installed grammar."""
    lines = [command_of(line, ActionProtocol.REACT) for line in example.splitlines() if line.startswith(">")]
    actions = [line for line in lines if not line.startswith("think:")]
    return [action for action in actions if command_shape().fullmatch(action) is None]


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
    protocol = ActionProtocol.REACT

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
        self._require(split, secret)
        if (split, n) not in self._games:
            self._games[split, n] = OfficialData(self._root).first(FOLDERS[split], n, PARTS[split], split.value)
        texts = published_examples(self._root) if self.protocol is ActionProtocol.REACT else None
        return [self._item(found, split, texts) for found in self._games[split, n]]

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many games of a split the folder has. Raises ConfigError as `items`."""
        self._require(split, secret)
        found = OfficialData(self._root).up_to(FOLDERS[split], sys.maxsize, PARTS[split])
        self._games[split, len(found)] = found
        return len(found)

    def _require(self, split: Split, secret: bytes | None) -> None:
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is for the grader only; a workspace holds train and dev"
            )

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
        item = item_of_row(row, self.name)
        opening = row.get("opening") or self._opening(str(item.payload["task_type"]), None)
        return replace(item, payload={**item.payload, "opening": opening})

    def _opening(self, task_type: str, texts: dict[str, tuple[str, str]] | None) -> list[dict[str, str]]:
        if self.protocol is ActionProtocol.CHAT:
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
    protocol = ActionProtocol.CHAT


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
