"""Series of a training run, their trends, and the records of monitoring: dangers, signals and settings.

A series is one quantity over optimiser steps. Trainers name the same quantity in many ways (`rewards/mean`,
`train/reward`, `reward`); `measurements` maps what it knows to the names in `MEANING` and keeps every other name as it
is, so that a suite's metrics (`gsm8k_exact_match`) and anything else a run logs stay available. What is measured on
evaluation data (`eval_loss`) is a series of its own.

Kendall's rank test (scipy) says whether there is a trend, Theil and Sen's median slope (scipy) how steep; both
are robust to outliers. Values of neighbouring steps are correlated in real runs, so the test is a filter with a known
error only for independent noise: the detectors never rely on it alone.

A signal is evidence, not a verdict: it names the series, the steps and the numbers, so that a reader can find the lines
in the log. What follows from it is decided by the gates (`agent2.monitor.watch`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import stats

from agent2.config import StrictModel
from agent2.contract.gates import TrainingAction

PRIVATE = "private"
"""Series of the score on the private set."""
MEANING: Mapping[str, str] = {
    "reward": "mean training reward",
    "kl": "divergence from the reference policy, nats a token",
    "kl_sequence": "divergence from the reference policy, nats a whole response",
    "entropy": "entropy of the policy, nats a token",
    "length": "mean response length, tokens",
    "length_characters": "mean response length, characters",
    "clipped": "share of responses cut off",
    "loss": "training loss",
    "reward_std": "spread of rewards within groups",
    "reward_margin": "reward of chosen minus rejected",
    "verifier_accuracy": "agreement of verifier and human spot-checks",
    "win_rate": "win rate against the baseline",
    "success": "success rate of the agent",
    "cost": "cost of one rollout or task",
    "latency": "seconds of one rollout",
    "safety_violation_rate": "share of rollouts with a safety violation",
    "factuality": "share of factual answers",
    "refusal_rate": "share of refusals",
    "repetition_rate": "share of repetitive responses",
    "kl_initial": "divergence from the initial model, nats a token",
    "turns": "turns of an episode",
    "action_length": "mean length of one message, tokens",
    "invalid_share": "share of invalid actions",
    "unterminated_share": "share of messages cut off",
    "repeated_share": "share of messages that repeat the one before",
    "stutter_share": "share of messages in which a run of letters comes again at once",
    "signal_share": "share of groups with different rewards",
    "foreign_share": "share of learned tokens that the policy did not sample",
    "logprob_gap": "largest difference between sampler and trainer, nats",
    PRIVATE: "score on the private set",
}

_OTHER_NAMES: Mapping[str, str] = {
    "reward": (
        "rewards/mean reward/mean reward_mean mean_reward env/reward/total critic/rewards/mean objective/scores"
    ),
    "kl_sequence": "objective/kl",
    "kl": "kl_divergence actor/kl_loss mean_kl",
    "entropy": "actor/entropy objective/entropy policy/entropy_avg",
    "length": (
        "completions/mean_length completion_length response_length response_length_mean "
        "response_length/mean mean_length length_mean mean_response_length mean_completion_length "
        "completion_length_mean mean_tokens mean_length_tokens"
    ),
    "length_characters": (
        "length_chars mean_length_chars mean_length_characters response_length_chars response_length_characters"
    ),
    "clipped": "completions/clipped_ratio response_length/clip_ratio",
    "reward_margin": "rewards/margins",
    "cost": "cost_per_task dollars",
    "success": "success_rate task_success",
    "safety_violation_rate": "safety_violation",
    "private": "private_score test_private",
    "latency": "latency_s",
}
"""Our name -> those that trainers give the same quantity."""
_ALIASES = {alias: name for name, aliases in _OTHER_NAMES.items() for alias in aliases.split()}
_TRAINING_PREFIXES = ("train/", "train_")
_EVALUATION_PREFIXES = ("eval/", "eval_", "val/", "val_")
_ZERO_SPREAD = "frac_reward_zero_std"
"""TRL's share of groups whose rewards are all equal: the complement of `signal_share`."""
EVALUATED = frozenset(
    {
        "verifier_accuracy",
        "win_rate",
        "safety_violation_rate",
        "factuality",
        "refusal_rate",
        "repetition_rate",
        PRIVATE,
    }
)
"""Quantities that only evaluations measure, so that a prefix `eval/` adds nothing."""
SUMMARY = "train_runtime"
"""In the row that a Trainer logs once at its end; its `train_loss` is the mean of the run, not a point of it."""
MAD_TO_SIGMA = 1.4826
"""Makes the median absolute deviation of a Gaussian its standard deviation."""
MAX_POINTS = 200
"""Of one trend: the median slope costs the square of it."""


