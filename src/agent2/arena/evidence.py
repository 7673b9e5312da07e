"""The records of a finished trial: the only input of the analysis.

`read_evidence` (in `agent2.arena.analysis.read`) fills it from the trial's folder; tests build it by hand.
Times are Unix seconds, without the pauses between an interruption and the restart of the agent. Nothing here is read
from the workspace as state: revisions and metrics are what an agent wrote, so they are evidence about its behaviour
and never about its score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from agent2.arena.spec import Mode, TaskSpec
from agent2.errors import Fault
from agent2.integrity import IntegrityRecord
from agent2.llm.records import LlmTotals, TokenCounts
from agent2.records import JsonValue
from agent2.stats.estimates import Estimate, PairedDifference

MAX_COMMAND_CHARS = 4_000
"""Kept of a command line, all of its arguments together."""


class AgentEnd(StrEnum):
    """How the agent's phase ended."""

    EXITED = "exited"
    """By itself, exit code 0."""
    CRASHED = "crashed"
    """By itself, another exit code or a signal of its own."""
    DEADLINE = "deadline"
    """Stopped when the wall clock, or the GPU hours, were used up."""
    LIMIT = "limit"
    """Stopped because it broke a limit of the sandbox."""
    INTERRUPTED = "interrupted"
    """The harness died and the agent was not started again; the phase was closed on resume."""
    INFRASTRUCTURE = "infrastructure"
    """Stopped because a service of ours that the agent needs failed permanently (the LLM gateway)."""


class SubmissionState(StrEnum):
    """The state of a submission."""

    ACCEPTED = "accepted"
    """Snapshot taken and on disk; waits for its evaluation."""
    SCORED = "scored"
    FAILED = "failed"
    """Accepted, but the evaluation ended in a fault."""
    REJECTED = "rejected"
    """Refused when it was submitted; nothing was evaluated."""


@dataclass(frozen=True, slots=True)
class TypeScore:
    """The scores of one kind of task on the private items."""

    task_type: str
    base: Estimate | None
    """None: none of its items could be scored."""
    final: Estimate | None
    """None: the result is the base model, or none of its items could be scored."""


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """One submission as the grader recorded it."""

    number: int
    received_at: float
    model_path: str
    note: str
    state: SubmissionState
    weights_digest: str | None
    is_base_copy: bool
    revision: str | None
    """Code revision in the workspace when it was submitted."""
    score: Estimate | None
    """On test_public; None until (or unless) scored."""
    fault: Fault | None
    reason: str
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class Revision:
    """One code revision of the workspace."""

    t: float
    id: str
    """Commit in revisions.git."""
    submission: int | None
    """The submission that it was taken for."""
    files: Mapping[str, str]
    """Path -> text, code and configuration only (data and large files are left out)."""
    not_kept: Sequence[str] = ()
    """Code that the recorder did not keep, because it is too large or packed: path and size."""
    is_complete: bool = True
    """Nothing that should have been kept is missing."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process of the agent, over its life."""

    pid: int
    command: Sequence[str]
    first_seen: float
    last_seen: float
    cpu_s: float
    max_rss_bytes: int
    exe: str = ""
    """The program file as the kernel knows it, whatever the command line says; "" where it could not be read."""


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One line of a training log found in the workspace."""

    t: float
    file: str
    step: int | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One command line that the agent ran, by its own record."""

    command: str
    t: float | None = None
    """None where the agent's record has no times."""
    exit_code: int | None = None
    """None where it is not known."""
    failed: bool | None = None
    """Whether the agent's record says that it failed; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """Something that a person did to help or hinder the agent while it worked."""

    t: float
    note: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The agent was stopped with its harness and started again."""

    stopped_at: float
    """Unix seconds; of a killed harness, when it was last alive."""
    restarted_at: float
    used_s: float
    """Seconds that the agent had worked until then, pauses left out."""
    reason: str


@dataclass(frozen=True, slots=True)
class LlmCall:
    """One call of the agent to its driver."""

    number: int
    t: float
    """Unix seconds, when it was accepted."""
    seconds: float | None
    """To the last byte; None where it never ended."""
    protocol: str
    asked_model: str
    """The model that the agent named."""
    model: str
    """The model that answered."""
    outcome: str
    """As `gateway.recording.ExchangeOutcome` names it."""
    status: int | None
    tokens: TokenCounts
    is_counted: bool
    """The tokens are the provider's own figures, not an estimate."""
    dollars: float | None
    """None: the price is not known."""
    retries: int
    fault: str
    """One sentence; empty when nothing went wrong."""


@dataclass(frozen=True, slots=True)
class LlmRecord:
    """The agent's calls to its driver, as the gateway recorded them."""

    totals: LlmTotals
    calls: Sequence[LlmCall]
    max_tokens: int | None
    max_dollars: float | None
    """Budgets; None is no limit."""
    replay_of: str | None = None
    """The recording that answered in place of a provider."""
    n_differences: int = 0
    """Of a replay: requests that were not the recorded ones."""


