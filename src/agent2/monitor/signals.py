"""What a danger signal is, and the settings of the detectors that raise them.

A signal is evidence, not a verdict: it names the series, the steps and the numbers, so that a reader can find
the place in the log. What follows from it is decided by the gates (`agent2.monitor.gates`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pydantic import Field

from agent2.config import StrictModel
from agent2.contract.effects import TrainingAction


class Danger(StrEnum):
    """The kinds of danger, one for each row of the source's monitoring table, and the compound one."""

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
    }
)
"""What each danger asks of training by default. Length and cost are judged at the release gates: training may go on."""


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
    """Robust standard deviations (1.4826 MAD) above the median that make a spike."""
    kl_ratio: float = Field(default=3.0, gt=1)
    """... and at least so many times the median."""
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
    """In points (0.01 is one): how far below its best a benchmark may lie."""
    verifier_tolerance: float = Field(default=0.05, ge=0)
    """In points below the verifier's first agreement with humans."""
    cost_growth: float = Field(default=0.3, gt=0)
    """Relative growth of cost or latency since the start (L04's 30%)."""
    actions: dict[Danger, TrainingAction] = Field(default_factory=dict)
    """In place of the default action of a danger."""

    def action(self, danger: Danger) -> TrainingAction:
        """What a danger asks of training."""
        return self.actions.get(danger, ACTIONS[danger])
