"""Evaluates a checkpoint and its control group on a suite, and reads what came of it from the cards.

The checkpoint is played first, benchmark by benchmark in the order of prerequisites: where it falls short of one, the
benchmarks that depend on it are skipped on both sides. Then the baseline is played on the same items. One model is in
memory at a time. A run that was killed resumes from its cards, and its report is the same as that of an uninterrupted
one (for a sampler whose answers do not depend on the batch); a finished evaluation is not played again; a folder of
another evaluation is left alone; two processes never write one folder.

The outcome (evidence, decision, notes) is computed from the cards, the recorded spot check, the suite and what was
given besides (history, training log), so it can be computed again on a machine without torch. It contains no time and
no path of this machine, so equal cards give equal reports. `report_differences` compares a stored report with its
cards, number by number.

Several attempts at each item give pass@1, pass@k, pass^k, majority@k and best-of-n, kept apart (`attempt_metrics`);
pass@k never appears without pass@1 and the cost of the search per point. What cannot be computed says why. A majority
is one of extracted answers (`Score.extracted`), never of whole completions: two ways to 18 are two votes.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from pydantic import ValidationError

from agent2.cards.card import CardSummary
from agent2.cards.compare import find_cards
from agent2.cards.folder import card_exists, is_finished
from agent2.cards.reader import iter_rollouts, read_header, read_summary, validate_card
from agent2.config import first_problem
from agent2.contract.compare import ChangedItem, final_answer, regress
from agent2.contract.decision import Decision, decide
from agent2.contract.measures import CardPaths, evidence_from_cards
from agent2.contract.metrics import Evidence, metric_named
from agent2.contract.report_file import read_report, report_dict
from agent2.contract.suite import Suite, SuiteBenchmark, shortfall
from agent2.errors import CardError, ConfigError, NotEnoughData
from agent2.evaluation.runner import evaluate, finished_summary, software_lock
from agent2.evaluation.spot_check import people_say
from agent2.evaluation.suite_folder import (
    BASELINE,
    CHECKPOINT,
    LOCK_FILE,
    REFERENCES_FILE,
    SIDES,
    SUITE_FILE,
    Identity,
    card_path,
    owned_folder,
    read_identity,
    read_references,
)
from agent2.evaluation.suite_plan import BenchmarkPlan, SuitePlan, SuiteRequest, plan_suite
from agent2.files import write_json
from agent2.models.sources import CheckpointSource
from agent2.records import HIDDEN_SPLITS, EvaluationProtocol, JsonValue, Sampler, ScoredRollout, Split
from agent2.stats.attempts import (
    BestOfN,
    CostPerPoint,
    PassMetrics,
    best_of_n,
    cost_per_point,
    majority_at_k,
    pass_metrics,
    tally,
)
from agent2.stats.estimates import Estimate

GIVE_UP_AFTER = 50
"""Rollouts in a row lost to the infrastructure: a model or endpoint that is gone is an error, not a card of faults."""


class SuiteProgress(Protocol):
    """Told where an evaluation is."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """The present phase; done and total in rollouts."""


def run_suite(request: SuiteRequest, on_progress: SuiteProgress | None = None) -> SuitePlan:
    """Play what is not played yet; the cards are under `request.out` when this returns.

    Raises ConfigError for a request that cannot be played (see `plan_suite`) or a folder of something
    else, CheckpointError for a checkpoint that cannot be loaded, SamplerFailed when one is gone in the middle: what
    was played is kept then, call again.
    """
    plan = plan_suite(request)
    progress = on_progress or _quiet
    with owned_folder(request.out, plan.identity):
        write_json(request.out / SUITE_FILE, request.suite.model_dump(mode="json"))
        if request.played_split not in HIDDEN_SPLITS:
            write_json(request.out / REFERENCES_FILE, _references(plan))
        started = time.time()
        opened: dict[str, JsonValue] = {}
        skipped = _play_checkpoint(request, plan, progress, opened)
        _play_baseline(request, plan, skipped, progress, opened)
        write_json(request.out / LOCK_FILE, _lock(request, opened, started))
    return plan


def _play_checkpoint(
    request: SuiteRequest, plan: SuitePlan, progress: SuiteProgress, opened: dict[str, JsonValue]
) -> set[str]:
    """Play the checkpoint's side; returns the benchmarks that were skipped for a prerequisite."""
    scores: dict[str, float | None] = {}
    skipped = set()
    with _lazy(request.checkpoint, opened, CHECKPOINT) as sampler:
        for benchmark in plan.benchmarks:
            if shortfall(benchmark.entry, scores) is not None:
                skipped.add(benchmark.entry.name)
                continue
            card = _play(request.out, CHECKPOINT, benchmark, sampler, progress)
            scores[benchmark.entry.name] = own_score(request.suite, benchmark.entry.name, card)
    return skipped


