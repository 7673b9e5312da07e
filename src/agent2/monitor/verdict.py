"""From signals and gates to one training action: continue, pause, pause with human review, roll back.

The suite's own training gates (L01-L04, L12) are evaluated by `contract.rules` over evidence made from the log;
danger signals add what `MonitorSettings.actions` says. The most severe action counts. Sampled training metrics are
noisy, so a metric with many points enters the gates as medians of its first and its last points; one with few
(evaluations) as it is.

Does NOT release anything: a training log holds the reward's own view of its success (C40).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agent2.contract.effects import TRAINING_SEVERITY, TrainingAction
from agent2.contract.evidence import Change, Evidence, MetricEvidence, TrainingSignals
from agent2.contract.findings import Finding
from agent2.contract.gates import GateSpec
from agent2.contract.metrics import Direction, MetricSpec, Role, primary_of
from agent2.contract.rules import evaluate_gates
from agent2.monitor.series import PRIVATE, Series, TrainingLog
from agent2.monitor.signals import MonitorSettings, Signal
from agent2.monitor.trends import trend
from agent2.monitor.watched import Watched

DENSE = 12
"""From so many points on a series counts as sampled at every log, not as evaluations."""
ENDS = 5
"""Points at each end of a dense series that its medians are over."""

KINDS = frozenset({"historical_best", "safety", "reward_private", "cost_budget", "loophole"})
"""Gates that a training log can be held against; the others need rollouts of both sides."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a run is held against."""

    metrics: Sequence[MetricSpec]
    gates: Sequence[GateSpec]
    settings: MonitorSettings = field(default_factory=MonitorSettings)

    def benchmarks(self) -> list[str]:
        """Names under which the log may hold scores; the primary metric's first."""
        primary = primary_of(self.metrics)
        rest = [m for m in self.metrics if m.role is Role.REGRESSION_GATE and m.direction is Direction.HIGHER]
        return [name for metric in (primary, *rest) for name in (metric.name, *metric.alias)]

    def names(self) -> frozenset[str]:
        """Every name that the suite has for a metric; a series of that name is kept under it."""
        return frozenset(name for metric in self.metrics for name in (metric.name, *metric.alias))

    def watched(self, log: TrainingLog) -> Watched:
        """A log with what the detectors have to know of the suite."""
        lower = {n for m in self.metrics if m.direction is Direction.LOWER for n in (m.name, *m.alias)}
        win_rates = [name for name in sorted(self.names()) if "win_rate" in name and name not in lower]
        return Watched(log, self.settings, self.benchmarks(), frozenset(lower), ("win_rate", *win_rates))


@dataclass(frozen=True, slots=True)
class TrainingVerdict:
    """May training go on?"""

    action: TrainingAction
    step: int
    reasons: Sequence[str]
    """One sentence for each gate or signal that asks for more than `continue`, the most severe first."""
    findings: Sequence[Finding]
    """Of the suite's gates that speak about training, with their inputs."""


def verdict(log: TrainingLog, signals: Sequence[Signal], rules: Rules) -> TrainingVerdict:
    """What follows from a log and its signals. Raises ConfigError for gates that do not fit the metrics.

    signals: those present now, to act on a run; all that were ever raised, to judge a finished one.
    """
    findings = [f for f in evaluate_gates(rules.metrics, rules.gates, evidence_of(log, rules)) if f.kind in KINDS]
    asked = [(rules.settings.action(s.danger), f"signal {s.danger.value}: {s.evidence}") for s in signals]
    asked += [(f.effects.training, f"gate {f.gate}: {', '.join(f.inputs)}; {f.rule}") for f in findings if f.fired]
    asked = [pair for pair in asked if pair[0] is not TrainingAction.CONTINUE]
    asked.sort(key=lambda pair: -TRAINING_SEVERITY[pair[0]])
    action = asked[0][0] if asked else TrainingAction.CONTINUE
    return TrainingVerdict(action, log.last_step, [reason for _, reason in asked], findings)


def evidence_of(log: TrainingLog, rules: Rules) -> Evidence:
    """The log as evidence: "old" is its start, "new" its end."""
    found: dict[str, MetricEvidence] = {}
    history: dict[str, tuple[float, ...]] = {}
    for metric in rules.metrics:
        series = _series_of(log, metric)
        if series is None or len(series) < 2:
            continue
        old, new = _ends(series)
        found[metric.name] = MetricEvidence(metric.name, old, new, source="training log")
        history[metric.name] = tuple(float(value) for value in series.values[:-1])
    return Evidence(
        checkpoint=f"{log.name} at step {log.last_step}",
        baseline=f"{log.name} at its start",
        metrics=found,
        private_metrics=_private(log, rules),
        history=history,
        training=TrainingSignals(*(_change(log.get(name), rules.settings) for name in ("reward", "kl", "entropy"))),
        notes=tuple(log.notes),
    )


def _series_of(log: TrainingLog, metric: MetricSpec) -> Series | None:
    return next((series for name in (metric.name, *metric.alias) if (series := log.get(name)) is not None), None)


def _ends(series: Series) -> tuple[float, float]:
    if len(series) < DENSE:
        return float(series.values[0]), float(series.values[-1])
    return float(np.median(series.values[:ENDS])), float(np.median(series.values[-ENDS:]))


def _private(log: TrainingLog, rules: Rules) -> Mapping[str, MetricEvidence]:
    """The series `private`, as the primary metric on the private split: its best so far against its last value."""
    series = log.get(PRIVATE)
    if series is None or len(series) < 2:
        return {}
    name = primary_of(rules.metrics).name
    best = float(np.max(series.values[:-1]))
    return {name: MetricEvidence(name, best, float(series.values[-1]), source="training log, series `private`")}


def _change(series: Series | None, settings: MonitorSettings) -> Change | None:
    """The change since the start of the run that the noise does not explain; an unclear one counts as none."""
    found = None if series is None else trend(series, len(series))
    if found is None:
        return None
    is_seen = (found.end > found.start and found.rises(settings.trend_p)) or (
        found.end < found.start and found.falls(settings.trend_p)
    )
    if is_seen:
        return Change(found.start, found.end)
    return Change(found.end, found.end)
