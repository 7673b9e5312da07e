"""The records of monitoring: names of what is logged, dangers, signals and settings.

Trainers name the same quantity in many ways (`rewards/mean`, `train/reward`, `reward`); `measurements` maps what it
knows to the names in `MEANING` and keeps every other name as it is, so that a suite's metrics (`gsm8k_exact_match`) and
anything else a run logs stay available. What is measured on evaluation data (`eval_loss`) is a series of its own.

A signal is evidence, not a verdict: it names the series, the steps and the numbers, so that a reader can find the lines
in the log. What follows from it is decided by the gates (`agent2.monitor.watch`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from agent2.config import StrictModel
from agent2.contract.gates import TrainingAction
from agent2.monitor.series import TrainingLog, Trend, median_before_end, reference, trend

PAUSE_FILE = "pause.json"
"""Beside a run: why its training was paused, and which folder to resume from."""
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
    "grad_norm": "norm of the gradient before clipping",
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
    "staleness": "updates since the weights that played the batch, mean of its updates",
    "updates_behind": "updates between the weights that played the batch and its first update",
    "trainer_idle_s": "seconds that the trainer waited for the batch",
    "player_idle_s": "seconds that the playing side waited for weights",
    "importance_mean": "mean ratio of a token's probability to that when it was drawn",
    "importance_max": "largest ratio of a token's probability to that when it was drawn",
    "parameters_without_gradient": "trainable parameters that no update has given a gradient so far",
    PRIVATE: "score on the private set",
}

_OTHER_NAMES: Mapping[str, str] = {
    "verifier_accuracy": "verifier_agreement verifier/agreement verifier/accuracy",
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
    "grad_norm": "actor/grad_norm policy/grad_norm gradient_norm optim/grad_norm grad_norm/mean",
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
    GRADIENT_EXPLOSION = "gradient_explosion"
    """The gradient is many times larger than it was."""
    PARAMETERS_WITHOUT_GRADIENT = "parameters_without_gradient"
    """Parameters that should be trained get no gradient: a backward pass is missing."""
    REWARD_FALL = "reward_fall"
    """The reward has lost most of what it had."""
    REWARD_CONSTANT = "reward_constant"
    """The reward is the same at every log: nothing can be learned from it, or what measures it stands still."""
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
    gradient_ratio: float = Field(default=10.0, gt=1)
    """Times the median of the first `gradient_window` gradient norms that make an explosion, at three logs, ..."""
    gradient_window: int = Field(default=20, ge=5)
    gradient_floor: float = Field(default=1.0, ge=0)
    """... if they are also above this norm, at which trainers usually clip."""
    gradient_points: int = Field(default=3, ge=2)
    """Logs after which every trainable parameter should have had a gradient."""
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
    return trend(series, None if since_start else run.settings.trend_window)


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
