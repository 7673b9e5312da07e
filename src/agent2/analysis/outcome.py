"""The outcome of an evaluation, read from its cards: evidence, decision, and what a report shows of the items.

It is computed from the cards, the recorded spot check, the suite and a report file with what cards cannot hold
(history, training log), so it can be computed again on a machine without torch. It contains no time and no path of this
machine, so equal cards give equal reports. `report_differences` compares a stored report with its cards, number by
number.

Several attempts at each item give pass@1, pass@k, pass^k, majority@k and best-of-n, kept apart (`attempt_metrics`);
pass@k never appears without pass@1 and the cost of the search per point. What cannot be computed says why. A majority
is one of extracted answers (`Score.extracted`), never of whole completions: two ways to 18 are two votes.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from agent2.analysis.behaviour import behaviour
from agent2.analysis.card_scores import final_answer
from agent2.analysis.failures import FailureReport, FailureTally
from agent2.analysis.outcome_records import (
    AttemptMetrics,
    BadcaseExample,
    BenchmarkOutcome,
    ItemText,
    SuiteOutcome,
)
from agent2.analysis.process import ProcessReport, process_report
from agent2.analysis.regress import regress
from agent2.analysis.spot_check import spot_check_evidence
from agent2.analysis.unread import warning_of_thoughts
from agent2.cards.comparability import find_cards
from agent2.cards.folder import card_exists, is_finished
from agent2.cards.reader import iter_rollouts, read_header, read_summary, validate_card
from agent2.config import first_problem
from agent2.contract.causes import FailureJudge
from agent2.contract.decision import decide
from agent2.contract.measures import CardPaths, evidence_from_cards, primary_score
from agent2.contract.metrics import Evidence, MetricSpec
from agent2.contract.report_file import read_report, report_dict
from agent2.contract.suite import Suite, SuiteBenchmark, unmet_prerequisite
from agent2.errors import CardError, ConfigError, NotEnoughData
from agent2.evaluation.own_rules import with_own_code
from agent2.evaluation.suite_folder import (
    BASELINE,
    CHECKPOINT,
    SIDES,
    SUITE_FILE,
    Identity,
    card_path,
    judgement_path,
    read_identity,
    read_references,
)
from agent2.foreign_files import read_limited
from agent2.records import HIDDEN_SPLITS, Message, ScoredRollout, Split
from agent2.scorers import labels_by_older_name
from agent2.scorers.process.weights import weights_of
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
"""Views of a score that may choose among attempts; the score itself may not: it is the truth."""
MOST_LISTED = 100
"""Items of each kind (lost, won, failed by both) of which a page gets texts."""
EXAMPLES = 3
"""Rollouts named for each class of bad cases."""
REPORT = "report.json"
TOLERANCE = 1e-9
"""Relative and absolute difference up to which a stored number counts as reproduced."""
NOT_COMPARED = "notes"
"""Key of a report that `report_differences` leaves out."""
ADDED_LATER = frozenset({"numbers", "failures", "process", "behaviour", "items_both_failed"})
"""Keys that reports of earlier versions do not have; where they are absent, they are not compared."""

ResultT = TypeVar("ResultT")


def attempt_metrics(records: Iterable[ScoredRollout]) -> AttemptMetrics | None:
    """The metrics of a card's rollouts; None if no item was attempted more than once."""
    by_item: dict[str, list[ScoredRollout]] = {}
    for record in records:
        by_item.setdefault(record.rollout.item_id, []).append(record)
    # Sorted by item and attempt, so that the order in which rollouts finished changes no number.
    rows_I = [sorted(by_item[item], key=lambda record: record.rollout.attempt) for item in sorted(by_item)]
    k = max((len(row) for row in rows_I), default=0)
    if k < 2:
        return None
    values = [record.score.value for row in rows_I for record in row]
    if any(value not in (None, 0.0, 1.0) for value in values):
        gap = "scores are graded, not right or wrong, so there is no chance that one of several attempts is right"
        return AttemptMetrics(k, None, None, None, None, (gap,))
    solved_IA = [[record.score.value for record in row] for row in rows_I]
    gaps: list[str] = []
    passes = _or_gap(lambda: pass_metrics(tally(solved_IA), k), f"pass@{k}", gaps)
    majority = _majority(rows_I, solved_IA, k, gaps)
    best = _best(rows_I, solved_IA, k, gaps)
    return AttemptMetrics(k, passes, majority, best, _cost(passes, rows_I), tuple(gaps))


