"""Optional methods of a benchmark beyond its items, world and scorer, and how items are divided into four splits.

A benchmark of a home or a plug-in may have further methods, none of which is required:

- `players()`: a random player and an oracle that bracket it (`Players`); without it, questions are answered with their
  references and with those of other items.
- `ladder()`: players of known order, the worst first, which `agent2 benchmarks check` plays on a few items.
- `visible_row(item)` and `item_of(row)`: what an agent is given of a visible item, and the way back; without them a
  row holds id, prompt, answer and payload.
- `expert(item, chat)`: a player to learn from on visible items, for worlds that cannot be asked (`ask_expert`).
- `static_answers(items, seed)`: what can be imitated without playing, for items that are episodes.
- `folders()`: folders of this installation (`installation.worlds_dir`) that its worlds read, such as a catalogue.
- `count(split, secret)`: how many items a split has, where they come from files and end.
- `judge(secret)`: of level 2, the judge that agents may ask about visible items; where its verdicts follow from the
  installation secret, `informed(secret)` and `shortcuts()` for the proof that its reward cannot be earned without it.

Splits of a benchmark whose items are drawn from a generator (`Source`) are disjoint: every candidate has a canonical
text (what must not be shared between splits, such as the question without its wording). A public hash of it puts the
candidate into one of three pools: `hidden` (4 of 12), `dev` (1) and `train` (7, also the only source of pre-training
corpora). Hidden splits draw from the hidden pool with seeds keyed by HMAC(installation secret), and a keyed bit decides
between `test_public` and `test_private`. So visible items never show hidden content, and without the secret the pool of
a candidate is known, but not whether it is drawn.

Does NOT prevent an agent from practising on the whole space of a generator that is small enough to be covered.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count, islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from agent2.benchmarks.data_files import Row
from agent2.errors import ConfigError, quoted
from agent2.installation import log_private_items
from agent2.records import HIDDEN_SPLITS, Benchmark, Environment, Item, JsonValue, Message, Scorer, Split, derive_seed

T = TypeVar("T")
BenchmarkT = TypeVar("BenchmarkT", bound=Benchmark)
Player = Callable[[Item, Sequence[Message]], str]
"""The next message of a player that may know the item, from the chat so far."""


def _forget_nothing() -> None:
    """For a world that keeps no state between episodes."""


def _own_world(benchmark: Benchmark) -> Environment:
    return benchmark.environment()


@dataclass(frozen=True, slots=True)
class Players:
    """The players that bracket a benchmark and their bounds; a player of empty answers is always added."""

    oracle: Player
    random: Callable[[Sequence[Item]], Player]
    """Made from the items that it will play."""
    ceiling_at_least: float = 1.0
    """Mean score of the oracle."""
    floor_at_most: float = 0.05
    """Mean score of the null and of the random player, beside what guessing gets where items have options."""
    random_world: Callable[[Benchmark], Environment] = _own_world
    """The world of the random player; may show more than a model sees, so that the floor is a fair one."""
    shared_content: Callable[[Item], str] = lambda item: item.prompt
    """The content of an item that no two splits may share."""
    content_name: str = "prompt"
    n_played: int = 200
    """Items of each split that are played."""
    shortcuts: Mapping[str, Player] = field(default_factory=dict)
    """Players of a trick that must not score above the floor, by description: `a player that repeats the examples`."""
    known_wrong: Callable[[Item], Sequence[str]] | None = None
    """Answers to an item that are known to be wrong."""
    detection_at_least: float = 0.95
    """Share of known-wrong answers that the scorer must reject."""
    forget: Callable[[], None] = _forget_nothing
    """Clears caches of the world, so that a replay computes everything anew."""


@runtime_checkable
class ProvidesPlayers(Protocol):
    """A benchmark with players of its own."""

    def players(self) -> Players:
        """Random player and oracle with floor and ceiling."""


@runtime_checkable
class ProvidesLadder(Protocol):
    """A benchmark with players of known order, where one score does not tell all that a scorer measures."""

    def ladder(self) -> Mapping[str, Player]:
        """Players by description, the worst first, the last one right on every item."""


@runtime_checkable
class ProvidesRows(Protocol):
    """A benchmark with its own form of visible items."""

    def visible_row(self, item: Item) -> Mapping[str, JsonValue]:
        """A visible item as a row: enough to play it; without answer or trajectory where the agent must find them."""

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of such a row. Raises ConfigError for another kind of row."""


