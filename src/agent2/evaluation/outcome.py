"""What came of a suite evaluation, read from its folder: evidence, decision, and what a report shows beside them.

Promises: everything here is computed from the cards, the suite and what was given besides (history, training log,
spot check), so it can be computed again on a machine without torch; no time and no path of this machine is in it,
so that equal cards give equal reports. Seconds are on the cards and in `lock.json`.

Several attempts at each item give pass@1, pass@k, pass^k, majority@k and best-of-n, kept apart (`attempt_metrics`).
pass@k says how good a model is at being tried often; a product that asks once gets pass@1, so the first never stands
without the second, and what the search costs for each point stands beside it. What cannot be computed says why. A
majority is one of extracted answers (`Score.extracted`), never of whole completions: two ways to 18 are two votes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from agent2.cards.card import CardSummary
from agent2.cards.folder import card_exists, is_finished
from agent2.cards.reader import iter_rollouts, read_header, read_summary, validate_card
from agent2.contract.comparable import find_cards
from agent2.contract.compare import ChangedItem, final_answer, regress
from agent2.contract.decision import Decision, decide
from agent2.contract.evidence import Evidence
from agent2.contract.measures import CardPaths, evidence_from_cards
from agent2.contract.suite import Suite, SuiteBenchmark, shortfall
from agent2.errors import CardError, ConfigError, NotEnoughData
from agent2.evaluation.suite_plan import (
    BASELINE,
    CHECKPOINT,
    SIDES,
    SUITE_FILE,
    Identity,
    card_path,
    read_identity,
    read_references,
)
from agent2.evaluation.suite_run import own_score
from agent2.records import HIDDEN_SPLITS, EvaluationProtocol, ScoredRollout, Split
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

    known: what cards cannot hold (history, training signals, a spot check, confirmed actions, metrics that no
    card has); its other numbers are not used. Raises ConfigError if something is not played yet or `known` is about
    another checkpoint; CardError for a damaged card.
    """
    identity = read_identity(out)
    suite = _read_suite(out)
    played, skipped = _played(out, suite, identity)
    cards = {side: {entry.name: card_path(out, side, entry.name, identity.split) for entry in played} for side in SIDES}
    evidence = _evidence(suite, identity, cards, skipped, known)
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
        raise ConfigError(f"{file}: cannot be read ({error}); run the evaluation again") from error


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
        spot_check=known.spot_check,
        notes=(*evidence.notes, *known.notes),
    )


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
