"""What a benchmark's home may bring beside its items, world and scorer; a plug-in's benchmark brings it the same way.

A home says more about itself by further methods of its benchmark, none of which is needed:

- `players()`: who brackets it (`Players`); without it, questions are answered with references, right and foreign ones.
- `visible_row(item)` and `item_of(row)`: what an agent is given of a visible item, and the way back; without them a
  row holds id, prompt, answer and payload.
- `expert(item, chat)`: a player to learn from on visible items, for worlds that cannot be asked (`ask_expert`).
- `static_answers(items, seed)`: what can be imitated without playing, for items that are episodes.
- `folders()`: folders of this installation (`installation.worlds_dir`) that its worlds read, such as a catalogue.
- `count(split, secret)`: how many items a split has, where they come from files and end.
- `judge(secret)`: of level 2, the judge that agents may ask about visible items; where its verdicts follow from the
  installation secret, `informed(secret)` and `shortcuts()` for the proof that they cannot be had otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from agent2.errors import ConfigError, shown
from agent2.records import Benchmark, Environment, Item, JsonValue, Message, Scorer, Split, derive_seed

Player = Callable[[Item, Sequence[Message]], str]
"""The next message of somebody who may know the item, from the chat so far."""


def _forget_nothing() -> None:
    """Of a world that remembers nothing between episodes."""


def _own_world(benchmark: Benchmark) -> Environment:
    return benchmark.environment()


@dataclass(frozen=True, slots=True)
class Players:
    """Who brackets a benchmark, and what they must come to; a player that says nothing is always among them."""

    oracle: Player
    random: Callable[[Sequence[Item]], Player]
    """Made from the items that it will play."""
    ceiling_at_least: float = 1.0
    """Mean score of the oracle."""
    floor_at_most: float = 0.05
    """Mean score of the null and of the random player; where items have options, guessing is allowed for beside it."""
    random_world: Callable[[Benchmark], Environment] = _own_world
    """What the random player plays in; may show it more than a model sees, so that it is a fair floor."""
    shared_content: Callable[[Item], str] = lambda item: item.prompt
    """What no two splits may share."""
    content_name: str = "prompt"
    n_played: int = 200
    """Items of each split that are played."""
    shortcuts: Mapping[str, Player] = field(default_factory=dict)
    """Players of a trick that must not score above the floor, by what they do: `a player that repeats the examples`."""
    known_wrong: Callable[[Item], Sequence[str]] | None = None
    """Answers to an item that are known to be wrong, which the scorer has to detect."""
    detection_at_least: float = 0.95
    """Share of known-wrong answers that the scorer has to refuse."""
    forget: Callable[[], None] = _forget_nothing
    """Drop what the world remembers, so that a replay computes everything anew."""


@runtime_checkable
class BringsPlayers(Protocol):
    """A benchmark that says itself who brackets it."""

    def players(self) -> Players:
        """Random player and oracle with floor and ceiling."""


@runtime_checkable
class BringsRows(Protocol):
    """A benchmark that says itself what an agent is given of a visible item, and takes that back."""

    def visible_row(self, item: Item) -> Mapping[str, JsonValue]:
        """A visible item as a row: enough to play it; no answer, no trajectory where they are to be found by play."""

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of such a row. Raises ConfigError for another kind of row."""


@runtime_checkable
class BringsExpert(Protocol):
    """A benchmark whose visible items come with somebody who can do them."""

    def expert(self, item: Item, chat: Sequence[Message]) -> str:
        """The next message of somebody who does this visible item well."""


@runtime_checkable
class BringsStaticAnswers(Protocol):
    """A benchmark of episodes of which something can be imitated without playing."""

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A first message for each item, from what its visible row says alone."""


@runtime_checkable
class BringsCount(Protocol):
    """A benchmark whose items end, so that a suite can ask for all of them."""

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has. Raises ConfigError as `items` does."""


@runtime_checkable
class BringsRecordings(Benchmark, BringsStaticAnswers, Protocol):
    """A benchmark of questions whose searches are recorded once and then replayed."""

    def to_record(self) -> tuple[list[Item], int]:
        """The questions of all splits without a usable recording, and how many there are in all.

        Raises ConfigError where no live back end is named that would be recorded.
        """

    def recording_of(self, item: Item) -> Path:
        """Where the searches of a question are recorded."""

    def is_recorded(self, item: Item) -> bool:
        """Whether a question has a recording that can be played."""