def _play_baseline(
    request: SuiteRequest, plan: SuitePlan, skipped: set[str], progress: SuiteProgress, opened: dict[str, JsonValue]
) -> None:
    with _lazy(request.baseline, opened, BASELINE) as sampler:
        for benchmark in plan.benchmarks:
            if benchmark.entry.name not in skipped:
                _play(request.out, BASELINE, benchmark, sampler, progress)


def _play(out: Path, side: str, benchmark: BenchmarkPlan, sampler: "_Lazy", progress: SuiteProgress) -> Path:
    plan = benchmark.sides[side]
    card = card_path(out, side, benchmark.entry.name, plan.split.value)
    message = f"{plan.checkpoint_name} ({side}) on {benchmark.entry.name}"
    if finished_summary(plan, card) is None:
        progress(message)
        evaluate(
            plan, sampler.get(), card, lambda done, total: progress(message, done, total), give_up_after=GIVE_UP_AFTER
        )
    else:
        n_rollouts = len(plan.items) * plan.protocol().attempts
        progress(message, n_rollouts, n_rollouts)
    return card


def _references(plan: SuitePlan) -> dict[str, dict[str, str]]:
    """Benchmark -> item -> reference answer, of the items that have one."""
    return {
        benchmark.entry.name: {
            item.id: item.reference for item in benchmark.sides[CHECKPOINT].items if item.reference is not None
        }
        for benchmark in plan.benchmarks
    }


def own_score(suite: Suite, benchmark: str, card: Path) -> float | None:
    """The value of a benchmark's own metric on one card, 0 to 1; None: it could not be scored."""
    name = suite.benchmark(benchmark).metric
    spec = metric_named(suite.metrics, name)
    own = {benchmark: card}
    found = evidence_from_cards([spec], CardPaths(own, own)).metrics.get(spec.name)
    return found.new if found is not None else None


class _Lazy:
    """A sampler that is opened when it is first needed, so that a finished side loads no model."""

    def __init__(self, source: CheckpointSource) -> None:
        self._source = source
        self.sampler: Sampler | None = None

    def get(self) -> Sampler:
        if self.sampler is None:
            self.sampler = self._source.open()
        return self.sampler


@contextmanager
def _lazy(source: CheckpointSource, opened: dict[str, JsonValue], side: str) -> Iterator[_Lazy]:
    """A lazy sampler that is closed at the end; what it says of itself goes to `opened`."""
    lazy = _Lazy(source)
    try:
        yield lazy
    finally:
        if lazy.sampler is not None:
            opened[side] = lazy.sampler.describe()
            lazy.sampler.close()


def _lock(request: SuiteRequest, opened: Mapping[str, JsonValue], started: float) -> dict[str, JsonValue]:
    """What this session ran on; a side that was finished before has no sampler here, its cards say."""
    return {
        "software": software_lock(),
        "suite": request.suite.id,
        "suite_digest": request.suite.digest,
        "checkpoints": {side: {"spec": source.spec, "digest": source.digest} for side, source in request.sides.items()},
        "samplers": dict(opened),
        "seed": request.seed,
        "started_at": started,
        "finished_at": time.time(),
    }


def _quiet(message: str, done: int | None = None, total: int | None = None) -> None:
    """Ignore progress: the default when no callback is given."""


SELECTOR_VIEWS = ("reward", "verifier")
"""Views of a score that may choose among attempts; the score itself may not, it is the truth."""