NOT_MEASURED = "nothing, since a quick trial measures no noise band"
"""What the noise band of a quick trial is over."""


@dataclass(frozen=True, slots=True)
class NoiseBand:
    """How much the score of one checkpoint varies under this protocol (no training involved)."""

    half_width: float
    """95% quantile of the absolute paired difference, in probability units; 0: not known (greedy play, once)."""
    n_replicates: int
    over: str = "items and sampling seeds"
    """What was resampled."""


class ReproductionVerdict(StrEnum):
    """What came out when the recorded program of a trial was run again."""

    REPRODUCED = "reproduced"
    """The same weights; or a checkpoint that is better than the base model, and not worse than the recorded one."""
    NOT_REPRODUCED = "not reproduced"
    UNDECIDED = "undecided"
    """Neither is shown: the differences are within what the items can tell."""
    NOT_POSSIBLE = "not possible"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The recorded program of a trial, run again as a new trial."""

    t: float
    """Unix seconds, when it was recorded."""
    verdict: ReproductionVerdict
    reason: str
    """One sentence."""
    seed: int
    is_same_seed: bool
    """The seed of the recorded trial."""
    weights_digest: str
    """Of the checkpoint that was to be made again; "" where the trial has none."""
    trial: str | None = None
    """Id of the new trial; None: none was run."""
    is_same_checkpoint: bool = False
    """The weights that were made again are the recorded ones, bit by bit."""
    difference: PairedDifference | None = None
    """Made again minus recorded, on the private items; None where nothing was made that could be scored."""
    noise: float | None = None
    """Half-width of the noise band that the difference was held against; None: not known."""
    gain: PairedDifference | None = None
    """Of the new trial over the base model."""
    is_better: bool = False
    """The new trial's own gain is shown."""
    could_bring: str = ""
    """How the program may have brought its checkpoint along instead of making it; empty: it cannot have."""
    conditions: tuple[str, ...] = ()
    """What was not as in the recorded trial: versions, limits, requests to the LLM."""
    is_own: bool = False
    """Recorded by this installation, by its mark; anybody can write the others."""


@dataclass(frozen=True, slots=True)
class AnswerLengths:
    """How long a model's answers to one benchmark were."""

    mean_tokens: float | None
    """None: not known of every answer."""
    cut_off_share: float
    """Share of answers that the token limit cut off, 0 to 1."""


@dataclass(frozen=True, slots=True)
class RetainedSkill:
    """One rate of a benchmark outside of the trial's task, of the base model and the final checkpoint."""

    benchmark: str
    score: str
    """Name of the suite's metric."""
    base: Estimate
    final: Estimate
    difference: PairedDifference | None
    """Final minus base on the same items; None: the metric is a ratio of sums, or no item has it on both sides."""
    base_answers: AnswerLengths
    final_answers: AnswerLengths


@dataclass(frozen=True, slots=True)
class Retention:
    """What the final checkpoint of a trial still does beside its task, compared with the base model."""

    t: float
    """Unix seconds, when it was recorded."""
    suite: str
    """Name and version."""
    suite_digest: str
    weights_digest: str
    """Of the checkpoint that was played."""
    limit: int
    """Most items of a benchmark; the first ones by a public hash."""
    seconds: float
    skills: tuple[RetainedSkill, ...]
    is_own: bool = False
    """Recorded by this installation, by its mark; anybody can write the others."""


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """Base model and final checkpoint on the private items of another task, by that task's own protocol."""

    task: str
    benchmark: str
    """Name and version; empty where the task could not be loaded."""
    base: Estimate | None
    """None: it could not be scored."""
    final: Estimate | None
    change: PairedDifference | None
    """Final minus base on the items that both have a score for."""
    problem: str = ""
    """Why something is missing, one sentence."""
    seconds: float = 0.0
    """Of both evaluations; a base model that was scored before takes none."""


class MarkState(StrEnum):
    """What the mark of a trial says to this installation."""

    OWN = "own"
    """Made here, or by a holder of the same secret, and everything is as it was then."""
    CHANGED = "changed"
    """The trial is not what was marked, or the mark was not made with the secret that it names."""
    FOREIGN = "foreign"
    """Made by another installation, which alone can check it."""
    NONE = "none"
    """There is none: a trial of an earlier version, or one whose mark was taken away."""


@dataclass(frozen=True, slots=True)
class TrialMark:
    """A trial's mark as this installation reads it."""

    state: MarkState
    reason: str
    """One sentence."""


@dataclass(frozen=True, slots=True)
class AssignmentPart:
    """One part of the verdict on an assignment."""

    name: str
    credit: float | None
    """0 to 1; None: it could not be judged, or it is told and gives no credit."""
    reason: str