class Danger(StrEnum):
    """The kinds of danger in a training run."""

    REWARD_BENCHMARK_DIVERGENCE = "reward_benchmark_divergence"
    """Reward rises while the benchmark falls."""
    KL_SPIKE = "kl_spike"
    ENTROPY_COLLAPSE = "entropy_collapse"
    LENGTH_INFLATION = "length_inflation"
    LENGTH_COLLAPSE = "length_collapse"
    """Much shorter answers while reward rises: the format reward is being gamed."""
    VERIFIER_DRIFT = "verifier_drift"
    """Verifier and human spot-checks diverge."""
    WIN_RATE_AT_A_PRICE = "win_rate_at_a_price"
    """Win rate rises while safety or factuality gets worse."""
    COST_INFLATION = "cost_inflation"
    """Cost or latency grows far faster than it should."""
    LOOPHOLE = "loophole"
    """Reward and KL up, entropy and primary metric down."""
    FORMAT_COLLAPSE = "format_collapse"
    """Messages that are invalid, cut off, repeated or stuttering take over."""
    SIGNAL_LOST = "signal_lost"
    """Groups no longer differ although the task is not solved."""
    FOREIGN_TOKENS = "foreign_tokens"
    """The loss learns tokens that the policy did not sample, such as observations."""
    POLICY_DRIFT = "policy_drift"
    """Far from the initial model."""
    SAMPLER_MISMATCH = "sampler_mismatch"
    """Sampler and trainer give the same token different probabilities."""
    REWARD_WITHOUT_SUCCESS = "reward_without_success"
    """A part of a composite reward rises and success does not."""
    NOT_FINITE = "not_finite"
    """NaN or infinity in what the trainer logs."""
    REWARD_FALL = "reward_fall"
    """The reward has lost most of what it had."""
    REWARD_CONSTANT = "reward_constant"
    """The reward is the same at every log, so nothing can be learned from it."""
    LOSS_CONSTANT = "loss_constant"
    """A supervised or preference loss is the same at every log: a trainer's filter hides NaN, or nothing is learned."""
    LOSS_RISE = "loss_rise"
    """A supervised or preference loss rises far above its start."""
    DEGENERATE_ANSWERS = "degenerate_answers"
    """Refusals or repetitions take over."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One danger that the log shows."""

    danger: Danger
    step: int
    """The first step at which the danger could be detected."""
    series: Sequence[str]
    evidence: str
    """One sentence with the numbers."""
    advice: str
    """What to check next."""


ACTIONS: Mapping[Danger, TrainingAction] = dict.fromkeys(Danger, TrainingAction.PAUSE) | {
    Danger.WIN_RATE_AT_A_PRICE: TrainingAction.PAUSE_HUMAN_REVIEW,
    Danger.LENGTH_INFLATION: TrainingAction.CONTINUE,
    Danger.COST_INFLATION: TrainingAction.CONTINUE,
}
"""The default action for each danger. Length and cost do not stop training: release gates judge them."""


