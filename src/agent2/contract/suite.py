"""A suite: a versioned evaluation contract, fully spelled out.

Six parts are mandatory: task distribution, execution protocol, scorers, control group, splits and failure taxonomy;
so are benchmarks, metrics (exactly one of them primary), gates and a cadence. Everything that changes a score is a
required key, so that no default decides it; `null` says openly that there is no limit, no tool or no judge. Parts that
a file leaves out are filled in from a track template by `contract.suite_files`, visibly.

A suite names benchmarks by text only; whether they are installed is for the caller to find out. Does NOT hold metrics
and gates (`contract.metrics`, `contract.gates`), nor the rules that join several parts (a gate reads a known metric,
...): those are in `contract.suite_rules`, and `suite_files.load_suite` applies them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from agent2.config import StrictModel
from agent2.contract.causes import StatedCause
from agent2.contract.gates import GateSpec
from agent2.contract.metrics import Evidence, MetricEvidence, MetricSpec, primary_of
from agent2.errors import ConfigError
from agent2.llm.thoughts import read_thinking
from agent2.records import SamplingSettings, Split, digest_of
from agent2.sampling_keys import Temperature, TopP, if_set
from agent2.scorers.process.rules import StepRule, with_changes
from agent2.scorers.process.weights import WeightSpec

MANDATORY_PARTS = ("task_distribution", "protocol", "scorer", "control_group", "splits", "failure_taxonomy")
"""Without one of these a suite is not an evaluation contract; the scorer belongs to each benchmark."""
OWN_SAMPLING = "own"
NOT_IN_DIGEST: Any = {"model": True, "benchmarks": {"__all__": {"source"}}}
"""The checkpoint under test changes while its contract stays, and so may the location of a benchmark."""


class BenchmarkDifficulty(StrEnum):
    """How hard a task is for the models that the suite is made for."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


class ProductionTask(StrictModel):
    """One kind of work that the model will be used for."""

    name: str = Field(min_length=1)
    difficulty: BenchmarkDifficulty
    benchmarks: list[str]
    """Those of the suite that represent it; empty: none does, which `suite_rules.remarks` reports."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Of production traffic, 0 to 1; None: not known."""


class TaskDistribution(StrictModel):
    """Which work the suite represents, from easy to hard."""

    production_tasks: list[ProductionTask] = Field(min_length=1)

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> "TaskDistribution":
        shares = [task.share for task in self.production_tasks]
        stated = [share for share in shares if share is not None]
        if stated and (len(stated) != len(shares) or abs(sum(stated) - 1) > 1e-6):
            raise ValueError(f"shares of production tasks are {shares}; give all of them, with sum 1, or none")
        return self