@runtime_checkable
class BringsFolders(Protocol):
    """A benchmark whose worlds read folders that are no part of the package."""

    def folders(self) -> Sequence[Path]:
        """Folders in `installation.worlds_dir()`, shown read-only to agents and graders: nothing hidden may be in them.

        Raises ConfigError if they cannot be made.
        """


def world_mounts(benchmark: Benchmark | None) -> dict[Path, str]:
    """What a sandbox has to show so that a benchmark can be played there: host folder -> its name among the worlds."""
    return {folder: folder.name for folder in benchmark.folders()} if isinstance(benchmark, BringsFolders) else {}


@runtime_checkable
class BringsJudge(Protocol):
    """A benchmark whose scorer is a judge that an agent can ask (`POST /judge`) and has not.

    Its `scorer()` is a `scorers.hidden.HiddenJudge`, so that a workspace gives no verdict of its own.
    """

    def judge(self, secret: bytes) -> Scorer:
        """The judge that a secret makes; one that needs none, such as an LLM behind an endpoint, is always the same."""


@runtime_checkable
class BringsHiddenTaste(BringsJudge, Protocol):
    """A benchmark whose judge follows from the installation secret."""

    def informed(self, secret: bytes) -> Player:
        """Somebody who knows all there is to know and takes this for the secret."""

    def shortcuts(self) -> Mapping[str, Player]:
        """Ways to please a careless judge (a longer reply, a repeated one) that must not win; by what they do."""


def players_of(benchmark: Benchmark) -> Players:
    """Who brackets a benchmark. Raises ConfigError for one of episodes that brings nobody."""
    if isinstance(benchmark, BringsPlayers):
        return benchmark.players()
    if benchmark.max_turns > 1:
        raise ConfigError(
            f"benchmark {benchmark.name}: its items are episodes and it defines no players for a check; give its class "
            "a method players() that returns agent2.benchmarks.home.Players"
        )
    return Players(oracle=reference_answer, random=foreign_answers)


def reference_answer(item: Item, chat: Sequence[Message]) -> str:
    """Answers with the reference."""
    return item.reference or ""


def foreign_answers(items: Sequence[Item]) -> Player:
    """Answers with the reference of another item, drawn at random."""

    def reply(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
        drawn = items[int(rng.integers(max(1, len(items) - 1)))]
        return (items[-1] if drawn.id == item.id else drawn).reference or ""

    return at_random(reply)(items)


def at_random(
    reply: Callable[[Item, Sequence[Message], np.random.Generator], str],
) -> Callable[[Sequence[Item]], Player]:
    """A random player out of a function that draws: the same chat of an item gets the same message in every process."""

    def made(items: Sequence[Item]) -> Player:
        def play(item: Item, chat: Sequence[Message]) -> str:
            rng = np.random.default_rng(derive_seed("random player", item.id, *(m.content for m in chat)))
            return reply(item, chat, rng)

        return play

    return made


def visible_row(benchmark: Benchmark, item: Item) -> Mapping[str, JsonValue]:
    """What an agent is given of a visible item: a question with its answer, or an episode to be played."""
    if isinstance(benchmark, BringsRows):
        return benchmark.visible_row(item)
    return row_of_question(item)


def item_of(benchmark: Benchmark, row: Mapping[str, JsonValue]) -> Item:
    """The item of a visible row, in the train split. Raises ConfigError for a row without id or prompt."""
    if isinstance(benchmark, BringsRows):
        return benchmark.item_of(row)
    return question_of_row(row, benchmark.name)


def require_keys(row: Mapping[str, JsonValue], keys: Sequence[str], benchmark: str) -> None:
    """Raises ConfigError for a row without one of these keys."""
    missing = [key for key in keys if key not in row]
    if missing:
        raise ConfigError(
            f"row {shown(str(row.get('id')))} of {benchmark} has no {', '.join(missing)}; "
            "give a line of data/train.jsonl"
        )


def row_of_question(item: Item) -> dict[str, JsonValue]:
    """A visible item with its reference answer as a row."""
    return {"id": item.id, "prompt": item.prompt, "answer": item.reference, "payload": dict(item.payload)}


def question_of_row(row: Mapping[str, JsonValue], benchmark: str) -> Item:
    """The item of such a row. Raises ConfigError for a row without id or prompt."""
    require_keys(row, ("id", "prompt"), benchmark)
    answer = row.get("answer")
    return Item(
        id=str(row["id"]),
        split=Split.TRAIN,
        prompt=str(row["prompt"]),
        reference=None if answer is None else str(answer),
        payload=dict(row.get("payload") or {}),
    )