@dataclass(frozen=True, slots=True)
class AssignmentVerdict:
    """What came of an assignment that asks for more than a checkpoint (`agent2.arena.assignments`)."""

    kind: str
    passed: bool
    credit: float | None
    """0 to 1, the mean of the parts that count; None: one of these could not be judged."""
    parts: Sequence[AssignmentPart]
    figures: Mapping[str, JsonValue] = field(default_factory=dict)
    """By kind; gains as shares."""

    @property
    def summary(self) -> str:
        """Kind, whether it was passed, and the credit."""
        credit = "no credit given" if self.credit is None else f"credit {self.credit:.2f} of 1"
        return f"{self.kind}: {'passed' if self.passed else 'not passed'}, {credit}"


def read_assignment_verdict(row: Mapping[str, Any] | None) -> AssignmentVerdict | None:
    """The verdict on a trial's assignment in the event that closed it; None: there is none."""
    return msgspec.convert(row["verdict"], AssignmentVerdict) if row is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class TrialEvidence:
    """Everything that is known about one trial. Compared by identity, so that analyses of it can be cached."""

    trial_id: str
    task: TaskSpec
    agent: str
    driver: str | None
    seed: int
    sandbox: str
    """Name of the back end; "none" is flagged in the report."""
    containment: Sequence[Mapping[str, str]]
    """What the sandbox contained and how strongly: rows of {what, strength, how}."""
    started_at: float
    """Start of the agent's phase."""
    ended_at: float
    deadline: float
    agent_end: AgentEnd
    agent_exit_code: int | None
    agent_log_tail: str
    """The last 20,000 characters of agent.log."""
    base_weights_digest: str
    base_public: Estimate
    base_private: Estimate | None
    """None only when the evaluation itself failed."""
    final_private: Estimate | None
    gain: PairedDifference | None
    final_submission: int | None
    """The submission with the best public score; None: the base model itself."""
    noise: NoiseBand
    submissions: Sequence[SubmissionRecord]
    revisions: Sequence[Revision]
    processes: Sequence[ProcessSample]
    metrics: Sequence[MetricPoint]
    design: Mapping[str, JsonValue] | None
    """What the agent wrote in output/design.json, parsed; None if there is none or it is not a JSON object."""
    gpu_hours: float | None = None
    """Time in which GPUs worked for the agent; None where that could not be measured."""
    n_judgements: int | None = None
    """Replies that the judge gave a verdict on at the agent's request; None: the task has no judge to ask."""
    agent_end_reason: str = ""
    """One sentence of the harness on how the phase ended."""
    mode: Mode = Mode.FREE
    llm: LlmRecord | None = None
    """None: the agent had no driver."""
    commands: Sequence[CommandLine] = ()
    """From the agent's own record; empty where it keeps none (see `processes` then)."""
    interventions: Sequence[Intervention] = ()
    reproductions: Sequence[Reproduction] = ()
    """In the order in which they were recorded."""
    retention: Sequence[Retention] = ()
    """In the order in which it was measured."""
    base_answer_tokens: float | None = None
    """Mean tokens that the base model wrote for a private item; None: not known of every one."""
    final_answer_tokens: float | None = None
    """The same of the final checkpoint."""
    assignment: AssignmentVerdict | None = None
    """None: the task asks for a better checkpoint only."""
    reproduces: str | None = None
    """Id of the trial whose program ran here again; None: a trial of its own."""
    lock: Mapping[str, JsonValue] = field(default_factory=dict)
    agent_files: Mapping[str, str] = field(default_factory=dict)
    """Text files of the agent's own folder, keyed by path below /agent; empty when they have changed since."""
    train_score: Estimate | None = None
    """Of the final submission, or else of the best, on visible train items; measured only where the rewards that were
    logged before it exceed its public score."""
    train_scored: int | None = None
    """Number of that submission."""
    integrity: IntegrityRecord | None = None
    """Result of the integrity audit; None: there was none (a trial of an earlier version), or the stored one has been
    changed."""
    integrity_problem: str = ""
    """Why the stored audit is not the one whose digest is in the trial's log."""
    interruptions: Sequence[Interruption] = ()
    """Times at which the agent was stopped with its harness and started again; all other times exclude the pauses."""
    by_type: Sequence[TypeScore] = ()
    """Private scores by kind of task; empty where the items have no kinds."""
    train_kinds: frozenset[str] | None = None
    """Kinds of the visible train items; None: not recorded (a trial of before 2026-11-26), or items have no kinds."""
    held_out: Sequence[HeldOutScore] = ()
    """Of the tasks that the trial's task holds out; empty where the result is the base model."""
    warnings: Sequence[str] = ()
    """What was damaged or missing in the trial's folder, one sentence each."""
    is_quick: bool = False
    """A look with few hidden items and no noise band."""
