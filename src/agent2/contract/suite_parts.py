"""The parts of a suite that are more than a number: what is tested, how, against whom, and who may see what.

Everything that changes a score is a required key, so that nobody's default decides it; `null` says openly that there
is no limit, no tool or no judge. Does NOT hold metrics and gates (`contract.metrics`, `contract.gates`).
"""

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from agent2.config import StrictModel
from agent2.records import Split


class Difficulty(StrEnum):
    """How hard a task is for the models that the suite is made for."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class ProductionTask(StrictModel):
    """One kind of work that the model will be used for."""

    name: str = Field(min_length=1)
    difficulty: Difficulty
    benchmarks: list[str]
    """Those of the suite that stand for it; empty: none does, and `check` says so."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Of production traffic, 0 to 1; None: not known."""


class TaskDistribution(StrictModel):
    """Which work the suite stands for, from easy to hard."""

    production_tasks: list[ProductionTask] = Field(min_length=1)

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> "TaskDistribution":
        shares = [task.share for task in self.production_tasks]
        known = [share for share in shares if share is not None]
        if known and (len(known) != len(shares) or abs(sum(known) - 1) > 1e-6):
            raise ValueError(f"shares of production tasks are {shares}; give all of them, with sum 1, or none")
        return self


class SuiteSampling(StrictModel):
    """How completions are drawn."""

    temperature: float = Field(ge=0)
    """0 is greedy."""
    top_p: float = Field(gt=0, le=1)
    n: int = Field(ge=1)
    """Attempts for each item; all of them are scored."""
    max_tokens: int = Field(ge=1)
    """Of one completion."""


class ToolPermissions(StrictModel):
    """What the tools may touch."""

    internet_access: bool
    file_writing: bool
    test_execution: bool
    paid_api_calls: bool


class ToolProtocol(StrictModel):
    """How tools are used."""

    parallel_tool_calls: bool
    max_tool_calls: int = Field(ge=1)
    """Of one rollout."""
    permissions: ToolPermissions


class TiePolicy(StrEnum):
    """What a tie between two answers is worth."""

    COUNT_AS_HALF = "count_as_half"
    COUNT_AS_LOSS = "count_as_loss"
    DROP = "drop"


class JudgeRule(StrictModel):
    """How answers are judged for which no rule is enough."""

    type: Literal["llm_judge", "rule_then_llm_judge"]
    order_randomization: bool
    """Both answers of a pair come first equally often."""
    tie_policy: TiePolicy
    model: str | None = None
    prompt_digest: str | None = None
    """SHA-256 of the judge's prompt; None: the installed one, whose digest is on the card."""


class InputRule(StrictModel):
    """How images reach the model."""

    image_resolution: int = Field(ge=1)
    """Pixels of the longer side."""
    preserve_aspect_ratio: bool


class ExecutionProtocol(StrictModel):
    """All that must be equal for two scores to be comparable."""

    sampling: SuiteSampling
    context_length: int | None = Field(ge=1)
    """Most tokens of prompt and completion together; null: the model's own limit."""
    tools: ToolProtocol | None
    """Null: no tools."""
    max_wall_time_minutes: float | None = Field(gt=0)
    """Of one rollout; null: no limit."""
    retries: int = Field(ge=0)
    """How often an attempt may be restarted after a fault that is not the model's."""
    judge: JudgeRule | None
    """Null: no judge."""
    input: InputRule | None
    """Null: text only."""


class ControlKind(StrEnum):
    """What the checkpoint is compared with."""

    SFT = "sft"
    PREVIOUS_RL = "previous_rl"
    PRODUCTION = "production"


class ControlGroup(StrictModel):
    """A score without control is not evidence of improvement."""

    kind: ControlKind
    checkpoint: str | None
    """Null: named when the suite is run (`--baseline`)."""


class Visibility(StrEnum):
    """Who may see a split, and when its score is told."""

    TRAINING = "visible_for_training"
    ITERATION = "visible_for_iteration"
    EVERY_NIGHT = "reported_every_night"
    RELEASE_GATE = "release_gate_only"