def _majority(
    rows_I: list[list[ScoredRollout]], solved_IA: list[list[float | None]], k: int, gaps: list[str]
) -> Estimate | None:
    answers_IA = [[record.score.extracted for record in row] for row in rows_I]
    if not any(answer is not None for row in answers_IA for answer in row):
        gaps.append(f"majority@{k}: the scorer read no final answer from any attempt, so nothing can be voted on")
        return None
    return _or_gap(lambda: majority_at_k(answers_IA, solved_IA, k), f"majority@{k}", gaps)


def _best(
    rows_I: list[list[ScoredRollout]], solved_IA: list[list[float | None]], k: int, gaps: list[str]
) -> BestOfN | None:
    for view in SELECTOR_VIEWS:
        scores_IA = [[record.score.views.get(view) for record in row] for row in rows_I]
        if any(score is not None for row in scores_IA for score in row):
            return _or_gap(lambda: best_of_n(solved_IA, scores_IA, k, view), f"best-of-{k}", gaps)  # noqa: B023
    gaps.append(f"best-of-{k}: no rollout has a view named {' or '.join(SELECTOR_VIEWS)} that could choose")
    return None


def _cost(passes: PassMetrics | None, rows_I: list[list[ScoredRollout]]) -> CostPerPoint | None:
    """What the attempts beyond the first cost for each point that pass@k is above pass@1."""
    if passes is None:
        return None
    tokens_I: list[float | None] = []
    for row in rows_I:
        stated = [n for record in row if (n := record.rollout.usage.tokens) is not None]
        total = sum(stated) if len(stated) == len(row) else None
        tokens_I.append(None if total is None else total * (len(row) - 1) / len(row))
    return cost_per_point(
        passes.pass_at_1.value, passes.pass_at_k.value, tokens_I, [float(len(row)) for row in rows_I], []
    )


def _or_gap(compute: Callable[[], ResultT], metric: str, gaps: list[str]) -> ResultT | None:
    """The metric; None, with the reason among the gaps, where the data do not give it."""
    try:
        return compute()
    except (NotEnoughData, ValueError) as error:
        gaps.append(f"{metric}: {error}")
        return None


def read_outcome(out: Path, reported: Evidence | None = None) -> SuiteOutcome:
    """The outcome of a finished evaluation.

    reported: from a report file, what cards cannot hold (history, training signals, confirmed actions, metrics that no
    card has); its other numbers are not used, nor its spot check: that is read from the recorded forms
    (`spot_check.spot_check_evidence`).
    Raises ConfigError if something is not played yet or `reported` is about another checkpoint; CardError for a damaged
    card.
    """
    identity = read_identity(out)
    suite = read_played_suite(out)
    entries, skipped = _played_entries(out, suite, identity)
    cards = {
        side: {entry.name: card_path(out, side, entry.name, identity.split) for entry in entries} for side in SIDES
    }
    judgements = {
        entry.name: judgement_path(out, entry.name, identity.split) for entry in entries if entry.pair_judge is not None
    }
    evidence = _evidence(suite, identity, cards, skipped, reported, judgements)
    evidence = _with_spot_check(evidence, out, reported)
    by_name = cards[CHECKPOINT]
    rollouts = {entry.name: list(iter_rollouts(by_name[entry.name])) for entry in entries}
    renamed = {name: labels_by_older_name(read_header(by_name[name]).protocol) for name in rollouts}
    benchmarks = tuple(_benchmark(out, entry, cards, rollouts[entry.name], suite) for entry in entries)
    failures = _failures(suite, benchmarks, by_name, rollouts)
    examples = _examples(rollouts, renamed) | _examples_of_detectors(failures)
    if Split(identity.split) not in HIDDEN_SPLITS:
        references = read_references(out)
        benchmarks = tuple(
            replace(
                benchmark,
                texts=_texts(benchmark, examples, rollouts[benchmark.name], cards, references.get(benchmark.name, {})),
            )
            for benchmark in benchmarks
        )
    return SuiteOutcome(
        suite=suite,
        identity=identity,
        evidence=evidence,
        decision=decide(suite.metrics, suite.gates, evidence, suite.failure_taxonomy),
        benchmarks=benchmarks,
        skipped=tuple(skipped.values()),
        examples=examples,
        failures=failures,
        warnings=tuple(_warnings_of_thoughts(cards, identity)),
    )


def _warnings_of_thoughts(cards: Mapping[str, Mapping[str, Path]], identity: Identity) -> Iterator[str]:
    """A sentence for each card on which the thoughts before the answers often never end."""
    for side, by_benchmark in cards.items():
        for benchmark, card in by_benchmark.items():
            warning = warning_of_thoughts(card)
            if warning is not None:
                yield f"{identity.sides[side].name} ({side}) on {benchmark}: {warning}"


