"""The records of an analysis: what a report prints, understandable without the trial's folder.

A value that is not defined for a trial (no submission, no interval, base at zero) is None, never 0.
Scores and gains called `_points` are percentage points; all other rates are 0 to 1. Times are seconds.
Reports store these records as JSON under the names of their fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent2.arena.spec import Mode, Stage
from agent2.integrity import IntegrityCheck, IntegrityFinding
from agent2.stats.comparisons import Claim
from agent2.stats.estimates import Estimate


class Verdict(StrEnum):
    """The answer to one question about a trial."""

    PASS = "pass"
    PARTIAL = "partial"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The records do not answer it."""


class Route(StrEnum):
    """How a checkpoint was made."""

    SFT = "sft"
    RL = "rl"
    SFT_THEN_RL = "sft_then_rl"
    REJECTION_SAMPLING = "rejection_sampling"
    PREFERENCE = "preference"
    COPY = "copy_of_base"
    NO_SUBMISSION = "no_submission"
    OTHER = "other"
    """Several methods in a combination that has no name here."""
    UNKNOWN = "unknown"
    """Nothing recorded shows how it was made."""


ROUTE_WORDS: Mapping[Route, str] = {
    Route.SFT: "SFT only",
    Route.RL: "RL only",
    Route.SFT_THEN_RL: "SFT then RL",
    Route.REJECTION_SAMPLING: "rejection sampling",
    Route.PREFERENCE: "preference optimisation",
    Route.COPY: "copy of the base model",
    Route.NO_SUBMISSION: "no submission",
    Route.OTHER: "other combination",
    Route.UNKNOWN: "unknown",
}


class Certainty(StrEnum):
    """How well a route is proven; verdicts count from `CONSISTENT` on."""

    OBSERVED = "observed"
    """The harness itself saw it: the weights prove it (a copy), nothing was submitted, or the route is consistent and
    the recorded program made such a checkpoint again when somebody reproduced the trial."""
    CONSISTENT = "consistent"
    """Code that trains so was reached in a program that ran, and nothing that was measured contradicts it: processor
    time, and a weight change that is not noise."""
    CLAIMED = "claimed"
    """Only plans, logs, names, or code that nothing shows to have run; or what was measured contradicts it."""
    NONE = "none"
    """No evidence."""


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One piece of evidence that a reader can look up."""

    where: str
    """File and line of a revision, process, log or submission."""
    text: str
    """The text; may have been written by an agent."""


@dataclass(frozen=True, slots=True)
class RouteFinding:
    """How a checkpoint was made, with the evidence."""

    route: Route
    algorithms: tuple[str, ...]
    """Named algorithms in the order of their use: ("SFT", "GRPO")."""
    certainty: Certainty
    reason: str
    evidence: tuple[EvidenceLine, ...] = ()

    @property
    def is_shown(self) -> bool:
        """Whether there is more than claims."""
        return self.certainty in {Certainty.CONSISTENT, Certainty.OBSERVED}

    @property
    def counted_label(self) -> str:
        """What tables count: the label of a route that is shown, else that it is not."""
        return self.label if self.is_shown else "not shown"

    @property
    def label(self) -> str:
        """The route in words, with the algorithms that the words do not name."""
        label = ROUTE_WORDS[self.route]
        named = [name for name in self.algorithms if name != "SFT" and name.lower() not in label.lower().split()]
        return f"{label} ({', '.join(named)})" if named else label


@dataclass(frozen=True, slots=True)
class SubmissionRoute:
    """The route of one submission."""

    number: int
    finding: RouteFinding


@dataclass(frozen=True, slots=True)
class TrajectoryPoint:
    """One scored submission of the trajectory."""

    number: int
    seconds: float
    """Since the start of the agent's phase, when it was received."""
    score: float
    best_so_far: float


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """How the agent worked, after the process metrics of the published benchmark (arXiv:2604.10547)."""

    n_submissions: int
    n_scored: int
    valid_submission_rate: float | None
    """Scored / received; None without a submission."""
    first_valid_idx: int | None
    """1-based position of the first scored submission among all received ones."""
    first_valid_delay: float | None
    """Seconds from the start to that submission."""
    score_trajectory: tuple[TrajectoryPoint, ...]
    time_to_first_improvement: float | None
    """Seconds until the first submission whose public score beats the base's."""
    time_to_best: float | None
    """Seconds until the best public score (ties: the earlier one)."""
    monotonic_ratio: float | None
    """Share of neighbouring scored submissions that did not get worse; None with fewer than two."""
    copy_model_count: int
    time_used_ratio: float | None
    """Duration of the agent's phase / time allowed; None when no time was allowed."""
    last_submit_gap: float | None
    """Seconds from the last submission to the end of the agent's phase."""