@runtime_checkable
class ProvidesExpert(Protocol):
    """A benchmark with an expert player for visible items."""

    def expert(self, item: Item, chat: Sequence[Message]) -> str:
        """The next message of the expert on this visible item."""


@runtime_checkable
class ProvidesStaticAnswers(Protocol):
    """A benchmark of episodes whose first messages can be imitated without playing."""

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A first message for each item, from its visible row alone."""


@runtime_checkable
class ProvidesCount(Protocol):
    """A benchmark with a finite number of items, so that a suite can ask for all of them."""

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has. Raises ConfigError as `items` does."""


@dataclass(frozen=True, slots=True)
class NamedItem:
    """An item with the names under which files of answers may refer to it."""

    item: Item
    ids: tuple[str, ...]
    prompts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedSet:
    """Items that stored answers are scored on, and where a file of answers names them."""

    split: Split
    """Put on the card: of several splits, the one that is to be protected most."""
    items: Sequence[NamedItem]
    id_fields: tuple[str, ...] = ("id",)
    prompt_fields: tuple[str, ...] = ("prompt", "question", "instruction")


@runtime_checkable
class ProvidesNamedSet(Protocol):
    """A benchmark whose items come from a file, which others may have answered as a whole."""

    def named_set(self, split: Split | None, secret: bytes | None) -> NamedSet:
        """The items of a split; None: all that the scored splits are drawn from, as published, repeats included.

        Raises ConfigError as `items` does.
        """


@runtime_checkable
class ReadsRuns(Protocol):
    """A benchmark whose episodes were played elsewhere, a folder for each, and are scored from what was recorded."""

    def read_runs(self, folder: Path) -> list[Row]:
        """A row with `id`, `answer` and a digest of the rest for each run; `environment()` plays them from then on.

        Raises ConfigError, with the place, for runs that cannot be read.
        """


@runtime_checkable
class ProvidesRecordings(Benchmark, ProvidesStaticAnswers, Protocol):
    """A benchmark of questions whose searches are recorded once and then replayed."""

    def to_record(self) -> tuple[list[Item], int]:
        """The questions of all splits without a usable recording, and the number of all questions.

        Raises ConfigError if no live back end is named.
        """

    def recording_of(self, item: Item) -> Path:
        """Where the searches of a question are recorded."""

    def is_recorded(self, item: Item) -> bool:
        """Whether a question has a recording that can be played."""


@runtime_checkable
class ProvidesFolders(Protocol):
    """A benchmark whose worlds read folders outside the package."""

    def folders(self) -> Sequence[Path]:
        """Folders in `installation.worlds_dir()`, mounted read-only for agents and graders: they hold nothing hidden.

        Raises ConfigError if they cannot be made.
        """


def world_mounts(benchmark: Benchmark | None) -> dict[Path, str]:
    """The mounts that a sandbox needs to play a benchmark: host folder -> its name in the folder of worlds."""
    return {folder: folder.name for folder in benchmark.folders()} if isinstance(benchmark, ProvidesFolders) else {}


@runtime_checkable
class ProvidesJudge(Protocol):
    """A benchmark whose scorer is a judge that an agent can ask (`POST /judge`) but cannot run itself.

    Its `scorer()` is a `scorers.hidden.HiddenJudge`, so that a workspace gives no verdict of its own.
    """

    def judge(self, secret: bytes) -> Scorer:
        """The judge for a secret; one that needs no secret, such as an LLM behind an endpoint, is always the same."""