def require_same_checkpoint(reported: Evidence, checkpoint: str) -> None:
    """Raise ConfigError unless the evidence of a report file is about the checkpoint of that name."""
    if reported.checkpoint != checkpoint:
        raise ConfigError(
            f"the report file is about checkpoint {reported.checkpoint!r}, this evaluation is of {checkpoint!r}; a "
            "spot check or training log belongs to one checkpoint"
        )


def read_played_suite(out: Path) -> Suite:
    """The contract that an evaluation was played under.

    Code of its step rules that this user did not name is not run (`evaluation.own_rules`). Raises ConfigError if it
    cannot be read, and if it is not the one whose digest the evaluation began with.
    """
    file, identity = out / SUITE_FILE, read_identity(out)
    try:
        suite = Suite.model_validate_json(read_limited(file, follow=True))
    except (OSError, ValueError) as error:
        problem = first_problem(error, Suite)[1] if isinstance(error, ValidationError) else error
        raise ConfigError(f"{file}: cannot be read ({problem}); run the evaluation again") from error
    if suite.digest != identity.suite_digest:
        raise ConfigError(
            f"{file}: has digest {suite.digest[:12]}, the evaluation was begun under {identity.suite} with digest "
            f"{identity.suite_digest[:12]}; restore the file, or run the evaluation again"
        )
    return with_own_code(suite, out)


def _played_entries(out: Path, suite: Suite, identity: Identity) -> tuple[list[SuiteBenchmark], dict[str, str]]:
    """Benchmarks with cards on both sides, and a sentence for each skipped one."""
    entries: list[SuiteBenchmark] = []
    skipped: dict[str, str] = {}
    scores: dict[str, float | None] = {}
    for entry in suite.in_order():
        cards = [card_path(out, side, entry.name, identity.split) for side in SIDES]
        unmet = unmet_prerequisite(entry, scores)
        if unmet is not None:
            skipped[entry.name] = str(unmet)
            continue
        # Both sides have to be whole before any number of either is read.
        for card in cards:
            if not card_exists(card) or not is_finished(card):
                raise ConfigError(f"{card}: is not finished; resume it with the same command")
            _require_valid(card)
        scores[entry.name] = primary_score(suite, entry.name, cards[1])
        entries.append(entry)
    return entries, skipped


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
    reported: Evidence | None,
    judgements: Mapping[str, Path],
) -> Evidence:
    evidence = replace(
        evidence_from_cards(
            suite.metrics,
            CardPaths(cards[BASELINE], cards[CHECKPOINT], judgements),
            skipped=skipped,
            step_rules=suite.step_rules,
        ),
        checkpoint=identity.sides[CHECKPOINT].name,
        baseline=identity.sides[BASELINE].name,
        suite=suite.id,
        split=identity.split,
        role=identity.role,
    )
    evidence = replace(evidence, notes=(*evidence.notes, *skipped.values()))
    if reported is None:
        return evidence
    require_same_checkpoint(reported, evidence.checkpoint)
    measured = {name for name, metric in evidence.metrics.items() if metric.is_complete}
    unmeasured = {metric.name for metric in suite.metrics if metric.benchmark is None} - measured
    added = {name: replace(metric, source="report") for name, metric in reported.metrics.items() if name in unmeasured}
    return replace(
        evidence,
        metrics={**evidence.metrics, **added},
        history=reported.history,
        visible_gains=reported.visible_gains,
        training=reported.training,
        confirmed_actions=reported.confirmed_actions,
        notes=(*evidence.notes, *reported.notes),
    )


def _with_spot_check(evidence: Evidence, out: Path, reported: Evidence | None) -> Evidence:
    spot_check, note = spot_check_evidence(out)
    if spot_check is None and not note and reported is not None and reported.spot_check is not None:
        note = "spot_check in a file is a claim and does not count; record one with agent2 spotcheck"
    return replace(evidence, spot_check=spot_check, notes=(*evidence.notes, *([note] if note else [])))