class ResultKind(StrEnum):
    """The kind of a trial's result."""

    MEASURED = "measured"
    """A submission was scored on test_private, paired with the base."""
    COPY = "copy_of_base"
    """The submitted checkpoint is the base model, by weight digest: the gain is 0 by identity."""
    BASE_KEPT = "base_kept"
    """Submissions were scored and none beat the base, so the base itself is the result: gain 0 by rule."""
    NO_SUBMISSION = "no_submission"
    """Nothing was submitted: there is no gain, which is not a zero."""
    NO_VALID_SUBMISSION = "no_valid_submission"
    """There were submissions, and none could be scored."""
    VOID = "void"
    """A finding of the integrity audit voids the trial: the base model's score counts, gain 0 by rule."""
    GATE_FAILED = "gate_failed"
    """Measured, but below a bound of the task (`TaskSpec.gates`): the base model's score counts, gain 0 by rule."""
    NOT_CLEARED = "not_cleared"
    """Measured, but a check of the integrity audit was cut short: there is no gain until it is repeated."""
    NOT_MEASURED = "not_measured"
    """A submission was chosen, but its final evaluation or the base's failed."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of the trial."""

    kind: ResultKind
    words: str
    """One sentence."""
    gain: Estimate | None
    """Paired gain on test_private, final minus base, over items; None unless measured or zero by identity or rule, and
    then without an interval."""
    p_value: float | None
    relative_percent: float | None
    """Gain in percent of the base's score; None when the base scores 0 or there is no gain."""
    claim: Claim | None
    """Better, worse or unclear, by interval, p-value and noise band together; None without a measured gain."""
    why: str
    """Reason of the claim, as a clause; empty without one."""
    within_noise: bool | None
    """|gain| is no larger than the half-width of the noise band; None without a measured gain or a band."""
    noise_points: float
    """Half-width of the noise band; 0: not known."""
    noise_over: str
    """What was resampled for the band."""
    best_submission: int | None
    """The submission with the best public score, whether or not it beat the base."""
    public_gain_points: float | None
    """Its public score minus the base's."""
    selection_gap_points: float | None
    """Public minus private score of the final submission: the bias of selecting the best public score."""
    voided_gain_points: float | None = None
    """Of a void trial or one that is not cleared: the gain that was measured and does not count; None otherwise."""


