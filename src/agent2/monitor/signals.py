"""What a danger signal is, and the settings of the detectors that raise them.

A signal is evidence, not a verdict: it names the series, the steps and the numbers, so that a reader can find
the place in the log. What follows from it is decided by the gates (`agent2.monitor.watch`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pydantic import Field

from agent2.config import StrictModel
from agent2.contract.gates import TrainingAction


class Danger(StrEnum):
    """The kinds of danger: each row of the source's monitoring table, the compound one, and those of episodes."""

    REWARD_BENCHMARK_DIVERGENCE = "reward_benchmark_divergence"
    """Reward rises while the benchmark falls."""
    KL_SPIKE = "kl_spike"
    ENTROPY_COLLAPSE = "entropy_collapse"
    LENGTH_INFLATION = "length_inflation"
    LENGTH_COLLAPSE = "length_collapse"
    """Much shorter answers while reward rises: the format reward is being gamed."""
    VERIFIER_DRIFT = "verifier_drift"
    """Verifier and human spot-checks part."""
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
    """The loss learns tokens that the policy did not draw, such as observations."""
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
    """At which it could be known first."""
    series: Sequence[str]
    evidence: str
    """One sentence with the numbers."""
    advice: str
    """What to look at next."""


ACTIONS: Mapping[Danger, TrainingAction] = MappingProxyType(
    {
        Danger.LOOPHOLE: TrainingAction.PAUSE,
        Danger.REWARD_BENCHMARK_DIVERGENCE: TrainingAction.PAUSE,
        Danger.KL_SPIKE: TrainingAction.PAUSE,
        Danger.ENTROPY_COLLAPSE: TrainingAction.PAUSE,
        Danger.VERIFIER_DRIFT: TrainingAction.PAUSE,
        Danger.WIN_RATE_AT_A_PRICE: TrainingAction.PAUSE_HUMAN_REVIEW,
        Danger.LENGTH_INFLATION: TrainingAction.CONTINUE,
        Danger.LENGTH_COLLAPSE: TrainingAction.PAUSE,
        Danger.COST_INFLATION: TrainingAction.CONTINUE,
        Danger.FORMAT_COLLAPSE: TrainingAction.PAUSE,
        Danger.SIGNAL_LOST: TrainingAction.PAUSE,
        Danger.FOREIGN_TOKENS: TrainingAction.PAUSE,
        Danger.POLICY_DRIFT: TrainingAction.PAUSE,
        Danger.SAMPLER_MISMATCH: TrainingAction.PAUSE,
        Danger.REWARD_WITHOUT_SUCCESS: TrainingAction.PAUSE,
        Danger.NOT_FINITE: TrainingAction.PAUSE,
        Danger.REWARD_FALL: TrainingAction.PAUSE,
        Danger.REWARD_CONSTANT: TrainingAction.PAUSE,
        Danger.LOSS_CONSTANT: TrainingAction.PAUSE,
        Danger.LOSS_RISE: TrainingAction.PAUSE,
        Danger.DEGENERATE_ANSWERS: TrainingAction.PAUSE,
    }
)
"""What each danger asks of training by default. Length and cost do not stop training: release gates judge them."""


class MonitorSettings(StrictModel):
    """When a detector speaks. Defaults are ours; the sources name the dangers, not the numbers."""

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
        """What a danger asks of training."""
        return self.actions.get(danger, ACTIONS[danger])