def _benchmark(
    out: Path,
    entry: SuiteBenchmark,
    cards: Mapping[str, Mapping[str, Path]],
    rollouts: list[ScoredRollout],
    suite: Suite,
) -> BenchmarkOutcome:
    cards_by_side = {side: cards[side][entry.name] for side in SIDES}
    protocols = {side: read_header(card).protocol for side, card in cards_by_side.items()}
    are_comparable = protocols[BASELINE].digest == protocols[CHECKPOINT].digest
    baseline, checkpoint = (find_cards(cards_by_side[side]) for side in (BASELINE, CHECKPOINT))
    changes = regress(baseline, checkpoint) if are_comparable else None
    attempts = {
        BASELINE: attempt_metrics(iter_rollouts(cards_by_side[BASELINE])),
        CHECKPOINT: attempt_metrics(rollouts),
    }
    return BenchmarkOutcome(
        name=entry.name,
        cards={side: str(card.relative_to(out)) for side, card in cards_by_side.items()},
        protocols=protocols,
        summaries={side: read_summary(card) for side, card in cards_by_side.items()},
        attempts={side: metrics for side, metrics in attempts.items() if metrics is not None},
        lost=changes.lost if changes is not None else (),
        won=changes.won if changes is not None else (),
        unknown=changes.unknown if changes is not None else (),
        both_failed=changes.both_failed if changes is not None else (),
        process=_processes(cards_by_side, rollouts, suite),
        behaviour=behaviour((cards_by_side[BASELINE], cards_by_side[CHECKPOINT]), checkpoint.name, entry.name)
        if are_comparable
        else None,
        texts={},
    )


def _processes(cards: Mapping[str, Path], rollouts: Iterable[ScoredRollout], suite: Suite) -> dict[str, ProcessReport]:
    """Of both sides; rollouts: of the checkpoint."""
    reports = {}
    for side, records in ((BASELINE, iter_rollouts(cards[BASELINE])), (CHECKPOINT, rollouts)):
        header = read_header(cards[side])
        if header.protocol.max_turns > 1:
            reports[side] = process_report(header, records, suite.step_rules, weights_of(suite.trajectory_weights))
    return reports


def _failures(
    suite: Suite,
    benchmarks: Iterable[BenchmarkOutcome],
    cards: Mapping[str, Path],
    rollouts: Mapping[str, Iterable[ScoredRollout]],
) -> FailureReport:
    tally = FailureTally(suite.failure_taxonomy)
    for benchmark in benchmarks:
        lost = [change.item_id for change in benchmark.lost]
        tally.add_card(benchmark.name, read_header(cards[benchmark.name]), rollouts[benchmark.name], lost)
    return tally.report()


def _texts(
    benchmark: BenchmarkOutcome,
    examples: Mapping[str, Iterable[BadcaseExample]],
    rollouts: Iterable[ScoredRollout],
    cards: Mapping[str, Mapping[str, Path]],
    references: Mapping[str, str],
) -> dict[str, ItemText]:
    """Questions of the report's items, and the answers of both sides."""
    kinds = (benchmark.lost, benchmark.won, benchmark.unknown, benchmark.both_failed)
    listed = {change.item_id for changes in kinds for change in changes[:MOST_LISTED]}
    for class_examples in examples.values():
        listed |= {example.item_id for example in class_examples if example.benchmark == benchmark.name}
    prompts: dict[str, Sequence[Message]] = {}
    answers: dict[str, dict[str, dict[int, str]]] = {item: {side: {} for side in SIDES} for item in listed}
    for side, records in ((CHECKPOINT, rollouts), (BASELINE, iter_rollouts(cards[BASELINE][benchmark.name]))):
        for record in records:
            item = record.rollout.item_id
            if item in listed:
                answers[item][side][record.rollout.attempt] = final_answer(record)
                prompts.setdefault(item, record.rollout.prompt)
    return {
        item: ItemText(
            question=_question(prompts[item]),
            last_message=prompts[item][-1].text if prompts[item] else "",
            reference=references.get(item),
            answers=answers[item],
        )
        for item in sorted(listed & set(prompts))
    }


def _question(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return messages[0].text
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in messages)


def _examples(
    rollouts: Mapping[str, Iterable[ScoredRollout]], renamed: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[BadcaseExample, ...]]:
    """The first items of each class, each once, by its first attempt that shows it.

    renamed: benchmark -> its classes as older cards name them -> as they are named now.
    """
    first_attempts: dict[str, dict[tuple[str, str], int]] = {}
    for benchmark, records in rollouts.items():
        for record in records:
            key, attempt = (benchmark, record.rollout.item_id), record.rollout.attempt
            for label in record.score.labels:
                attempts = first_attempts.setdefault(renamed[benchmark].get(label, label), {})
                attempts[key] = min(attempt, attempts.get(key, attempt))
    return {
        label: tuple(BadcaseExample(*key, attempts[key]) for key in sorted(attempts)[:EXAMPLES])
        for label, attempts in sorted(first_attempts.items())
    }


