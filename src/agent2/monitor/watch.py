"""Monitoring of a run, live or replayed, and the action that follows from its signals.

`watch` replays a training log step by step and returns the first step at which each danger could be detected;
`LiveMonitor` takes each line as it is logged and returns a verdict. Both run the same detectors on the log so far, so
they raise the same signals at the same steps, and judging one more line costs the same however long the log is. What
could not be watched is listed with the missing series. A live signal counts while its danger is present, so a run whose
KL has recovered is not paused for an old spike; `raised` keeps every signal.

The action is continue, pause, pause with human review, or roll back. The suite's own training gates are evaluated by
`contract.rules` over evidence made from the log; danger signals add the actions of `MonitorSettings.actions`; the most
severe action counts. Sampled training metrics are noisy, so a metric with many points enters the gates as medians of
its first and its last points; one with few (evaluations) as it is.

A run stops itself with `OnlineGrpoHooks(stop=stop_at(Danger.FORMAT_COLLAPSE))`, the hook for recipes that take
`stop=` and have no suite. Nothing is saved or rolled back: the caller knows which checkpoint is the last good one.
For a suite's gates, pauses and rollbacks see `monitor.callback`.

Does NOT release anything: a training log holds the reward's own view of its success.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agent2.contract.finding_sentences import finding_text
from agent2.contract.findings import Finding
from agent2.contract.gates import TRAINING_SEVERITY, GateSpec, HistoricalBestGate, TrainingAction
from agent2.contract.metrics import (
    Change,
    Direction,
    EarlierValues,
    Evidence,
    MetricEvidence,
    MetricSpec,
    Role,
    TrainingSignals,
    Unit,
    primary_of,
)
from agent2.contract.rules import N_EARLIER_SHOWN, evaluate_gates
from agent2.monitor.detectors import DETECTORS, best_before, detect, missing_series, noise_below_best
from agent2.monitor.series import GrowingLog, Reading, Series, TrainingLog, trend
from agent2.monitor.signals import (
    PRIVATE,
    Danger,
    MonitoredRun,
    MonitorSettings,
    Signal,
    is_summary,
    measurements,
)

MIN_DENSE = 12
"""From so many points on a series counts as sampled at every log, not as evaluations."""
N_ENDS = 5
"""Points at each end of a dense series that its medians are over."""
TRAINING_GATES = frozenset({"historical_best", "safety", "reward_private", "cost_budget", "loophole"})
"""Kinds of gates that a training log can be checked against; all others need rollouts of both sides."""

Stop = Callable[[Mapping[str, float | str]], str | None]
"""From a line of a training log, with its `step`, to why training should end; None: it should continue."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The metrics and gates of a suite, both empty without one, and the monitor's settings."""

    metrics: Sequence[MetricSpec]
    gates: Sequence[GateSpec]
    settings: MonitorSettings = field(default_factory=MonitorSettings)

    def benchmarks(self) -> list[str]:
        """Names under which the log may hold scores; the primary metric's first. None without a suite."""
        if not self.metrics:
            return []
        primary = primary_of(self.metrics)
        regression_metrics = [
            m for m in self.metrics if m.role is Role.REGRESSION_GATE and m.direction is Direction.HIGHER
        ]
        return [name for metric in (primary, *regression_metrics) for name in (metric.name, *metric.alias)]

    def names(self) -> frozenset[str]:
        """Every name that the suite has for a metric; a series of that name is kept under it."""
        return frozenset(name for metric in self.metrics for name in (metric.name, *metric.alias))

    def monitored(self, log: TrainingLog) -> MonitoredRun:
        """A log with the roles that the suite gives its series."""
        lower = {n for m in self.metrics if m.direction is Direction.LOWER for n in (m.name, *m.alias)}
        win_rates = [name for name in sorted(self.names()) if "win_rate" in name and name not in lower]
        return MonitoredRun(log, self.settings, self.benchmarks(), frozenset(lower), ("win_rate", *win_rates))


@dataclass(frozen=True, slots=True)
class TrainingVerdict:
    """Whether training may continue, and why not."""

    action: TrainingAction
    step: int
    demands: Sequence[Signal | Finding]
    """The signals and gates whose action is not `continue`, the most severe first."""
    findings: Sequence[Finding]
    """Of the suite's training gates, with their inputs."""

    @property
    def reasons(self) -> list[str]:
        """One sentence for each signal or gate that demands something."""
        return [_reason(demand) for demand in self.demands]