@runtime_checkable
class ProvidesHiddenPreference(ProvidesJudge, Protocol):
    """A benchmark whose judge follows from the installation secret."""

    def informed(self, secret: bytes) -> Player:
        """A player that knows how the judge works and takes this for the secret."""

    def shortcuts(self) -> Mapping[str, Player]:
        """Players that please a careless judge (a longer reply, a repeated one) and must not win; by description."""


def with_methods(benchmark: BenchmarkT, **methods: Any) -> BenchmarkT:
    """A copy of a benchmark with some methods replaced; its class stays what isinstance says, attributes too."""
    cls = type(benchmark)
    # without slots of its own the subclass has the layout of its base, which assigning __class__ requires
    names = {**methods, "__slots__": (), "__module__": cls.__module__, "__doc__": cls.__doc__}
    changed = copy(benchmark)
    object.__setattr__(changed, "__class__", type(cls.__name__, (cls,), names))
    return changed


def with_scorer(benchmark: BenchmarkT, scorer: Scorer) -> BenchmarkT:
    """The same benchmark with another scorer."""
    return with_methods(benchmark, scorer=lambda self: scorer)


def players_of(benchmark: Benchmark) -> Players:
    """The players that bracket a benchmark. Raises ConfigError for one of episodes that provides none."""
    if isinstance(benchmark, ProvidesPlayers):
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
        foreign_item = items[int(rng.integers(max(1, len(items) - 1)))]
        return (items[-1] if foreign_item.id == item.id else foreign_item).reference or ""

    return at_random(reply)(items)


def at_random(
    reply: Callable[[Item, Sequence[Message], np.random.Generator], str],
) -> Callable[[Sequence[Item]], Player]:
    """A random player from a function that draws: the same chat of an item gets the same message in every process."""

    def make_player(items: Sequence[Item]) -> Player:
        def play(item: Item, chat: Sequence[Message]) -> str:
            # seeded by item and chat, because a player keeps no state between calls and between processes
            rng = np.random.default_rng(derive_seed("random player", item.id, *(m.text for m in chat)))
            return reply(item, chat, rng)

        return play

    return make_player


def visible_row(benchmark: Benchmark, item: Item) -> Mapping[str, JsonValue]:
    """What an agent is given of a visible item: a question with its answer, or an episode to be played."""
    if isinstance(benchmark, ProvidesRows):
        return benchmark.visible_row(item)
    return row_of_question(item)


def item_of(benchmark: Benchmark, row: Mapping[str, JsonValue]) -> Item:
    """The item of a visible row, in the train split. Raises ConfigError for a row without id or prompt."""
    if isinstance(benchmark, ProvidesRows):
        return benchmark.item_of(row)
    return question_of_row(row, benchmark.name)