def _examples_of_detectors(failures: FailureReport) -> dict[str, tuple[BadcaseExample, ...]]:
    """Failures that show a class which no scorer gives."""
    return {
        row.label: tuple(BadcaseExample(failed.benchmark, failed.item_id, failed.attempt) for failed in row.examples)
        for row in failures.classes
        if row.n and row.judge in (FailureJudge.DETECTOR, FailureJudge.BASELINE)
    }


def missing_words(outcome: SuiteOutcome, spec: MetricSpec) -> str:
    """`2.0% -> 10.0%`: the rollouts without a score on both sides, of a metric's benchmarks; empty where none is read.

    Of rollouts, so it stands also beside measures that are not the score.
    """
    summaries = [benchmark.summaries for benchmark in outcome.benchmarks if spec.benchmark in (None, benchmark.name)]
    shares = []
    for side in (BASELINE, CHECKPOINT) if summaries else ():
        n_rollouts = sum(summary[side].n_rollouts for summary in summaries)
        shares.append(f"{100 * sum(summary[side].n_missing for summary in summaries) / max(1, n_rollouts):.1f}%")
    return " -> ".join(shares)


def evaluation_section(outcome: SuiteOutcome) -> dict[str, object]:
    """What the numbers rest on, as plain data for the report file: protocols, cards, counts, cost."""
    return {
        "suite_digest": outcome.suite.digest,
        "seed": outcome.identity.seed,
        "sides": {
            name: {"name": side.name, "digest": side.digest, "kind": side.kind}
            for name, side in outcome.identity.sides.items()
        },
        "benchmarks": {benchmark.name: _benchmark_section(benchmark) for benchmark in outcome.benchmarks},
        "skipped": list(outcome.skipped),
        "failures": outcome.failures.as_record(),
    }


def _benchmark_section(benchmark: BenchmarkOutcome) -> dict[str, object]:
    sides: dict[str, dict[str, object]] = {}
    for side in SIDES:
        summary = benchmark.summaries[side]
        sides[side] = {
            "card": benchmark.cards[side],
            "protocol_digest": benchmark.protocols[side].digest,
            "items": summary.n_items,
            "rollouts": summary.n_rollouts,
            "missing": summary.n_missing,
            "missing_share": summary.n_missing / summary.n_rollouts if summary.n_rollouts else None,
            "turns": summary.n_turns,
            "retries": summary.n_retries,
            "prompt_tokens": summary.prompt_tokens,
            "completion_tokens": summary.completion_tokens,
            "faults": dict(summary.faults),
        }
        attempts = benchmark.attempts.get(side)
        if attempts is not None:
            sides[side]["attempts"] = msgspec.to_builtins(attempts)
        if side in benchmark.process:
            sides[side]["process"] = msgspec.to_builtins(benchmark.process[side])
    return {
        **sides,
        "behaviour": None if benchmark.behaviour is None else msgspec.to_builtins(benchmark.behaviour.measures),
        "items_lost": [change.item_id for change in benchmark.lost],
        "items_won": [change.item_id for change in benchmark.won],
        "items_unknown": [change.item_id for change in benchmark.unknown],
        "items_both_failed": [change.item_id for change in benchmark.both_failed],
    }


def report_differences(folder: Path) -> list[str]:
    """Fields of the report that the cards do not reproduce, each with both values; empty if all match.

    Raises ConfigError if there is no readable report or the evaluation is not finished, CardError for a damaged card.
    """
    file = folder / REPORT
    try:
        stored = json.loads(read_limited(file, follow=True))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run agent2 eval again") from error
    suite = read_played_suite(folder)
    # The report itself supplies what cards cannot hold; its notes are left out, or each reading would add them again.
    reported = replace(read_report(file, suite.metrics), notes=())
    outcome = read_outcome(folder, reported)
    report = report_dict(outcome.suite.metrics, outcome.evidence, outcome.decision)
    report |= {"evaluation": evaluation_section(outcome)}
    return list(_differences(stored, json.loads(json.dumps(report)), ""))


def _differences(stored: Any, computed: Any, field: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(computed, dict):
        for key in (*stored, *(key for key in computed if key not in stored)):
            if key != NOT_COMPARED and (key in stored or key not in ADDED_LATER):
                yield from _differences(stored.get(key), computed.get(key), f"{field}.{key}" if field else str(key))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (stored_entry, computed_entry) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences(stored_entry, computed_entry, f"{field}[{index}]")
    elif not _is_same(stored, computed):
        yield f"{field} is {stored!r}, the cards give {computed!r}"


def _is_same(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return math.isclose(stored, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(stored == computed)