def _reason(demand: Signal | Finding) -> str:
    if isinstance(demand, Signal):
        return f"signal {demand.danger.value}: {demand.evidence}"
    text = finding_text(demand)
    return f"gate {demand.gate}: {', '.join(text.inputs)}; {text.rule}"


def verdict(log: TrainingLog, signals: Sequence[Signal], rules: Rules) -> TrainingVerdict:
    """The verdict on a log and its signals. Raises ConfigError for gates that do not fit the metrics.

    signals: those present now, to act on a run; all that were ever raised, to judge a finished run.
    """
    gates = [_beyond_noise(gate, log, rules) for gate in rules.gates]
    findings = [f for f in evaluate_gates(rules.metrics, gates, evidence_of(log, rules)) if f.kind in TRAINING_GATES]
    demands: list[tuple[TrainingAction, Signal | Finding]] = [(rules.settings.action(s.danger), s) for s in signals]
    demands += [(finding.effects.training, finding) for finding in findings if finding.fired]
    demands = [pair for pair in demands if pair[0] is not TrainingAction.CONTINUE]
    demands.sort(key=lambda pair: -TRAINING_SEVERITY[pair[0]])
    action = demands[0][0] if demands else TrainingAction.CONTINUE
    return TrainingVerdict(action, log.last_step, [demand for _, demand in demands], findings)


def _beyond_noise(gate: GateSpec, log: TrainingLog, rules: Rules) -> GateSpec:
    """A gate on the historical best with a drop that the noise of this run's evaluations does not explain.

    The best of many noisy evaluations is above what the run can hold, so a fixed drop fires on healthy runs.
    """
    primary = primary_of(rules.metrics)
    series = _series_of(log, primary)
    if not isinstance(gate, HistoricalBestGate) or series is None or len(series) <= gate.evaluations:
        return gate
    is_lower = primary.direction is Direction.LOWER
    best = abs(best_before(series, gate.evaluations, lower_is_better=is_lower))
    is_share = not (gate.unit == "points" and primary.unit is Unit.RATE)
    noise = noise_below_best(series, gate.evaluations, rules.settings, lower_is_better=is_lower)
    noise /= best if is_share and best else 1.0
    return gate.model_copy(update={"drop": max(gate.drop, noise)})


def evidence_of(log: TrainingLog, rules: Rules) -> Evidence:
    """The log as evidence: "old" is its start, "new" its end."""
    n_latest = N_EARLIER_SHOWN + max(
        (g.evaluations for g in rules.gates if isinstance(g, HistoricalBestGate)), default=0
    )
    metrics: dict[str, MetricEvidence] = {}
    history: dict[str, tuple[float, ...]] = {}
    before_history: dict[str, EarlierValues] = {}
    for metric in rules.metrics:
        series = _series_of(log, metric)
        if series is None or len(series) < 2:
            continue
        old, new = _ends(series)
        metrics[metric.name] = MetricEvidence(metric.name, old, new, source="training log")
        # A live monitor makes this for each line: it takes along what the gates read, not every value of a long run.
        history[metric.name] = tuple(float(value) for value in series.values[:-1][-n_latest:])
        n_before = len(series) - 1 - n_latest
        if n_before > 0:
            but_last = n_latest + 1
            lowest, highest = series.lowest(but_last=but_last), series.highest(but_last=but_last)
            before_history[metric.name] = EarlierValues(n_before, lowest, highest)
    return Evidence(
        checkpoint=f"{log.name} at step {log.last_step}",
        baseline=f"{log.name} at its start",
        metrics=metrics,
        private_metrics=_private(log, rules),
        history=history,
        before_history=before_history,
        training=TrainingSignals(*(_change(log.get(name), rules.settings) for name in ("reward", "kl", "entropy"))),
        notes=tuple(log.notes),
    )


def _series_of(log: TrainingLog, metric: MetricSpec) -> Series | None:
    return next((series for name in (metric.name, *metric.alias) if (series := log.get(name)) is not None), None)