@dataclass(frozen=True, slots=True)
class AttemptMetrics:
    """Several attempts of one checkpoint on one benchmark."""

    k: int
    passes: PassMetrics | None
    majority: Estimate | None
    best: BestOfN | None
    cost: CostPerPoint | None
    """Of pass@k over pass@1, tokens and scorings."""
    gaps: tuple[str, ...]
    """Why something is None, one sentence each."""


def attempt_metrics(records: Iterable[ScoredRollout]) -> AttemptMetrics | None:
    """The metrics of a card's rollouts; None if no item was attempted more than once."""
    by_item: dict[str, list[ScoredRollout]] = {}
    for record in records:
        by_item.setdefault(record.rollout.item_id, []).append(record)
    rows_I = [sorted(by_item[item], key=lambda one: one.rollout.attempt) for item in sorted(by_item)]
    k = max((len(row) for row in rows_I), default=0)
    if k < 2:
        return None
    values = [one.score.value for row in rows_I for one in row]
    if any(value not in (None, 0.0, 1.0) for value in values):
        gap = "scores are graded, not right or wrong, so there is no chance that one of several attempts is right"
        return AttemptMetrics(k, None, None, None, None, (gap,))
    solved_IA = [[one.score.value for one in row] for row in rows_I]
    gaps: list[str] = []
    passes = _or_gap(lambda: pass_metrics(tally(solved_IA), k), f"pass@{k}", gaps)
    majority = _majority(rows_I, solved_IA, k, gaps)
    best = _best(rows_I, solved_IA, k, gaps)
    return AttemptMetrics(k, passes, majority, best, _cost(passes, rows_I), tuple(gaps))


def _majority(
    rows_I: list[list[ScoredRollout]], solved_IA: list[list[float | None]], k: int, gaps: list[str]
) -> Estimate | None:
    answers_IA = [[one.score.extracted for one in row] for row in rows_I]
    if not any(answer is not None for row in answers_IA for answer in row):
        gaps.append(f"majority@{k}: the scorer read no final answer from any attempt, so nothing can be voted on")
        return None
    return _or_gap(lambda: majority_at_k(answers_IA, solved_IA, k), f"majority@{k}", gaps)


def _best(
    rows_I: list[list[ScoredRollout]], solved_IA: list[list[float | None]], k: int, gaps: list[str]
) -> BestOfN | None:
    for view in SELECTOR_VIEWS:
        scores_IA = [[one.score.views.get(view) for one in row] for row in rows_I]
        if any(score is not None for row in scores_IA for score in row):
            return _or_gap(lambda: best_of_n(solved_IA, scores_IA, k, view), f"best-of-{k}", gaps)  # noqa: B023
    gaps.append(f"best-of-{k}: no rollout has a view named {' or '.join(SELECTOR_VIEWS)} that could choose")
    return None


def _cost(passes: PassMetrics | None, rows_I: list[list[ScoredRollout]]) -> CostPerPoint | None:
    """What the attempts beyond the first cost for each point that pass@k is above pass@1."""
    if passes is None:
        return None
    tokens_I = [
        sum(one.rollout.usage.prompt_tokens + one.rollout.usage.completion_tokens for one in row)
        * (len(row) - 1)
        / len(row)
        for row in rows_I
    ]
    return cost_per_point(
        passes.pass_at_1.value, passes.pass_at_k.value, tokens_I, [float(len(row)) for row in rows_I], []
    )


ResultT = TypeVar("ResultT")


def _or_gap(compute: Callable[[], ResultT], what: str, gaps: list[str]) -> ResultT | None:
    try:
        return compute()
    except (NotEnoughData, ValueError) as error:
        gaps.append(f"{what}: {error}")
        return None


EXAMPLES = 3
"""Rollouts named for each class of bad cases."""