class MonitorSettings(StrictModel):
    """Thresholds of the detectors. Defaults are ours; the sources name the dangers, not the numbers."""

    smoothing: int = Field(default=5, ge=1)
    """Logged points of the running median that trends are read from."""
    reference: int = Field(default=5, ge=1)
    """First logged points whose median is the start that later values are compared with."""
    trend_window: int = Field(default=20, ge=6)
    """Logged points within which a trend is tested."""
    trend_p: float = Field(default=0.01, gt=0, lt=1)
    """Of Kendall's test: a trend is called one below it."""
    kl_window: int = Field(default=20, ge=8)
    """Logged points before a value that say what is usual."""
    kl_sigmas: float = Field(default=8.0, gt=0)
    """Robust standard deviations (1.4826 MAD) above the median that make a spike, at two logs in a row."""
    kl_ratio: float = Field(default=3.0, gt=1)
    """... and at least so many times the median."""
    kl_floor: float = Field(default=0.03, ge=0)
    """A smaller KL is not a spike: where it begins at zero, its first rise is many times what was there before."""
    entropy_floor: float = Field(default=0.1, gt=0, lt=1)
    """Share of the first entropy below which it has collapsed."""
    entropy_fast_fall: float = Field(default=0.6, gt=0, lt=1)
    """Share lost within `entropy_window` points that counts as a collapse under way, once less than half is left."""
    entropy_window: int = Field(default=10, ge=3)
    length_growth: float = Field(default=0.5, gt=0)
    """Relative growth of response length since the start."""
    length_loss: float = Field(default=0.5, gt=0, lt=1)
    """Share of response length lost while the reward rises."""
    benchmark_tolerance: float = Field(default=0.01, ge=0)
    """In points (0.01 is one): how far below its best a benchmark may lie, ..."""
    benchmark_sigmas: float = Field(default=3.0, ge=0)
    """... and at least so many times the noise of its evaluations, as they scatter around their own trend (more while
    they are few), ..."""
    benchmark_loss: float = Field(default=0.2, gt=0, lt=1)
    """... or this share of the best, if that is less or there are too few evaluations to know their noise."""
    verifier_tolerance: float = Field(default=0.05, ge=0)
    """In points below the verifier's first agreement with humans."""
    cost_growth: float = Field(default=0.3, gt=0)
    """Relative growth of cost or latency since the start."""
    unterminated_rise: float = Field(default=0.1, gt=0, le=1)
    """Added share of messages that never end which makes a collapse."""
    bad_message_rise: float = Field(default=0.25, gt=0, le=1)
    """Added share of invalid, repeated or stuttering messages which makes a collapse."""
    signal_floor: float = Field(default=0.1, ge=0, le=1)
    """Share of groups with different rewards below which nothing is learned any more."""
    rare: float = Field(default=0.1, ge=0, le=1)
    """Success below which few groups differ in a healthy run, too; there the signal is lost if ..."""
    signal_window: int = Field(default=8, ge=3)
    """... over so many logs less than a fifth is left of a share that was twice the floor, or ..."""
    signal_points: int = Field(default=12, ge=3)
    """... over so many ..."""
    signal_least: float = Field(default=0.01, ge=0, le=1)
    """... fewer than this share of groups differ."""
    solved: float = Field(default=0.95, ge=0, le=1)
    """Success from which on groups without differences are no surprise."""
    drift_limit: float = Field(default=0.25, gt=0)
    """Nats a token from the initial model. Runs that learned in the household world stayed below 0.1."""
    kl_limit: float = Field(default=1.0, gt=0)
    """Nats a token from the reference policy (TRL's `kl`), as the median of three logs: the policy is another model
    by then. A spike beyond it counts at one log."""
    reward_loss: float = Field(default=0.5, gt=0, lt=1)
    """Share of its best running reward that is lost when it has fallen."""
    reward_sigmas: float = Field(default=4.0, gt=0)
    """... and at least so many times the reward's own noise from one log to the next."""
    constant_points: int = Field(default=10, ge=3)
    """Logs with the very same reward, or loss where no reward is logged, that make it constant."""
    loss_growth: float = Field(default=0.5, gt=0)
    """Relative growth of a loss since its start, where no reward is logged."""
    degenerate_share: float = Field(default=0.5, gt=0, le=1)
    """Share of refusals or of repetitive answers that is too much, if it also rose by half of this."""
    logprob_gap: float = Field(default=1e-2, gt=0)
    """Largest difference between sampler and trainer on one token, in nats; in float32 it stays at about 1e-4."""
    flat_success: float = Field(default=0.02, ge=0, le=1)
    """Success that rose by no more than this since the start did not rise."""
    actions: dict[Danger, TrainingAction] = Field(default_factory=dict)
    """In place of the default action of a danger."""

    def action(self, danger: Danger) -> TrainingAction:
        """The action for a danger."""
        return self.actions.get(danger, ACTIONS[danger])