class SplitRules(StrictModel):
    """Four isolated splits."""

    train: Visibility
    dev: Visibility
    test_public: Visibility
    test_private: Visibility

    @model_validator(mode="after")
    def _can_be_held(self) -> "SplitRules":
        if self.train is not Visibility.TRAINING:
            raise ValueError(f"split train is {self.train.value!r}; nothing hides it: write visible_for_training")
        if self.dev is not Visibility.ITERATION:
            raise ValueError(f"split dev is {self.dev.value!r}; nothing hides it: write visible_for_iteration")
        if self.test_public is Visibility.TRAINING:
            raise ValueError(
                "split test_public is 'visible_for_training'; its items are hidden: write reported_every_night"
            )
        if self.test_private is not Visibility.RELEASE_GATE:
            raise ValueError(
                f"split test_private is {self.test_private.value!r}; it must be {Visibility.RELEASE_GATE.value!r}, "
                "or a release would rest on items that training has met"
            )
        return self


class RoleRule(StrictModel):
    """What one kind of evaluation plays."""

    split: Split
    n_items: int | None = Field(ge=1)
    """Of each benchmark; null: as many as the benchmark's own entry says."""
    spot_check: bool = False
    """People judge a sample of the rollouts before a release: for `candidate` only, where gate `release_evidence` holds
    it."""


class Cadence(StrictModel):
    """Which evaluation is due when."""

    dev: RoleRule
    """Every checkpoint."""
    nightly: RoleRule
    """Every night."""
    candidate: RoleRule
    """A release candidate; the only role that may play `test_private`."""

    @model_validator(mode="after")
    def _only_candidates_are_private(self) -> "Cadence":
        for name, rule in (("dev", self.dev), ("nightly", self.nightly)):
            if rule.split in (Split.TEST_PRIVATE, Split.TRAIN):
                raise ValueError(f"cadence.{name} plays {rule.split.value}; use dev or test_public")
        if self.candidate.split is not Split.TEST_PRIVATE:
            raise ValueError(f"cadence.candidate plays {self.candidate.split.value}; a release needs test_private")
        return self


class ScorerTier(StrEnum):
    """What a verdict rests on, the strongest evidence first."""

    STATE = "state"
    """Environment state: database records, file diffs, test results."""
    RULES = "rules"
    """Format, fields, values, constraints."""
    REFERENCE = "reference"
    """Comparison with a reference answer."""
    JUDGE = "judge"
    """A model's opinion; must be spot-checked."""
    HUMAN = "human"


class ScorerRule(StrictModel):
    """How rollouts of one benchmark are judged."""

    name: str = Field(min_length=1)
    tier: ScorerTier


class Cause(StrEnum):
    """What a bad case is attributed to."""

    DATA = "data"
    REWARD = "reward"
    ALGORITHM = "algorithm"
    TOOLS = "tools"
    EVALUATION = "evaluation"
    SAFETY = "safety"


class SuccessCriterion(StrEnum):
    """What makes an episode a success."""

    FINAL_ANSWER = "final_answer"
    STATE_DIFF = "environment_state_diff"
    TEST_PASS = "test_pass"
    SIMULATOR = "user_simulator_satisfaction"


class InitialEnvironment(StrictModel):
    """How the world is brought to the same beginning each time."""

    kinds: list[Literal["browser", "repository", "database", "api", "filesystem"]] = Field(min_length=1)
    reproduction: str = Field(min_length=1)
    """One sentence: snapshot, commit, seed."""


class AgentBudget(StrictModel):
    """Most that one episode may use; null: no limit of its own."""

    max_steps: int | None = Field(ge=1)
    max_minutes: float | None = Field(gt=0)
    max_tokens: int | None = Field(ge=1)
    max_tool_calls: int | None = Field(ge=1)


class TrajectoryAudit(StrictModel):
    """What of every step must be replayable; a suite cannot do without any of them."""

    observation: Literal[True]
    action: Literal[True]
    tool_result: Literal[True]
    error_recovery: Literal[True]


class AgentContract(StrictModel):
    """What a suite for agents defines beyond the rest; tool permissions are in the protocol."""

    initial_environment: InitialEnvironment
    success_criteria: list[SuccessCriterion] = Field(min_length=1)
    budget: AgentBudget
    trajectory_audit: TrajectoryAudit