@dataclass(frozen=True, slots=True)
class BenchmarkOutcome:
    """One benchmark on both sides."""

    name: str
    cards: Mapping[str, str]
    """Side -> folder of its card, below the evaluation's."""
    protocols: Mapping[str, EvaluationProtocol]
    summaries: Mapping[str, CardSummary]
    attempts: Mapping[str, AttemptMetrics]
    """Empty with one attempt an item."""
    lost: tuple[ChangedItem, ...]
    """Items that the baseline solved and the checkpoint does not."""
    won: tuple[ChangedItem, ...]
    unknown: tuple[ChangedItem, ...]
    """Items that the baseline solved and for which the checkpoint has no score."""
    texts: Mapping[str, "ItemText"]
    """Of the items lost and won and those of the examples of bad cases; empty where the items are hidden."""


@dataclass(frozen=True, slots=True)
class ItemText:
    """What a visible item asked, and what came back."""

    question: str
    """The messages that the model was shown; with their roles where there are several."""
    reference: str | None
    """None: the item has no reference answer, or none was kept."""
    answers: Mapping[str, Mapping[int, str]]
    """Side -> attempt -> answer."""


@dataclass(frozen=True, slots=True)
class BadcaseExample:
    """Where a bad case can be looked at."""

    benchmark: str
    item_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """Everything that a report says."""

    suite: Suite
    identity: Identity
    evidence: Evidence
    decision: Decision
    benchmarks: tuple[BenchmarkOutcome, ...]
    skipped: tuple[str, ...]
    """One sentence for each benchmark that was not played."""
    examples: Mapping[str, tuple[BadcaseExample, ...]]
    """Class of bad cases -> rollouts of the checkpoint that show it."""


def read_outcome(out: Path, known: Evidence | None = None) -> SuiteOutcome:
    """The outcome of a finished evaluation.

    known: what cards cannot hold (history, training signals, confirmed actions, metrics that no card has); its other
    numbers are not used, nor its spot check: that is read from the recorded forms (`spot_check.people_say`).
    Raises ConfigError if something is not played yet or `known` is about another checkpoint; CardError for a damaged
    card.
    """
    identity = read_identity(out)
    suite = _read_suite(out)
    played, skipped = _played(out, suite, identity)
    cards = {side: {entry.name: card_path(out, side, entry.name, identity.split) for entry in played} for side in SIDES}
    evidence = _evidence(suite, identity, cards, skipped, known)
    evidence = _with_spot_check(evidence, out, known)
    rollouts = {entry.name: list(iter_rollouts(cards[CHECKPOINT][entry.name])) for entry in played}
    examples = _examples(rollouts)
    benchmarks = tuple(_benchmark(out, entry, cards, rollouts[entry.name]) for entry in played)
    if Split(identity.split) not in HIDDEN_SPLITS:
        references = read_references(out)
        benchmarks = tuple(
            replace(one, texts=_texts(one, examples, rollouts[one.name], cards, references.get(one.name, {})))
            for one in benchmarks
        )
    return SuiteOutcome(
        suite=suite,
        identity=identity,
        evidence=evidence,
        decision=decide(suite.metrics, suite.gates, evidence, suite.failure_taxonomy),
        benchmarks=benchmarks,
        skipped=tuple(skipped.values()),
        examples=examples,
    )


def require_about(known: Evidence, checkpoint: str) -> None:
    """Raise ConfigError unless what is known besides the cards is about the checkpoint of that name."""
    if known.checkpoint != checkpoint:
        raise ConfigError(
            f"what is known besides is about checkpoint {known.checkpoint!r}, this evaluation is of {checkpoint!r}; a "
            "spot check or training log belongs to one checkpoint"
        )


def _read_suite(out: Path) -> Suite:
    file = out / SUITE_FILE
    try:
        return Suite.model_validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        why = first_problem(error, Suite)[1] if isinstance(error, ValidationError) else error
        raise ConfigError(f"{file}: cannot be read ({why}); run the evaluation again") from error


def _played(out: Path, suite: Suite, identity: Identity) -> tuple[list[SuiteBenchmark], dict[str, str]]:
    """Benchmarks with cards on both sides, and a sentence for each of the others."""
    played: list[SuiteBenchmark] = []
    skipped: dict[str, str] = {}
    scores: dict[str, float | None] = {}
    for entry in suite.in_order():
        cards = [card_path(out, side, entry.name, identity.split) for side in SIDES]
        short = shortfall(entry, scores)
        if short is not None:
            skipped[entry.name] = str(short)
            continue
        for card in cards:
            if not card_exists(card) or not is_finished(card):
                raise ConfigError(f"{card}: is not finished; resume it with the same command")
            _require_valid(card)
        scores[entry.name] = own_score(suite, entry.name, cards[1])
        played.append(entry)
    return played, skipped