def _ends(series: Series) -> tuple[float, float]:
    if len(series) < MIN_DENSE:
        return float(series.values[0]), float(series.values[-1])
    return float(np.median(series.values[:N_ENDS])), float(np.median(series.values[-N_ENDS:]))


def _private(log: TrainingLog, rules: Rules) -> Mapping[str, MetricEvidence]:
    """The series `private`, as the primary metric on the private split: its best so far against its last value."""
    series = log.get(PRIVATE)
    if series is None or len(series) < 2 or not rules.metrics:
        return {}
    name = primary_of(rules.metrics).name
    best = series.highest(but_last=1)
    return {name: MetricEvidence(name, best, float(series.values[-1]), source="training log, series `private`")}


def _change(series: Series | None, settings: MonitorSettings) -> Change | None:
    """The change since the start of the run that the noise does not explain; an unclear one counts as none."""
    run_trend = None if series is None else trend(series, None)
    if run_trend is None:
        return None
    is_clear = (run_trend.end > run_trend.start and run_trend.rises(settings.trend_p)) or (
        run_trend.end < run_trend.start and run_trend.falls(settings.trend_p)
    )
    if is_clear:
        return Change(run_trend.start, run_trend.end)
    return Change(run_trend.end, run_trend.end)


class LiveMonitor:
    """The monitor of one run."""

    def __init__(self, rules: Rules, name: str = "run") -> None:
        self.rules = rules
        self.raised: dict[Danger, Signal] = {}
        self._log = GrowingLog(name)

    @property
    def log(self) -> TrainingLog:
        """The log so far, as it stays when the run goes on."""
        return self._log.snapshot()

    def add(self, step: int, values: Mapping[str, float]) -> TrainingVerdict:
        """Add one log of the trainer or of an evaluation, and judge."""
        if not is_summary(values):
            self._log.extend(_readings(step, values, self.rules.names()))
        log = self._log.view()
        present = detect(self.rules.monitored(log))
        for signal in present:
            self.raised.setdefault(signal.danger, signal)
        return verdict(log, present, self.rules)


def _readings(step: int, values: Mapping[str, float], keep: Collection[str] = ()) -> list[Reading]:
    """What one line measures. keep: a suite's names for metrics, kept beside ours."""
    where = f"step {step}"
    return [
        Reading(step, name, value, where)
        for logged, number in values.items()
        for name, value in measurements(logged, float(number), keep)
    ]


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The dangers of a whole log."""

    log: TrainingLog
    benchmarks: Sequence[str]
    signals: Sequence[Signal]
    """Each danger once, at the first step at which it could be detected; in order of the steps."""
    present: Sequence[Danger]
    """Dangers that are still present at the end of the log."""
    not_watched: dict[Danger, list[str]]
    """Detectors without data, and the series they lack."""


def watch(run: MonitoredRun) -> WatchResult:
    """Detect every danger of a whole log."""
    log = run.log
    raised: dict[Danger, Signal] = {}
    broken = np.array([reading.step for reading in log.not_finite], dtype=np.int64)
    steps = np.unique(np.concatenate([broken, *(series.steps for series in log.series.values())]))
    for step in steps:
        so_far = replace(run, log=log.until(int(step)))
        for signal in detect(so_far, [danger for danger in DETECTORS if danger not in raised]):
            raised[signal.danger] = signal
    return WatchResult(
        log=log,
        benchmarks=tuple(run.benchmarks),
        signals=sorted(raised.values(), key=lambda signal: signal.step),
        present=[signal.danger for signal in detect(run)],
        not_watched=missing_series(run),
    )


def stop_at(*dangers: Danger, settings: MonitorSettings | None = None) -> Stop:
    """A stop hook for one run, which must see it from the first line; make a new one for the next run."""
    settings = settings or MonitorSettings()
    log = GrowingLog("run")

    def stop(line: Mapping[str, float | str]) -> str | None:
        step = int(line["step"])
        numbers = {name: value for name, value in line.items() if isinstance(value, int | float) and name != "step"}
        log.extend(_readings(step, numbers))
        signals = detect(MonitoredRun(log.view(), settings, ()), dangers)
        return "; ".join(f"{signal.danger.value}: {signal.evidence}" for signal in signals) or None

    return stop