def canonical_name(name: str) -> str:
    """Our name for what a trainer logged.

    An unknown name comes back without its prefix, so that `eval/gsm8k_exact_match` is the suite's metric; a known
    training quantity that was measured on evaluation data keeps an `eval_`.
    """
    bare, is_evaluated = name.strip(), False
    for prefix in (*_TRAINING_PREFIXES, *_EVALUATION_PREFIXES):
        is_evaluated |= bare.startswith(prefix) and prefix in _EVALUATION_PREFIXES
        bare = bare.removeprefix(prefix)
    lowered = bare.lower()
    canonical = lowered if lowered in MEANING else _ALIASES.get(lowered)
    if canonical is None:
        return bare
    return f"eval_{canonical}" if is_evaluated and canonical not in EVALUATED else canonical


def measurements(name: str, value: float, keep: Collection[str] = ()) -> Iterator[tuple[str, float]]:
    """What one logged number measures, by our names. keep: names that a suite uses and that stay beside ours."""
    bare = name.strip()
    for prefix in (*_TRAINING_PREFIXES, *_EVALUATION_PREFIXES):
        if bare in keep:
            break
        bare = bare.removeprefix(prefix)
    canonical = canonical_name(name)
    if bare in keep and bare != canonical:
        yield bare, value
    if canonical == _ZERO_SPREAD:
        yield "signal_share", 1.0 - value
    yield canonical, value


def is_summary(names: Collection[str]) -> bool:
    """Whether a row is what a Trainer logs once at the end of a run, not a point of it."""
    return any(name.rpartition("/")[2] == SUMMARY for name in names)


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over a run; steps strictly ascending, values finite."""

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    def until(self, step: int) -> "Series":
        """What was known at a step, itself included."""
        n = int(np.searchsorted(self.steps, step, side="right"))
        return Series(self.name, self.steps[:n], self.values[:n])


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """All series of one run."""

    name: str
    series: Mapping[str, Series]
    notes: Sequence[str] = field(default_factory=tuple)
    """What the reader corrected or left out: steps out of order, values that are not numbers."""
    not_finite: Sequence["Reading"] = ()
    """The first NaN or infinity of each quantity; they are in no series."""

    def get(self, name: str) -> Series | None:
        """The series of a name; None if the run did not log it."""
        return self.series.get(name)

    @property
    def last_step(self) -> int:
        """The latest step of any series."""
        return max((int(series.steps[-1]) for series in self.series.values() if len(series)), default=0)

    def until(self, step: int) -> "TrainingLog":
        """The run as it was known at a step."""
        cut = {name: series.until(step) for name, series in self.series.items()}
        broken = tuple(reading for reading in self.not_finite if reading.step <= step)
        return TrainingLog(self.name, {name: s for name, s in cut.items() if len(s)}, self.notes, broken)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of a log."""

    step: int
    name: str
    value: float
    where: str
    """Line or record, for messages."""


def assemble(name: str, readings: Iterable[Reading], notes: Sequence[str] = ()) -> TrainingLog:
    """Series from readings in the order in which they were logged.

    Steps out of order are sorted; of two readings at one step the later logged one counts; values that are not
    finite are left out. The notes report all three, with the first occurrence.
    """
    points: dict[str, dict[int, float]] = {}
    occurrences: dict[str, tuple[int, str]] = {}
    latest: dict[str, int] = {}
    not_finite: dict[str, Reading] = {}
    for reading in readings:
        column = points.setdefault(reading.name, {})
        if not np.isfinite(reading.value):
            _count(occurrences, f"{reading.name}: value is {reading.value}, left out", reading.where)
            first = not_finite.setdefault(reading.name, reading)
            not_finite[reading.name] = min(first, reading, key=lambda r: r.step)
            continue
        if reading.step < latest.get(reading.name, reading.step):
            _count(occurrences, f"{reading.name}: steps out of order, sorted", reading.where)
        if reading.step in column:
            _count(occurrences, f"{reading.name}: a step appears twice, the later line counts", reading.where)
        latest[reading.name] = max(reading.step, latest.get(reading.name, reading.step))
        column[reading.step] = reading.value
    series = {}
    for column_name, column in points.items():
        if column:
            steps = sorted(column)
            series[column_name] = Series(
                column_name, np.array(steps, dtype=np.int64), np.array([column[s] for s in steps], dtype=np.float64)
            )
    remarks = [f"{text} ({n} times, first at {where})" for text, (n, where) in occurrences.items()]
    return TrainingLog(name, series, (*notes, *remarks), tuple(sorted(not_finite.values(), key=lambda r: r.step)))