class SuiteSampling(StrictModel):
    """How completions are drawn."""

    temperature: Temperature
    top_p: TopP
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
    thinking: str | None = None
    """How thought and answer are told apart: auto, none, '<think> </think>' or '</think>'; null: auto."""

    @field_validator("thinking")
    @classmethod
    def _is_readable(cls, value: str | None) -> str | None:
        try:
            return None if value is None else read_thinking(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error


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
    """Who may see a split, and when its score is reported."""

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

    @model_validator(mode="before")
    @classmethod
    def _has_tier(cls, value: object) -> object:
        if isinstance(value, str):
            tiers = ", ".join(ScorerTier)
            raise ValueError(f"write scorer: {{name: {value}, tier: reference}}; tiers are {tiers}")
        return value


class SuccessCriterion(StrEnum):
    """What makes an episode a success."""

    FINAL_ANSWER = "final_answer"
    STATE_DIFF = "environment_state_diff"
    TEST_PASS = "test_pass"
    SIMULATOR = "user_simulator_satisfaction"


class InitialEnvironment(StrictModel):
    """How each episode begins from the same state."""

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
    """What of every step must be replayable; all four are required."""

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


class EvaluationRole(StrEnum):
    """Why an evaluation is made; decides its split."""

    DEV = "dev"
    NIGHTLY = "nightly"
    CANDIDATE = "candidate"


class Urls(StrictModel):
    """Web pages of a published benchmark."""

    dataset: str | None = None
    leaderboard: str | None = None
    code: str | None = None


class Prerequisite(StrictModel):
    """Another benchmark on which a score has to be reached first."""

    benchmark: str
    at_least: float = Field(ge=0, le=1)
    """Of that benchmark's own metric."""


class BenchmarkSampling(StrictModel):
    """How completions are drawn on one benchmark, in place of the protocol; null: as the benchmark itself says."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _own(cls, value: object) -> object:
        return {} if value == OWN_SAMPLING else value


class ComparingJudge(StrictModel):
    """Who says which side's answer to an item is better."""

    scorer: str
    """A pairwise scorer: `pair_judge`, `reward_model`, or FILE.py:NAME."""
    settings: dict[str, Any] = Field(default_factory=dict)
    roles: list[EvaluationRole] | None = Field(default=None, min_length=1)
    """In which the judge is asked, such as `[nightly, candidate]`; null: in each."""

    def is_asked_in(self, role: EvaluationRole) -> bool:
        """Whether the judge is asked in an evaluation of that role."""
        return self.roles is None or role in self.roles


class StepJudging(StrictModel):
    """Who judges the steps that statistics and step rules leave open."""

    model: str
    """Any that `agent2 eval` takes."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """`prompt`, `max_tokens` and the other settings of a judge."""
    roles: list[EvaluationRole] | None = Field(default=None, min_length=1)
    """In which the judge is asked; null: in each."""

    def is_asked_in(self, role: EvaluationRole) -> bool:
        """Whether the judge is asked in an evaluation of that role."""
        return self.roles is None or role in self.roles


class SuiteBenchmark(StrictModel):
    """One benchmark as this suite uses it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str | None = None
    """Null: the installed one, which is on the card."""
    source: str | None = None
    """Where it is, if it is neither packaged nor installed: FILE.py:NAME, or a folder with benchmark.yaml, from the
    suite's own folder. No part of the digest: the version says what it is."""
    split: Split
    """The split of the nightly report, as in `cadence.nightly`."""
    metric: str
    """Name of the metric of this suite that is the benchmark's main one; prerequisites read it."""
    n_items: int | None = Field(ge=1)
    """Null: all there are."""
    max_tokens: int | None = Field(default=None, ge=1)
    """In place of the protocol's."""
    sampling: BenchmarkSampling | None = None
    """`own`: as the benchmark says. Null: the protocol's."""
    scorer: ScorerRule
    requires: list[Prerequisite] = Field(default_factory=list)
    urls: Urls | None = None
    pair_judge: ComparingJudge | None = None
    """Compares the checkpoint's answers with the baseline's, for metrics of the measure `win_rate`; null: nobody does.
    """
    step_judge: StepJudging | None = None
    """Judges single steps of both sides, for the measures `process:step_points`, `process:judged_waste` and
    `process:any_harmful_step`; null: nobody does."""


class Suite(StrictModel):
    """An evaluation contract."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    version: str = Field(pattern=r"^\d+\.\d+$")
    """Written `name-vX.Y` together with the name."""
    track: str
    """The kind of loop it belongs to, and the template it may be filled in from."""
    description: str
    model: str | None = None
    """The checkpoint under test; null: named when the suite is run (`--checkpoint`)."""
    control_group: ControlGroup
    task_distribution: TaskDistribution
    protocol: ExecutionProtocol
    splits: SplitRules
    cadence: Cadence
    benchmarks: list[SuiteBenchmark] = Field(min_length=1)
    metrics: list[MetricSpec] = Field(min_length=1)
    gates: list[GateSpec] = Field(min_length=1)
    failure_taxonomy: dict[str, StatedCause] = Field(min_length=1)
    """Class of bad cases -> what it is attributed to, in place of `contract/failures.yaml`."""
    agent: AgentContract | None
    """Null: no agent, no tools."""
    process_rules: list[StepRule] | None = None
    """Step rules that replace packaged ones of the same name, or are added; null: the packaged ones."""
    trajectory_weights: WeightSpec | None = None
    """Weights of the trajectory's score on the page, which decides nothing: a preset or five numbers; null: default."""

    @property
    def step_rules(self) -> tuple[StepRule, ...]:
        """Every step rule that holds in this suite."""
        return with_changes(self.process_rules or ())

    @property
    def id(self) -> str:
        """Name and version: `llm_core_regression-v1.0`."""
        return f"{self.name}-v{self.version}"

    @property
    def digest(self) -> str:
        """Of the whole contract but the checkpoint under test; equal suites have equal digests on every machine."""
        content = self.model_dump(mode="json", exclude=NOT_IN_DIGEST)
        for entry in content["benchmarks"]:
            if entry["sampling"] is None:  # suites from before there was this key keep their digest
                del entry["sampling"]
            if entry["step_judge"] is None:
                del entry["step_judge"]
            if entry["pair_judge"] is None:
                del entry["pair_judge"]
            else:  # where a file is differs from machine to machine
                entry["pair_judge"]["scorer"] = Path(entry["pair_judge"]["scorer"]).name
            for judge in ("step_judge", "pair_judge"):
                if judge in entry and entry[judge]["roles"] is None:
                    del entry[judge]["roles"]
        if content["process_rules"] is None:
            del content["process_rules"]
        if content["trajectory_weights"] is None:
            del content["trajectory_weights"]
        for rule in content.get("process_rules", ()):
            if "check" in rule:  # where a file is differs from machine to machine
                rule["check"] = Path(rule["check"]).name
        if content["protocol"]["thinking"] is None:
            del content["protocol"]["thinking"]
        return digest_of(content)

    @property
    def baseline(self) -> str | None:
        """The control group's checkpoint."""
        return self.control_group.checkpoint

    @property
    def primary(self) -> MetricSpec:
        """The one number that has to get better."""
        return primary_of(self.metrics)

    def benchmark(self, name: str) -> SuiteBenchmark:
        """The entry of one benchmark. Raises KeyError if the suite has none of that name."""
        return {entry.name: entry for entry in self.benchmarks}[name]

    def role_rule(self, role: EvaluationRole) -> RoleRule:
        """What an evaluation of that role plays."""
        return {
            EvaluationRole.DEV: self.cadence.dev,
            EvaluationRole.NIGHTLY: self.cadence.nightly,
            EvaluationRole.CANDIDATE: self.cadence.candidate,
        }[role]

    def n_items(self, benchmark: SuiteBenchmark, role: EvaluationRole) -> int | None:
        """How many items of a benchmark an evaluation of that role plays; None: all there are.

        The smaller of the role's and the benchmark's number.
        """
        limits = [n for n in (self.role_rule(role).n_items, benchmark.n_items) if n is not None]
        return min(limits, default=None)

    def sampling(self, benchmark: SuiteBenchmark, declared: SamplingSettings) -> SamplingSettings:
        """How completions are drawn on one benchmark; the number of attempts is `protocol.sampling.n`.

        declared: as the benchmark itself says.
        """
        entry, protocol = benchmark.sampling, self.protocol.sampling
        if entry is None:
            temperature, top_p = if_set(protocol.temperature), if_set(protocol.top_p)
            return SamplingSettings(temperature, top_p, benchmark.max_tokens or protocol.max_tokens)
        return SamplingSettings(
            declared.temperature if entry.temperature is None else if_set(entry.temperature),
            declared.top_p if entry.top_p is None else if_set(entry.top_p),
            benchmark.max_tokens or entry.max_tokens or declared.max_tokens,
        )

    def in_order(self) -> list[SuiteBenchmark]:
        """The benchmarks, each after those that it requires; otherwise as the file has them."""
        sorter = TopologicalSorter(
            {entry.name: [need.benchmark for need in entry.requires] for entry in self.benchmarks}
        )
        sorter.prepare()
        rank = {entry.name: index for index, entry in enumerate(self.benchmarks)}
        names: list[str] = []
        while sorter.is_active():
            # `TopologicalSorter` gives the ready ones in no order.
            ready = sorted(sorter.get_ready(), key=rank.__getitem__)
            names += ready
            sorter.done(*ready)
        return [self.benchmark(name) for name in names]


@dataclass(frozen=True, slots=True)
class UnmetPrerequisite:
    """A prerequisite that was not met, so that a benchmark is skipped."""

    benchmark: str
    """The skipped one."""
    required: str
    value: float | None
    at_least: float

    def __str__(self) -> str:
        """One sentence for the report."""
        score = "has no score" if self.value is None else f"scored {100 * self.value:.1f}%"
        return f"{self.benchmark} was skipped: {self.required} {score}, {100 * self.at_least:.1f}% is needed first"


def unmet_prerequisite(benchmark: SuiteBenchmark, scores: Mapping[str, float | None]) -> UnmetPrerequisite | None:
    """The first prerequisite of a benchmark that the checkpoint falls short of; None: it may be played.

    scores: benchmark -> the checkpoint's value (0 to 1) of that benchmark's own metric; a benchmark that is not in
    it was itself skipped. A missing score meets no prerequisite: nothing was shown.
    """
    for need in benchmark.requires:
        value = scores.get(need.benchmark)
        if value is None or value < need.at_least:
            return UnmetPrerequisite(benchmark.name, need.benchmark, value, need.at_least)
    return None


def hold_prerequisites(suite: Suite, evidence: Evidence) -> Evidence:
    """The evidence of a report without the numbers of benchmarks whose prerequisites its checkpoint falls short of.

    An evaluation would not have played them; what is required and now missing makes the decision insufficient.
    """
    metrics, scores = dict(evidence.metrics), dict[str, float | None]()
    for entry in suite.in_order():
        unmet = unmet_prerequisite(entry, scores)
        if unmet is None:
            primary = evidence.metrics.get(entry.metric)
            scores[entry.name] = None if primary is None else primary.new
            continue
        for spec in suite.metrics:
            if spec.benchmark == entry.name and metrics.pop(spec.name, None) is not None:
                metrics[spec.name] = MetricEvidence(spec.name, None, None, problem=str(unmet))
    return replace(evidence, metrics=metrics)