@dataclass(frozen=True, slots=True)
class StageVerdict:
    """Verdict on one stage of the agent's work."""

    stage: Stage
    verdict: Verdict
    reason: str
    evidence: tuple[EvidenceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Criterion:
    """Verdict on one of the five success criteria."""

    name: str
    verdict: Verdict
    reason: str


class FailureKind(StrEnum):
    """Kinds of failures in a trial."""

    NO_SUBMISSION = "no submission"
    SUBMISSION_REJECTED = "submission rejected"
    EVALUATION_FAULT = "evaluation fault"
    CRASH = "crash"
    TRACEBACK = "traceback in the log"
    CUDA_OOM = "out of GPU memory"
    CPU_OOM = "out of memory"
    DISK_FULL = "disk full"
    NOT_FINITE = "training diverged (not finite)"
    GRADER_UNREACHABLE = "grading API not reached"
    DEADLINE = "stopped at the deadline"
    LIMIT = "broke a limit of the sandbox"
    INTERRUPTED = "harness interrupted"
    LLM_FAILED = "LLM calls failed"
    """The provider answered with errors, cut an answer short or did not answer."""
    LLM_BUDGET = "LLM budget used up"
    GATEWAY_LOST = "LLM gateway lost"
    """A fault of the harness, not of the agent."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure with its proof."""

    kind: FailureKind
    detail: str
    """Finer kind or one sentence."""
    submission: int | None
    recovered: bool | None
    """Whether a valid submission came afterwards; None when that is not known."""
    evidence: tuple[EvidenceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What the agent's training cost."""

    training_program_s: float | None
    """Wall clock in which a program with training code ran (imports and own evaluation included)."""
    training_cpu_s: float | None
    """Processor time of these programs; a program that sleeps uses none."""
    training_log_s: float | None
    """From the first to the last line of the training logs, summed over logs."""
    max_rss_bytes: int | None
    """Largest resident memory of one process."""
    cpu_s: float | None
    """CPU time of all recorded processes."""
    gpu_hours: float | None
    """None: not measured."""


@dataclass(frozen=True, slots=True)
class ModeFinding:
    """Whether the agent kept to the routes that it was allowed."""

    mode: Mode
    verdict: Verdict
    """PARTIAL: its submissions did, other programs of it did not."""
    reason: str
    evidence: tuple[EvidenceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Autonomy:
    """Whether the agent completed the task by itself."""

    n_interventions: int
    """Reported interventions during its phase."""
    is_completed: bool
    """A submission other than the base model could be scored, training that made it is shown, and the trial is not
    void."""
    is_autonomous: bool
    """Completed without any intervention."""
    evidence: tuple[EvidenceLine, ...] = ()
    is_shown: bool = True
    """False: something was scored, and no training is shown that made it."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How the agent recovered from failures."""

    n_failures: int
    """Crashes of its programs: what an agent can recover from."""
    n_recovered: int
    """Followed by a trained checkpoint that could be scored."""
    n_unknown: int
    """Failures for which it is not known whether they were recovered."""
    rate: float | None
    """Recovered failures among those for which it is known; None without any."""
    n_commands: int
    """Command lines in the agent's own record."""
    n_failed_commands: int
    n_followed_by_success: int
    """Failed commands after which another command succeeded."""
    evidence: tuple[EvidenceLine, ...] = ()
    """Commands that failed."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file in one revision."""

    path: str
    added: int
    removed: int
    """Lines; a moved line counts as neither."""


@dataclass(frozen=True, slots=True)
class RevisionChange:
    """The changes of one revision against the one before."""

    id: str
    seconds: float
    """Since the start of the agent's phase."""
    submission: int | None
    files: tuple[FileChange, ...]


class IntegrityState(StrEnum):
    """The outcome of the integrity audit for a trial."""

    CLEAN = "clean"
    """Nothing was found; every check could be made."""
    NOTED = "noted"
    """Something worth knowing, without a consequence."""
    FLAGGED = "flagged"
    """A person has to look before the result is used."""
    VOID = "void"
    """The base model's score replaces the agent's."""
    NOT_CLEARED = "not_cleared"
    """A check of the trial or of its final submission was cut short."""
    NOT_AUDITED = "not_audited"


@dataclass(frozen=True, slots=True)
class IntegrityVerdict:
    """The audit's findings, and their consequence for this trial."""

    state: IntegrityState
    reason: str
    """One sentence."""
    findings: tuple[IntegrityFinding, ...] = ()
    """The most severe effect first; a finding about a submission that is not the final one never voids."""
    checks: tuple[IntegrityCheck, ...] = ()
    """The checks that were made."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Everything the analysis says about one trial."""

    result: Result
    process: ProcessMetrics
    route: RouteFinding
    """Of the final submission; without one, of the best one."""
    submission_routes: tuple[SubmissionRoute, ...]
    stages: tuple[StageVerdict, ...]
    criteria: tuple[Criterion, ...]
    failures: tuple[Failure, ...]
    efficiency: Efficiency
    changes: tuple[RevisionChange, ...]
    mode: ModeFinding
    autonomy: Autonomy
    recovery: Recovery
    integrity: IntegrityVerdict
    warnings: tuple[str, ...]
    """What a reader must know before trusting the rest: no sandbox, damaged logs, unparsable code."""