def _count(occurrences: dict[str, tuple[int, str]], text: str, where: str) -> None:
    n, first = occurrences.get(text, (0, where))
    occurrences[text] = (n + 1, first)


@dataclass(frozen=True, slots=True)
class Trend:
    """Direction of a window of a series."""

    slope: float
    """Median slope, units of the series a step."""
    p_value: float
    start: float
    """Median of the window's first points (a tenth, at least three): seen values, never the fitted line's."""
    end: float
    """The same of its last points."""

    def rises(self, p: float) -> bool:
        """Whether it goes up, at level p."""
        return self.slope > 0 and self.p_value < p

    def falls(self, p: float) -> bool:
        """Whether it goes down, at level p."""
        return self.slope < 0 and self.p_value < p


def trend(series: Series, window: int) -> Trend | None:
    """Of the last `window` points, thinned evenly to `MAX_POINTS`; None with fewer than six, or if all are equal."""
    steps, values = series.steps[-window:].astype(np.float64), series.values[-window:]
    if len(values) < 6 or np.ptp(values) == 0:
        return None
    if len(values) > MAX_POINTS:
        indices = np.linspace(0, len(values) - 1, MAX_POINTS).round().astype(np.int64)
        steps, values = steps[indices], values[indices]
    slope = stats.theilslopes(values, steps)[0]
    p_value = float(stats.kendalltau(steps, values).pvalue)
    n_ends = max(3, len(values) // 10)
    return Trend(float(slope), p_value, float(np.median(values[:n_ends])), float(np.median(values[-n_ends:])))


def median_before_end(series: Series, n_points: int, back: int = 0) -> float:
    """Median of the n_points that end `back` points before the last one; of what there is if there are fewer."""
    end = max(1, len(series) - back)
    return float(np.median(series.values[max(0, end - n_points) : end]))


def reference(series: Series, n_points: int) -> float | None:
    """Median of the first n_points; None while there are fewer."""
    return float(np.median(series.values[:n_points])) if len(series) >= n_points else None


def robust_spread(values: NDArray[np.float64]) -> tuple[float, float]:
    """(median, robust standard deviation)."""
    return float(np.median(values)), float(stats.median_abs_deviation(values)) * MAD_TO_SIGMA


@dataclass(frozen=True, slots=True)
class MonitoredRun:
    """A training log with the settings and the roles of its series: the input of every detector."""

    log: TrainingLog
    settings: MonitorSettings
    benchmarks: Sequence[str]
    """Series that are benchmark scores; the primary metric first."""
    lower_is_better: Collection[str] = ()
    """Benchmark scores that are better when they are smaller."""
    win_rates: Sequence[str] = ("win_rate",)
    """Series that are win rates."""


DangerDetector = Callable[[MonitoredRun], Signal | None]


def trend_of(run: MonitoredRun, name: str, *, since_start: bool = False) -> Trend | None:
    """The trend of a series, within the settings' window or since the run began; None if there is none to test."""
    series = run.log.get(name)
    if series is None:
        return None
    return trend(series, len(series) if since_start else run.settings.trend_window)


def last_step(run: MonitoredRun, name: str) -> int:
    """The last step of a series; 0 if it was not logged."""
    series = run.log.get(name)
    return int(series.steps[-1]) if series is not None else 0


def change_since_start(run: MonitoredRun, name: str) -> tuple[float, float, int] | None:
    """(start, now, step) of a positive quantity, both as running medians; None while there is too little."""
    series, settings = run.log.get(name), run.settings
    start = reference(series, settings.reference) if series is not None else None
    if series is None or start is None or start <= 0 or len(series) <= settings.reference:
        return None
    return start, median_before_end(series, settings.smoothing), int(series.steps[-1])


def recent(run: MonitoredRun, name: str, n_points: int = 3) -> float | None:
    """Median of the last n_points of a series; None while there are fewer."""
    series = run.log.get(name)
    return None if series is None or len(series) < n_points else median_before_end(series, n_points)
