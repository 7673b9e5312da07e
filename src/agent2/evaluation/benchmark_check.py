"""Checks of a benchmark before a model is scored on it, and the recording of the searches that it is played with.

`check_benchmark` reads every split and plays reference answers through the real engine and scorer, and so an empty
answer. Does NOT judge whether items are good, or hard enough for a model: `agent2 tasks check` scores the base model of
a task.

`record_questions` records a live search back end for every question of a benchmark, so that it is played without a
network. Promises: each question is searched for with its own words, and played by a model if one is given, whose
searches are recorded, too; a question that has a usable recording is left as it is, so that an interrupted recording
is continued; one that the back end failed has no file, and is reported with the reason. A back end that fails
`GIVE_UP_AFTER` questions in a row is given up. Does NOT judge, and stores nothing but queries and pages. A checkpoint
that searches for something else later searches among the recorded pages of the question (`RecordedSearch`).
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent2 import installation
from agent2.benchmarks.declaration import Portion
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import ProvidesCount, ProvidesRecordings
from agent2.benchmarks.questions import ACCEPTED
from agent2.contract.gates import EvidenceNeeds
from agent2.environments.search.world import ANSWER, UNKNOWN
from agent2.environments.tools import write_brackets
from agent2.errors import ConfigError, quoted
from agent2.evaluation.engine import Attempt, PlaySettings, play_by, play_rollouts, score_answers
from agent2.evaluation.item_checks import guesses, items_to_decide, smallest_difference
from agent2.evaluation.scoring import score_played
from agent2.evaluation.suite_plan import MARGIN
from agent2.models.sources import CheckpointSource
from agent2.plugins import copy_source, is_code, is_located
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, Message, Rollout, RolloutStatus, ScoredRollout, Split

MOST_ITEMS = 100
"""Of a split of a benchmark that does not say how many it has."""
MAX_PLAYED = 20_000
MAX_FLOOR = 0.05
"""Highest mean score of an empty answer."""
GIVE_UP_AFTER = 10
"""Questions in a row that the search back end failed."""

Answer = Callable[[Item, Any], str]
"""The next message for an item, from the item and its world."""


@dataclass(frozen=True, slots=True)
class BenchmarkFinding:
    """One check and its verdict."""

    name: str
    is_ok: bool | None
    """None: not checked; the detail says why."""
    detail: str
    warning: bool = False
    """The benchmark is sound, and of little use for what the detail says."""


@dataclass(frozen=True, slots=True)
class BenchmarkCheck:
    """All checks of one benchmark."""

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
    all_items = [item for members in items.values() for item in members]
    if not all_items:
        raise ConfigError(f"benchmark {benchmark.name}: no split has items; name a file with data")
    visible = [item for item in all_items if item.split not in HIDDEN_SPLITS]
    return BenchmarkCheck(
        f"{benchmark.name}-v{benchmark.version}",
        {split.value: len(members) for split, members in items.items()},
        [*_checks(benchmark, items, all_items), *_copy_check(name)],
        visible[0].prompt if visible else "(every item is hidden)",
    )


def split_items(benchmark: Benchmark, split: Split, secret: bytes | None) -> list[Item]:
    """All items of a split that say how many there are, else the first `MOST_ITEMS` or fewer; empty: it has none."""
    if isinstance(benchmark, ProvidesCount):
        n_items = benchmark.count(split, secret)
        return benchmark.items(split, n_items, secret) if n_items else []
    # A benchmark refuses to give more items than it has, and does not say how many those are.
    n_items = MOST_ITEMS
    while n_items:
        try:
            return benchmark.items(split, n_items, secret)
        except ConfigError:
            n_items //= 2
    return []


def _checks(benchmark: Benchmark, items: dict[Split, list[Item]], all_items: list[Item]) -> Iterator[BenchmarkFinding]:
    first_with: dict[str, Item] = {}
    repeats = [item for item in all_items if first_with.setdefault(item.prompt, item) is not item]
    detail = f"{len(first_with)} distinct prompts"
    if repeats:
        item = repeats[0]
        split = first_with[item.prompt].split.value
        detail = f"{len(repeats)} prompts come more than once, that of {item.id} ({item.split.value}) in {split}"
    yield BenchmarkFinding("no two items ask the same", not repeats, detail)
    ids = {item.id for item in all_items}
    yield BenchmarkFinding(
        "every item has an id of its own", len(ids) == len(all_items), f"{len(ids)} ids, {len(all_items)} items"
    )
    yield _hidden_items(benchmark, items)
    yield _reference_answers(benchmark, all_items)
    yield from _accepted_answers(benchmark, all_items)
    yield _empty_answers(benchmark, all_items)
    if benchmark.max_turns == 1:
        yield _blind_guesses(benchmark, all_items)
    if isinstance(benchmark, ProvidesCount):
        yield _sizes(benchmark, items)


def _reference_answers(benchmark: Benchmark, items: list[Item]) -> BenchmarkFinding:
    name = "reference answers score 1.0"
    oracle = _oracle_of(benchmark, items)
    if oracle is None:
        detail = "items are episodes, or have no reference answers; agent2 tasks check plays them"
        return BenchmarkFinding(name, None, detail)
    records = _play(benchmark, items, oracle)
    wrong = [record for record in records if record.score.value != 1.0]
    detail = f"{len(records) - len(wrong)} of {len(records)}"
    if wrong:
        detail += f"; {wrong[0].rollout.item_id}: {wrong[0].score.reason}{_form_hint(benchmark, items)}"
    return BenchmarkFinding(name, not wrong, detail)


def _form_hint(benchmark: Benchmark, items: list[Item]) -> str:
    """How the references have to be written where the scorer reads them only in its own form; empty: no such reason."""
    form = getattr(benchmark.scorer(), "answer_form", None)
    if not isinstance(form, str) or not isinstance(benchmark, DeclaredBenchmark) or benchmark.spec.answer is None:
        return ""
    written = _play(benchmark, items, lambda item, world: form.format(answer=item.reference))
    if any(record.score.value != 1.0 for record in written):
        return ""
    return f"; write answer: {{field: {benchmark.spec.answer.field}, form: '{form}'}}"


def _accepted_answers(benchmark: Benchmark, items: list[Item]) -> Iterator[BenchmarkFinding]:
    """Whether each answer that an item accepts beside its reference scores; nothing where no item has any."""
    answers = [(item, [str(text)]) for item in items for text in item.payload.get(ACCEPTED) or ()][:MAX_PLAYED]
    if not answers or benchmark.max_turns > 1:
        return
    scores = score_answers(benchmark, answers)
    wrong = [(item, text, score) for (item, (text,)), score in zip(answers, scores, strict=True) if score.value != 1.0]
    detail = f"{len(scores) - len(wrong)} of {len(scores)}"
    if wrong:
        item, text, score = wrong[0]
        detail += f"; {item.id}, {quoted(text)}: {score.reason}; take a scorer that reads several (exact, token_f1)"
    yield BenchmarkFinding("further accepted answers score 1.0", not wrong, detail)


def _blind_guesses(benchmark: Benchmark, items: list[Item]) -> BenchmarkFinding:
    name = "players that read no question do not win"
    blind = guesses(benchmark, items)
    if not blind:
        return BenchmarkFinding(name, None, "no item has a reference")
    chance = "" if blind[0].chance is None else f"; blind guessing {100 * blind[0].chance:.0f}%"
    winners = [guess for guess in blind if guess.wins]
    advice = (
        f"; {winners[0].player} wins without the question: shuffle the options (shuffle: true), or balance the answers"
        if winners
        else ""
    )
    return BenchmarkFinding(name, not winners, f"{', '.join(map(str, blind))}{chance}{advice}")


def _sizes(benchmark: Benchmark, items: dict[Split, list[Item]]) -> BenchmarkFinding:
    """Whether the splits that decide have enough items for the gate of `agent2 eval`."""
    name, needs = "splits are large enough to decide", EvidenceNeeds()
    n_needed = items_to_decide(MARGIN, needs)
    counts = {split: len(items[split]) for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE)}
    sizes = ", ".join(
        f"{split.value} {n}"
        + (f" (shows a difference of {100 * smallest_difference(n, needs):.0f} points)" if n else "")
        for split, n in counts.items()
    )
    detail = f"a decision needs about {n_needed} items, {needs.min_items} at least: {sizes}"
    if counts[Split.TEST_PUBLIC] >= n_needed:
        return BenchmarkFinding(name, True, detail)
    return BenchmarkFinding(name, None, f"{detail}{_larger_splits(benchmark, items)}", warning=True)


def _larger_splits(benchmark: Benchmark, items: dict[Split, list[Item]]) -> str:
    """How one file that is divided could be used so that it decides."""
    if not isinstance(benchmark, DeclaredBenchmark) or Portion.ALL not in benchmark.spec.portions:
        return "; add rows"
    file, n_rows = benchmark.spec.portions[Portion.ALL], sum(map(len, items.values()))
    key = "files" if benchmark.spec.files is not None else "splits"
    return (
        f"; write {key}: {{test: {file}}} for {(n_rows + 1) // 2} and {n_rows // 2}, or {key}: {{test_public: {file}}} "
        f"for {n_rows} in nightly decisions, or add rows"
    )


def _oracle_of(benchmark: Benchmark, items: list[Item]) -> Answer | None:
    """How right answers are given: by the expert of a world that a data benchmark plays in, else by the reference.

    None: an item has no reference, or items are episodes without such an expert.
    """
    if any(item.reference is None for item in items):
        return None
    if isinstance(benchmark, DeclaredBenchmark) and hasattr(benchmark.environment(), "ask_expert"):
        return lambda item, world: world.ask_expert()
    if benchmark.max_turns > 1:
        return None
    return lambda item, world: item.reference or ""


def _empty_answers(benchmark: Benchmark, items: list[Item]) -> BenchmarkFinding:
    records = _play(benchmark, items, lambda item, world: "")
    values = [record.score.value for record in records if record.score.value is not None]
    n_missing = len(records) - len(values)
    mean = sum(values) / len(values) if values else None
    is_low = mean is not None and mean <= MAX_FLOOR and not n_missing
    summary = f"mean {mean:.2f} of {len(values)}" if mean is not None else "no score at all"
    return BenchmarkFinding(f"an empty answer scores at most {MAX_FLOOR}", is_low, f"{summary}, {n_missing} missing")


def _copy_check(name: str) -> Iterator[BenchmarkFinding]:
    """Whether the code works in a workspace, where only what a Python file imports is beside it."""
    if not is_code(name) or not is_located(name):
        return
    path, _, attribute = name.rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        # As a workspace has it: the file and its imports, nothing else from its folder.
        copy_source(Path(path).expanduser().resolve(), Path(folder))
        program = "import sys; from agent2.benchmarks import load_benchmark; load_benchmark(sys.argv[1])"
        copy = f"{folder}/{Path(path).name}:{attribute}"
        process = subprocess.run([sys.executable, "-c", program, copy], capture_output=True, text=True, check=False)
    detail = ""
    if process.returncode:
        problem = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1].replace(folder, ".")
        detail = (
            f"{problem}; agents get the file and the Python modules that it imports from its folder, and no other file"
        )
    yield BenchmarkFinding("a copy for agents can be loaded", process.returncode == 0, detail)


def _hidden_items(benchmark: Benchmark, items: dict[Split, list[Item]]) -> BenchmarkFinding:
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
    choices = [
        f"{split.value}: {benchmark.item_origin(split)}" for split in hidden if isinstance(benchmark, DeclaredBenchmark)
    ]
    return BenchmarkFinding(name, True, "; ".join(choices) or ", ".join(split.value for split in hidden))


def _play(benchmark: Benchmark, items: list[Item], answer: Answer) -> list[ScoredRollout]:
    attempts = [Attempt(item, 0, 0) for item in items[:MAX_PLAYED]]
    rollouts = play_by(
        lambda attempt, world, chat: answer(attempt.item, world), attempts, benchmark.environment, benchmark.max_turns
    )
    return list(score_played(rollouts, benchmark.scorer()))


@dataclass(frozen=True, slots=True)
class SearchesRecorded:
    """How many questions were recorded, and which failed."""

    n_recorded: int
    n_before: int
    """Questions that had a recording."""
    failed: dict[str, str] = field(default_factory=dict)
    """Id of a question -> why it has no recording; those that were no longer tried are among them."""


def record_questions(
    benchmark: ProvidesRecordings, source: CheckpointSource | None, on_progress: Callable[[int, int], None]
) -> SearchesRecorded:
    """Ask the live back end of `search.yaml` about every question that was not recorded yet.

    Raises ConfigError where `search.yaml` names no back end, and what opening the checkpoint raises.
    """
    items, n_questions = benchmark.to_record()
    failed: dict[str, str] = {}
    n_failed_in_a_row = 0
    for number, (item, reason) in enumerate(_record_each(benchmark, items, source), 1):
        n_failed_in_a_row = 0 if reason is None else n_failed_in_a_row + 1
        if reason is not None:
            failed[item.id] = reason
            # Half a recording would be taken for a whole one when the recording is continued.
            benchmark.recording_of(item).unlink(missing_ok=True)
        on_progress(number, len(items))
        if n_failed_in_a_row == GIVE_UP_AFTER:
            failed |= {
                untried.id: f"not tried: {GIVE_UP_AFTER} questions in a row failed" for untried in items[number:]
            }
            break
    return SearchesRecorded(len(items) - len(failed), n_questions - len(items), failed)


def _record_each(
    benchmark: ProvidesRecordings, items: list[Item], source: CheckpointSource | None
) -> Iterator[tuple[Item, str | None]]:
    """Each question in order, and why it could not be recorded."""

    def search_question(attempt: Attempt, world: object, chat: Sequence[Message]) -> str:
        if len(chat) > 1:
            return write_brackets(ANSWER, UNKNOWN)
        return benchmark.static_answers([attempt.item], 0)[0]

    sampler = None if source is None else source.open()
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    try:
        for item in items:
            attempts = [Attempt(item, 0, 0)]
            reason = _problem(next(play_by(search_question, attempts, benchmark.environment, 2))[1])
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