def require_keys(row: Mapping[str, JsonValue], keys: Sequence[str], benchmark: str) -> None:
    """Raises ConfigError for a row without one of these keys."""
    missing = [key for key in keys if key not in row]
    if missing:
        raise ConfigError(
            f"row {quoted(str(row.get('id')))} of {benchmark} has no {', '.join(missing)}; "
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


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, uniformly at random."""
    return options[int(rng.integers(len(options)))]


class Pool(StrEnum):
    """The part of all candidates that a split draws from."""

    TRAIN = "train"
    DEV = "dev"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """Where the candidates of one benchmark come from."""

    name: str
    """Of the benchmark; part of every hash."""
    draw: Callable[[np.random.Generator], T]
    canonical: Callable[[T], str]
    """The content that no two splits may share."""
    text: Callable[[T], str]
    """The prompt; no split has the same text twice."""
    pools: str = ""
    """Salt of the hash that decides the pool; empty: from the name."""
    max_barren_draws: int = 5_000
    """After this many draws in a row without a new candidate the split counts as used up."""

    def pool_of(self, candidate: T) -> Pool:
        """The pool of a candidate, by a public hash of its canonical text."""
        return pool_of_text(self.canonical(candidate), self.pools or f"{self.name} pools 1")

    def first(self, split: Split, n: int, secret: bytes | None) -> list[T]:
        """The first n candidates of a split, always the same ones for one secret.

        Raises ConfigError for a hidden split without the secret, or if the split has fewer.
        """
        if split is Split.TEST_PRIVATE and secret:
            log_private_items(self.name, n, secret)
        candidates = list(islice(self.distinct(split, secret), n))
        if len(candidates) < n:
            raise ConfigError(
                f"{self.name}: {n} items of split {split.value!r} were asked for, there are {len(candidates)}; "
                "ask for fewer"
            )
        return candidates

    def train_draws(self, rng: np.random.Generator) -> Iterator[T]:
        """Endless candidates of the train pool, with repetition: the source of pre-training corpora."""
        while True:
            candidate = self.draw(rng)
            if self.pool_of(candidate) is Pool.TRAIN:
                yield candidate

    def item_id(self, candidate: T, split: Split, secret: bytes | None) -> str:
        """A stable id; that of a hidden item is keyed, so that a list of ids reveals no items."""
        return keyed_id(self.name, self.text(candidate), split, secret)

    def distinct(self, split: Split, secret: bytes | None) -> Iterator[T]:
        """The candidates of a split in their fixed order, each text once; ends when the split is used up.

        Raises ConfigError if a hidden split is asked for without the secret.
        """
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is hidden and needs the installation secret; "
                "only the grader may ask for it"
            )
        texts: set[str] = set()
        barren = 0
        for index in count():
            # a seed for each draw: no candidate depends on how many random numbers the ones before it took
            candidate = self.draw(np.random.default_rng(self._seed(split, index, secret)))
            if not self._belongs(candidate, split, secret) or (text := self.text(candidate)) in texts:
                barren += 1
                if barren >= self.max_barren_draws:
                    return
                continue
            texts.add(text)
            barren = 0
            yield candidate

    def _seed(self, split: Split, index: int, secret: bytes | None) -> int:
        if split in HIDDEN_SPLITS and secret:
            digest = hmac.new(secret, f"{self.name} draw\0{split.value}\0{index}".encode(), hashlib.sha256).digest()
            return int.from_bytes(digest[:16], "big")
        return derive_seed(f"{self.name} draw", split.value, index)

    def _belongs(self, candidate: T, split: Split, secret: bytes | None) -> bool:
        pool = self.pool_of(candidate)
        if split is Split.TRAIN:
            return pool is Pool.TRAIN
        if split is Split.DEV:
            return pool is Pool.DEV
        if pool is not Pool.HIDDEN or not secret:
            return False
        # one bit that only the secret gives decides between the two hidden splits
        side = hmac.new(secret, f"{self.name} side\0{self.canonical(candidate)}".encode(), hashlib.sha256).digest()
        return (side[0] & 1 == 0) == (split is Split.TEST_PUBLIC)


def pool_of_text(canonical_text: str, salt: str) -> Pool:
    """The pool of a canonical text."""
    digest = hashlib.sha256(f"{salt}\0{canonical_text}".encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 12
    if bucket < 4:
        return Pool.HIDDEN
    return Pool.DEV if bucket == 4 else Pool.TRAIN


def keyed_id(name: str, text: str, split: Split, secret: bytes | None) -> str:
    """An id from a text; keyed for a hidden split."""
    message = f"{name} item\0{text}".encode()
    if split in HIDDEN_SPLITS and secret:
        return f"{name}-{hmac.new(secret, message, hashlib.sha256).hexdigest()[:16]}"
    return f"{name}-{hashlib.sha256(message).hexdigest()[:16]}"
