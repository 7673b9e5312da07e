"""Process and bad cases on the pages of an evaluation, as tables beside the outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.analysis.failure_clusters import FailureCluster, FailureClusters, clusters_of
from agent2.analysis.failures import FailureClass
from agent2.analysis.outcome_records import BadcaseExample, SuiteOutcome
from agent2.analysis.process import ProcessReport, RuleResult, StatisticResult
from agent2.cards.comparability import is_evaluation
from agent2.contract.causes import Cause, cause_of
from agent2.evaluation.suite_folder import CHECKPOINT, SIDES
from agent2.records import HIDDEN_SPLITS, Split
from agent2.reports.text import DASH, Column, Table, clean, example_id, percent
from agent2.stats.estimates import Notation
from agent2.texts import counted

NUMBER = Notation(".3g")
LONG = 1000
"""Characters of a long cell."""
SHARES = ("repeated_action_ratio", "waste", "failing_call_ratio")
"""Statistics that the terminal shows as percent."""
MAX_CLUSTERED = 300
"""Failures that are clustered for a page, which is written at once; `agent2 failures` takes more."""
TOP = 4
"""Classes of failures that the terminal shows."""


@dataclass(frozen=True, slots=True)
class BadcaseLine:
    """One class of bad cases."""

    label: str
    n: int
    """Rollouts of the checkpoint with the class."""
    cause: Cause | None
    """None: neither the suite's taxonomy nor `contract.causes` has such a class."""
    examples: Sequence[BadcaseExample]
    failures: FailureClass | None
    """The class among the failures; None: only rollouts without a score have it."""


@dataclass(frozen=True, slots=True)
class ProcessView:
    """How one side worked on one benchmark."""

    title: str
    statistics: Table[StatisticResult]
    rules: Table[RuleResult]
    sentences: tuple[str, ...]
    """Errors by class, the weighted trajectory score, what was left out or not checked."""