def _require_valid(card: Path) -> None:
    """A decision rests on every byte of its cards."""
    problems = validate_card(card)
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        raise CardError(f"{problems[0]}{more}; restore the card from a copy, or delete it and run the evaluation again")


def _evidence(
    suite: Suite,
    identity: Identity,
    cards: Mapping[str, Mapping[str, Path]],
    skipped: Mapping[str, str],
    known: Evidence | None,
) -> Evidence:
    evidence = replace(
        evidence_from_cards(suite.metrics, CardPaths(cards[BASELINE], cards[CHECKPOINT]), skipped=skipped),
        checkpoint=identity.sides[CHECKPOINT].name,
        baseline=identity.sides[BASELINE].name,
        suite=suite.id,
        split=identity.split,
        role=identity.role,
    )
    evidence = replace(evidence, notes=(*evidence.notes, *skipped.values()))
    if known is None:
        return evidence
    require_about(known, evidence.checkpoint)
    measured = {name for name, found in evidence.metrics.items() if found.is_complete}
    elsewhere = {metric.name for metric in suite.metrics if metric.benchmark is None} - measured
    told = {name: replace(one, source="report") for name, one in known.metrics.items() if name in elsewhere}
    return replace(
        evidence,
        metrics={**evidence.metrics, **told},
        history=known.history,
        training=known.training,
        confirmed_actions=known.confirmed_actions,
        notes=(*evidence.notes, *known.notes),
    )


def _with_spot_check(evidence: Evidence, out: Path, known: Evidence | None) -> Evidence:
    spot_check, why_not = people_say(out)
    if spot_check is None and not why_not and known is not None and known.spot_check is not None:
        why_not = "spot_check in a file is a claim and does not count; record one with agent2 spotcheck"
    return replace(evidence, spot_check=spot_check, notes=(*evidence.notes, *([why_not] if why_not else [])))


def _benchmark(
    out: Path, entry: SuiteBenchmark, cards: Mapping[str, Mapping[str, Path]], rollouts: list[ScoredRollout]
) -> BenchmarkOutcome:
    own = {side: cards[side][entry.name] for side in SIDES}
    protocols = {side: read_header(card).protocol for side, card in own.items()}
    are_comparable = protocols[BASELINE].digest == protocols[CHECKPOINT].digest
    changes = regress(find_cards(own[BASELINE]), find_cards(own[CHECKPOINT])) if are_comparable else None
    attempts = {
        BASELINE: attempt_metrics(iter_rollouts(own[BASELINE])),
        CHECKPOINT: attempt_metrics(rollouts),
    }
    return BenchmarkOutcome(
        name=entry.name,
        cards={side: str(card.relative_to(out)) for side, card in own.items()},
        protocols=protocols,
        summaries={side: read_summary(card) for side, card in own.items()},
        attempts={side: found for side, found in attempts.items() if found is not None},
        lost=changes.lost if changes is not None else (),
        won=changes.won if changes is not None else (),
        unknown=changes.unknown if changes is not None else (),
        texts={},
    )


def _texts(
    one: BenchmarkOutcome,
    examples: Mapping[str, Iterable[BadcaseExample]],
    rollouts: Iterable[ScoredRollout],
    cards: Mapping[str, Mapping[str, Path]],
    references: Mapping[str, str],
) -> dict[str, ItemText]:
    """What the report's items asked and what both sides answered."""
    wanted = {change.item_id for change in (*one.lost, *one.won)}
    wanted |= {each.item_id for some in examples.values() for each in some if each.benchmark == one.name}
    questions: dict[str, str] = {}
    answers: dict[str, dict[str, dict[int, str]]] = {item: {side: {} for side in SIDES} for item in wanted}
    for side, records in ((CHECKPOINT, rollouts), (BASELINE, iter_rollouts(cards[BASELINE][one.name]))):
        for record in records:
            item = record.rollout.item_id
            if item in wanted:
                answers[item][side][record.rollout.attempt] = final_answer(record)
                questions.setdefault(item, _question(record))
    return {
        item: ItemText(questions[item], references.get(item), answers[item]) for item in sorted(wanted & set(questions))
    }


