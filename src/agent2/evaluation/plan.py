"""What is to be evaluated: the checkpoint, the items, how they are played, and what a rollout may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent2.cards.card import ReportingRule
from agent2.errors import ConfigError
from agent2.evaluation.context import context_policy
from agent2.llm.thoughts import AUTO, read_thinking
from agent2.records import Benchmark, EvaluationProtocol, Item, JsonValue, SamplingSettings, Split, digest_of


@dataclass(frozen=True, slots=True)
class EvaluationLimits:
    """What a rollout may use beyond one completion's sampling; part of the protocol."""

    max_turns: int | None = None
    """Where it is lower than the benchmark's own, at least 1; None: the benchmark's."""
    max_wall_time_s: float | None = None
    retries: int = 1
    """How often an attempt may be restarted after a fault that allows it."""
    context_length: int | None = None
    """Recorded on the card; a sampler has to be opened with it. None: the model's own."""
    tools: Mapping[str, JsonValue] = field(default_factory=dict)
    """Recorded on the card; the benchmark's world has to keep to it."""
    prompt_digest: str = ""
    judge_digest: str = ""
    context: str = "full"
    """What of a long episode is sent to the model; see `evaluation.context`."""
    thinking: str = AUTO
    """How thought and answer are told apart; see `llm.thoughts`."""
    max_episode_tokens: int | None = None
    """Most tokens that the model may write in one rollout; None: no limit but each turn's own."""

    def __post_init__(self) -> None:
        """Raises ConfigError without room for a single turn."""
        if self.max_turns is not None and self.max_turns < 1:
            raise ConfigError(
                f"evaluation limits: max_turns is {self.max_turns}; set it to at least 1, or to None (the benchmark's)"
            )


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """Which checkpoint is played on which items, and how."""

    benchmark: Benchmark
    split: Split
    items: Sequence[Item]
    checkpoint_name: str
    checkpoint_digest: str
    chat_template_digest: str
    dtype: str
    seed: int = 0
    attempts: int | None = None
    """None: as the benchmark says."""
    sampling: SamplingSettings | None = None
    """None: as the benchmark says."""
    limits: EvaluationLimits = field(default_factory=EvaluationLimits)
    reporting: ReportingRule = field(default_factory=ReportingRule)
    lock: Mapping[str, JsonValue] = field(default_factory=dict)
    """Further facts for the card's lock; no part of the protocol."""

    def protocol(self) -> EvaluationProtocol:
        """All that another checkpoint's evaluation must share to be comparable; the plan's seed is not part of it."""
        scorer, limits = self.benchmark.scorer(), self.limits
        max_turns = self.benchmark.max_turns
        budget = {} if limits.max_episode_tokens is None else {"max_episode_tokens": limits.max_episode_tokens}
        return EvaluationProtocol(
            benchmark=f"{self.benchmark.name}-v{self.benchmark.version}",
            split=self.split,
            items_digest=digest_of(list(self.items)),
            sampling=self.sampling or self.benchmark.sampling,
            attempts=self.benchmark.attempts if self.attempts is None else self.attempts,
            max_turns=max_turns if limits.max_turns is None else min(max_turns, limits.max_turns),
            environment=self.benchmark.environment_version(),
            scorer=f"{scorer.name}-v{scorer.version}",
            dtype=self.dtype,
            chat_template_digest=self.chat_template_digest,
            context_length=limits.context_length,
            tools={**limits.tools, **budget},
            max_wall_time_s=limits.max_wall_time_s,
            retries=limits.retries,
            prompt_digest=limits.prompt_digest,
            judge_digest=limits.judge_digest,
            context=context_policy(limits.context).name,
            thinking=read_thinking(limits.thinking),
        )