def badcase_table(outcome: SuiteOutcome) -> Table[BadcaseLine]:
    """Every class of bad cases, the most frequent first: those of scorers, then those that only detectors give."""
    causes, by_label = outcome.suite.failure_taxonomy, {row.label: row for row in outcome.failures.classes}
    counts = sorted((outcome.evidence.badcases or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [
        BadcaseLine(name, n, cause_of(name, causes), outcome.examples.get(name, ()), by_label.get(name))
        for name, n in counts
        if n > 0
    ]
    scored = {line.label for line in lines}
    for row in outcome.failures.classes:
        if row.label not in scored and row.n:
            examples = [BadcaseExample(failed.benchmark, failed.item_id, failed.attempt) for failed in row.examples]
            lines.append(BadcaseLine(row.label, row.n_rollouts, row.cause, examples, row))
    return Table(
        (
            Column("class", lambda line: clean(line.label)),
            Column("cases", lambda line: str(line.n)),
            Column(
                "attributed to",
                lambda line: line.cause.value if line.cause is not None else "not in the suite's taxonomy",
            ),
            Column(
                "for instance",
                lambda line: clean(
                    ", ".join(f"{example.item_id} ({example.benchmark})" for example in line.examples), LONG
                ),
            ),
            Column("share of failures", lambda line: percent(line.failures.share if line.failures else None)),
            Column("pass rate", lambda line: percent(line.failures.pass_rate if line.failures else None)),
            Column("found by", lambda line: line.failures.found_by if line.failures else DASH),
            Column("what follows", lambda line: clean(line.failures.action, LONG) if line.failures else DASH),
        ),
        lines,
    )


def badcase_links(outcome: SuiteOutcome) -> tuple[str, ...]:
    """For each line of the table, the place of its examples on the page; empty where items are hidden."""
    has_texts = Split(outcome.identity.split) not in HIDDEN_SPLITS
    return tuple(
        f"#{example_id(line.label)}" if has_texts and outcome.examples.get(line.label) else ""
        for line in badcase_table(outcome).records
    )


def page_clusters(folder: Path, outcome: SuiteOutcome) -> FailureClusters | None:
    """Clusters for the page of an evaluation in a folder; None where its cards are elsewhere."""
    return clusters_of(folder, outcome.failures, max_failures=MAX_CLUSTERED) if is_evaluation(folder) else None


def cluster_table(clusters: FailureClusters | None) -> Table[FailureCluster]:
    """Failures of which nobody says why, by what they read like."""
    return Table(
        (
            Column("read alike", lambda cluster: clean(cluster.name)),
            Column("failures", lambda cluster: str(cluster.n)),
            Column("share of these", lambda cluster: percent(cluster.share)),
            Column(
                "for instance",
                lambda cluster: clean(
                    ", ".join(f"{example.item_id} ({example.benchmark})" for example in cluster.examples), LONG
                ),
            ),
        ),
        () if clusters is None else clusters.clusters,
    )


def cluster_sentence(clusters: FailureClusters | None) -> str:
    """How many failures nobody explains, and what the clusters are; empty where there are none."""
    if clusters is None or not clusters.n_open:
        return ""
    start = f"Of {counted(clusters.n_open, 'failure')} nobody says why: no class, or one that only says that it failed."
    if not clusters.clusters:
        return clean(f"{start} Not clustered: {clusters.note}.", LONG)
    limit = f" {clusters.note}." if clusters.note else ""
    return clean(f"{start} Clusters are nobody's judgement: they say which failures to read together.{limit}", LONG)


def process_lines(outcome: SuiteOutcome) -> dict[str, str]:
    """For the terminal: how the checkpoint worked on each benchmark, and its most frequent classes of failures."""
    lines = {}
    for benchmark in outcome.benchmarks:
        report = benchmark.process.get(CHECKPOINT)
        if report is None:
            continue
        means = {row.name: row.mean.value for row in report.statistics}
        parts = [f"{means[name]:.3g} {name}" for name in ("turns", "calls") if name in means]
        parts += [f"{percent(means[name])} {name.replace('_', ' ')}" for name in SHARES if name in means]
        parts += [
            f"{rule.name} broken by {rule.n_broken} of {rule.n_applies}" for rule in report.rules if rule.n_broken
        ]
        lines[f"process of {benchmark.name}"] = ", ".join(parts)
    failures = outcome.failures
    if failures.n_failures:
        top = [f"{row.label} {row.n}" for row in failures.classes[:TOP] if row.n]
        lines["failures"] = f"{failures.n_failures} of {failures.n_rollouts} rollouts: {', '.join(top) or 'no class'}"
    return lines


def process_tables(outcome: SuiteOutcome) -> tuple[ProcessView, ...]:
    """The process of each side of each benchmark that has one."""
    return tuple(
        process_view(f"{benchmark.name}, {side}", benchmark.process[side])
        for benchmark in outcome.benchmarks
        for side in SIDES
        if side in benchmark.process
    )


def process_view(title: str, report: ProcessReport) -> ProcessView:
    """One side's process as tables."""

    def number(value: float | None) -> str:
        return DASH if value is None else NUMBER.number(value)

    return ProcessView(
        title=title,
        statistics=Table(
            (
                Column("statistic", lambda row: row.name.replace("_", " ")),
                Column("mean", lambda row: NUMBER.estimate(row.mean)),
                Column("where it passed", lambda row: number(row.passed)),
                Column("where it failed", lambda row: number(row.failed)),
            ),
            report.statistics,
        ),
        rules=Table(
            (
                Column("rule", lambda rule: clean(rule.name)),
                Column("applies to", lambda rule: str(rule.n_applies)),
                Column("broken by", lambda rule: str(rule.n_broken)),
                Column("pass rate where kept", lambda rule: percent(rule.pass_rate_kept)),
                Column("where broken", lambda rule: percent(rule.pass_rate_broken)),
                Column(
                    "for instance",
                    lambda rule: clean(", ".join(example.item_id for example in rule.examples)) or DASH,
                ),
            ),
            report.rules,
        ),
        sentences=tuple(_sentences(report)),
    )


def _sentences(report: ProcessReport) -> Sequence[str]:
    sentences = []
    if report.errors:
        listed = ", ".join(f"{name} {n}" for name, n in report.errors.items())
        sentences.append(clean(f"Calls that failed: {listed}.", LONG))
    trajectory = report.trajectory
    if trajectory is not None and trajectory.total is not None:
        parts = ", ".join(
            f"{name} {DASH if mean is None else NUMBER.number(mean)} (weight {trajectory.weights[name]:g})"
            for name, mean in trajectory.dimensions.items()
        )
        sentences.append(f"Weighted trajectory score {NUMBER.number(trajectory.total)} over {trajectory.n}: {parts}.")
    if report.n_left_out:
        sentences.append(f"{report.n_left_out} of {report.n_rollouts} rollouts are left out: a fault ended them.")
    return [*sentences, *(clean(note, LONG) for note in report.notes)]
