"""Whether a benchmark distinguishes right from wrong, before a model is scored on it.

Every split is read; reference answers are played through the real engine and scorer, and so is an empty answer. Does
NOT judge whether items are good, or hard enough for a model: `agent2 tasks check` scores the base model of a task.

`record_questions` records a live search back end for every question of a benchmark, so that it is played without a
network. Promises: each question is searched for with its own words, and played by a model if one is given, whose
searches are then on file, too; a question that has a usable recording is left as it is, so that an interrupted
recording is continued; one that the back end failed has no file, and is named with the reason. A back end that fails
`GIVE_UP_AFTER` questions in a row is given up. Does NOT judge, and stores nothing but queries and pages. A checkpoint
that asks something else later meets a search among the recorded pages of the question (`RecordedSearch`).
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent2 import installation
from agent2.benchmarks.data import DataBenchmark
from agent2.benchmarks.home import ProvidesCount, ProvidesRecordings
from agent2.environments.search.world import ANSWER, UNKNOWN
from agent2.environments.tools import write_brackets
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play_by, play_rollouts
from agent2.evaluation.scoring import score_played
from agent2.models.sources import CheckpointSource
from agent2.plugins import copy_source, is_code, is_located
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, Message, Rollout, RolloutStatus, ScoredRollout, Split

MOST_ITEMS = 100
"""Of a split of a benchmark that does not say how many it has."""
MAX_PLAYED = 20_000
MAX_FLOOR = 0.05
"""Highest mean score of an empty answer."""


@dataclass(frozen=True, slots=True)
class BenchmarkFinding:
    """One check and its verdict."""

    name: str
    is_ok: bool | None
    """None: not checked; the detail says why."""
    detail: str


@dataclass(frozen=True, slots=True)
class BenchmarkCheck:
    """What was found."""

    benchmark: str
    """Name and version."""
    counts: dict[str, int]
    """Split -> items that were read."""
    checks: list[BenchmarkFinding]
    example: str
    """The prompt of the first visible item."""

    @property
    def is_sound(self) -> bool:
        """Whether no check failed."""
        return not any(check.is_ok is False for check in self.checks)


def check_benchmark(benchmark: Benchmark, name: str = "") -> BenchmarkCheck:
    """Read and play a benchmark; private items get their entry in the access log.

    name: by which it was loaded; where that is a Python file, a copy is loaded as agents are given it.
    Raises ConfigError for data that cannot be read, and for a benchmark without a single item.
    """
    secret = installation.secret()
    items = {split: split_items(benchmark, split, secret) for split in Split}
    every = [item for members in items.values() for item in members]
    if not every:
        raise ConfigError(f"benchmark {benchmark.name}: no split has items; name a file with data")
    visible = [item for item in every if item.split not in HIDDEN_SPLITS]
    return BenchmarkCheck(
        f"{benchmark.name}-v{benchmark.version}",
        {split.value: len(members) for split, members in items.items()},
        [*_checks(benchmark, items, every), *_copy_check(name)],
        (visible or every)[0].prompt if visible else "(every item is hidden)",
    )


def split_items(benchmark: Benchmark, split: Split, secret: bytes | None) -> list[Item]:
    """All items of a split that say how many there are, else the first `MOST_ITEMS` or fewer; empty: it has none."""
    if isinstance(benchmark, ProvidesCount):
        n_items = benchmark.count(split, secret)
        return benchmark.items(split, n_items, secret) if n_items else []
    n_items = MOST_ITEMS
    while n_items:
        try:
            return benchmark.items(split, n_items, secret)
        except ConfigError:
            n_items //= 2
    return []


def _checks(benchmark: Benchmark, items: dict[Split, list[Item]], every: list[Item]) -> Iterator[BenchmarkFinding]:
    owner: dict[str, Item] = {}
    doubles = [(item, owner[item.prompt]) for item in every if owner.setdefault(item.prompt, item) is not item]
    detail = f"{len(owner)} distinct prompts"
    if doubles:
        item, other = doubles[0]
        detail = (
            f"{len(doubles)} prompts come more than once, that of {item.id} ({item.split.value}) in {other.split.value}"
        )
    yield BenchmarkFinding("no two items ask the same", not doubles, detail)
    ids = {item.id for item in every}
    yield BenchmarkFinding(
        "every item has an id of its own", len(ids) == len(every), f"{len(ids)} ids, {len(every)} items"
    )
    yield _hidden(benchmark, items)
    is_asked = isinstance(benchmark, DataBenchmark) and hasattr(benchmark.environment(), "ask_expert")
    if (benchmark.max_turns > 1 and not is_asked) or any(item.reference is None for item in every):
        why = "items are episodes, or have no reference answers; agent2 tasks check plays them"
        yield BenchmarkFinding("reference answers score 1.0", None, why)
    else:
        right = _play(benchmark, every, lambda item, world: world.ask_expert() if is_asked else item.reference or "")
        wrong = [one for one in right if one.score.value != 1.0]
        detail = f"{len(right) - len(wrong)} of {len(right)}"
        if wrong:
            detail += f"; {wrong[0].rollout.item_id}: {wrong[0].score.reason}"
        yield BenchmarkFinding("reference answers score 1.0", not wrong, detail)
    empty = [one.score.value for one in _play(benchmark, every, lambda item, world: "")]
    known = [value for value in empty if value is not None]
    mean = sum(known) / len(known) if known else None
    words = f"mean {mean:.2f} of {len(known)}" if mean is not None else "no score at all"
    is_low = mean is not None and mean <= MAX_FLOOR and len(known) == len(empty)
    yield BenchmarkFinding(
        f"an empty answer scores at most {MAX_FLOOR}", is_low, f"{words}, {len(empty) - len(known)} missing"
    )


def _copy_check(name: str) -> Iterator[BenchmarkFinding]:
    """Whether the code works in a workspace, where only what a Python file imports is beside it."""
    if not is_code(name) or not is_located(name):
        return
    path, _, attribute = name.rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        copy_source(Path(path).expanduser().resolve(), Path(folder))
        program = "import sys; from agent2.benchmarks import load_benchmark; load_benchmark(sys.argv[1])"
        copy = f"{folder}/{Path(path).name}:{attribute}"
        done = subprocess.run([sys.executable, "-c", program, copy], capture_output=True, text=True, check=False)
    problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1].replace(folder, ".")
    told = f"{problem}; agents get the file and the Python modules that it imports from its folder, and no other file"
    yield BenchmarkFinding(
        "a copy for agents can be loaded", done.returncode == 0, "" if done.returncode == 0 else told
    )


def _hidden(benchmark: Benchmark, items: dict[Split, list[Item]]) -> BenchmarkFinding:
    name = "hidden items need the installation secret"
    hidden = [split for split in sorted(HIDDEN_SPLITS) if items[split]]
    if not hidden:
        return BenchmarkFinding(name, None, "there are none")
    for split in hidden:
        try:
            benchmark.items(split, 1, None)
        except ConfigError:
            continue
        return BenchmarkFinding(
            name, False, f"{split.value} is given without it; raise ConfigError where secret is None"
        )
    words = [
        f"{split.value}: {benchmark.choice_words(split)}" for split in hidden if isinstance(benchmark, DataBenchmark)
    ]
    return BenchmarkFinding(name, True, "; ".join(words) or ", ".join(split.value for split in hidden))


def _play(benchmark: Benchmark, items: list[Item], answer: Callable[[Item, Any], str]) -> list[ScoredRollout]:
    attempts = [Attempt(item, 0, 0) for item in items[:MAX_PLAYED]]
    played = play_by(
        lambda attempt, world, chat: answer(attempt.item, world), attempts, benchmark.environment, benchmark.max_turns
    )
    return list(score_played(played, benchmark.scorer()))


GIVE_UP_AFTER = 10


@dataclass(frozen=True, slots=True)
class SearchesRecorded:
    """What a recording did."""

    n_recorded: int
    n_before: int
    """Questions that had a recording."""
    failed: dict[str, str] = field(default_factory=dict)
    """Id of a question -> why there is none; those that were not tried any more are among them."""


def record_questions(
    benchmark: ProvidesRecordings, source: CheckpointSource | None, on_progress: Callable[[int, int], None]
) -> SearchesRecorded:
    """Ask the live back end of `search.yaml` about every question that was not recorded yet.

    Raises ConfigError where none is named, and what opening the checkpoint raises.
    """
    items, n_all = benchmark.to_record()
    failed: dict[str, str] = {}
    in_a_row = 0
    for number, (item, reason) in enumerate(_recorded(benchmark, items, source), 1):
        in_a_row = 0 if reason is None else in_a_row + 1
        if reason is not None:
            failed[item.id] = reason
            benchmark.recording_of(item).unlink(missing_ok=True)
        on_progress(number, len(items))
        if in_a_row == GIVE_UP_AFTER:
            failed |= {one.id: f"not tried: {GIVE_UP_AFTER} questions in a row failed" for one in items[number:]}
            break
    return SearchesRecorded(len(items) - len(failed), n_all - len(items), failed)


def _recorded(
    benchmark: ProvidesRecordings, items: list[Item], source: CheckpointSource | None
) -> Iterator[tuple[Item, str | None]]:
    """Each question in order, and why it could not be recorded."""

    def own_words(attempt: Attempt, world: object, chat: Sequence[Message]) -> str:
        if len(chat) > 1:
            return write_brackets(ANSWER, UNKNOWN)
        return benchmark.static_answers([attempt.item], 0)[0]

    sampler = None if source is None else source.open()
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    try:
        for item in items:
            attempts = [Attempt(item, 0, 0)]
            reason = _problem(next(play_by(own_words, attempts, benchmark.environment, 2))[1])
            if reason is None and sampler is not None:
                reason = _problem(next(play_rollouts(attempts, sampler, benchmark.environment, settings))[1])
            if reason is None and not benchmark.is_recorded(item):
                reason = "the back end finds no page for it"
            yield item, reason
    finally:
        if sampler is not None:
            sampler.close()


def _problem(rollout: Rollout) -> str | None:
    return rollout.reason if rollout.status is RolloutStatus.FAILED else None