def _question(record: ScoredRollout) -> str:
    messages = record.rollout.prompt
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


def _examples(rollouts: Mapping[str, Iterable[ScoredRollout]]) -> dict[str, tuple[BadcaseExample, ...]]:
    """The first items of each class, each once, by its first attempt that shows it."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for benchmark, records in rollouts.items():
        for record in records:
            key, attempt = (benchmark, record.rollout.item_id), record.rollout.attempt
            for label in record.score.labels:
                seen = found.setdefault(label, {})
                seen[key] = min(attempt, seen.get(key, attempt))
    return {
        label: tuple(BadcaseExample(*key, seen[key]) for key in sorted(seen)[:EXAMPLES])
        for label, seen in sorted(found.items())
    }


def evaluation_section(outcome: SuiteOutcome) -> dict[str, object]:
    """How the numbers came about, as plain data for the report file: protocols, cards, counts, cost."""
    return {
        "suite_digest": outcome.suite.digest,
        "seed": outcome.identity.seed,
        "sides": {
            name: {"name": side.name, "digest": side.digest, "kind": side.kind}
            for name, side in outcome.identity.sides.items()
        },
        "benchmarks": {one.name: _benchmark_section(one) for one in outcome.benchmarks},
        "skipped": list(outcome.skipped),
    }


def _benchmark_section(one: BenchmarkOutcome) -> dict[str, object]:
    sides: dict[str, dict[str, object]] = {}
    for side in SIDES:
        summary = one.summaries[side]
        sides[side] = {
            "card": one.cards[side],
            "protocol_digest": one.protocols[side].digest,
            "items": summary.n_items,
            "rollouts": summary.n_rollouts,
            "missing": summary.n_missing,
            "turns": summary.n_turns,
            "retries": summary.n_retries,
            "prompt_tokens": summary.prompt_tokens,
            "completion_tokens": summary.completion_tokens,
            "faults": dict(summary.faults),
        }
        found = one.attempts.get(side)
        if found is not None:
            sides[side]["attempts"] = msgspec.to_builtins(found)
    return {
        **sides,
        "items_lost": [change.item_id for change in one.lost],
        "items_won": [change.item_id for change in one.won],
        "items_unknown": [change.item_id for change in one.unknown],
    }


REPORT = "report.json"
TOLERANCE = 1e-9
NOT_COMPARED = "notes"


def report_differences(folder: Path) -> list[str]:
    """Fields of the report that the cards do not reproduce, each with both values; empty if all match.

    Raises ConfigError if there is no readable report or the evaluation is not finished, CardError for a damaged card.
    """
    file = folder / REPORT
    try:
        stored = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run agent2 eval again") from error
    first = read_outcome(folder)
    known = replace(read_report(file, first.suite.metrics), notes=())
    made = json.loads(json.dumps(_report(read_outcome(folder, known))))
    return list(_differences(stored, made, ""))


def _report(outcome: SuiteOutcome) -> dict[str, Any]:
    report = report_dict(outcome.suite.metrics, outcome.evidence, outcome.decision)
    return report | {"evaluation": evaluation_section(outcome)}


def _differences(stored: Any, made: Any, place: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(made, dict):
        for key in (*stored, *(key for key in made if key not in stored)):
            if key != NOT_COMPARED:
                yield from _differences(stored.get(key), made.get(key), f"{place}.{key}" if place else str(key))
    elif isinstance(stored, list) and isinstance(made, list) and len(stored) == len(made):
        for index, (left, right) in enumerate(zip(stored, made, strict=True)):
            yield from _differences(left, right, f"{place}[{index}]")
    elif not _is_same(stored, made):
        yield f"{place} is {stored!r}, the cards give {made!r}"


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(left == right)
