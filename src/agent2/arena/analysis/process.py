"""Process metrics of a trial: use of the budget, failures, autonomy and recovery.

Names and meaning of the metrics follow the published benchmark (arXiv:2604.10547). "Valid" means that the grader could
score the submission; a copy of the base is valid and counted separately. A task counts as completed when a submission
other than the base model could be scored and the trial is not void; a failure counts as recovered when a submission
that could be scored came after it.

Failures recorded by the harness (how the phase ended, the grader's answers) come first. Does NOT trust the agent's log:
it proves only that something was printed. Does NOT know interventions that were not reported.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from agent2.arena.analysis.verdicts import (
    Autonomy,
    EvidenceLine,
    Failure,
    FailureKind,
    FileChange,
    IntegrityState,
    IntegrityVerdict,
    ProcessMetrics,
    Recovery,
    RevisionChange,
    TrajectoryPoint,
)
from agent2.arena.evidence import AgentEnd, MetricPoint, Revision, SubmissionRecord, SubmissionState, TrialEvidence
from agent2.llm.gateway.recording import ExchangeOutcome
from agent2.texts import counted

MAX_EVIDENCE = 6
BREAKDOWNS = frozenset(
    {
        FailureKind.CRASH,
        FailureKind.TRACEBACK,
        FailureKind.CUDA_OOM,
        FailureKind.CPU_OOM,
        FailureKind.DISK_FULL,
        FailureKind.LIMIT,
        FailureKind.NOT_FINITE,
    }
)
"""Failures of the agent's programs: what it can recover from. Not those of its submissions, nor ends of its time."""
_FRAME = re.compile(r'File "([^"]+\.py)", line \d+')

REJECTIONS: tuple[tuple[str, str], ...] = (
    ("deadline", r"deadline|time is (up|over)|wall clock"),
    ("submission budget used up", r"submissions? (left|allowed|budget)|budget"),
    ("outside the workspace", r"outside|leads out|'\.\.'|symbolic link|symlink"),
    ("changed while being copied", r"chang(ed|ing)|swapped|meanwhile"),
    ("truncated weights", r"truncat|ends? (too )?early|header|shorter"),
    ("too large", r"too large|too big|bytes.*at most|sparse"),
    ("adapter not mergeable", r"adapter|lora"),
    ("pickle weights", r"pickle|pytorch_model|\.bin|\.pt\b"),
    ("custom code", r"auto_map|custom code|remote code"),
    ("weights are not finite", r"not finite|nan|inf(inite)?\b"),
    ("tokenizer missing", r"tokenizer"),
    ("other architecture", r"architecture|shape|tensor"),
    ("incomplete model", r"config\.json|no weights|safetensors|empty"),
    ("path missing", r"no such|does not exist|not found|missing|no folder"),
)
"""Kind of a rejection and a pattern of the grader's sentence; the first match counts, so specific ones come first."""

LOG_PATTERNS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    (
        FailureKind.CUDA_OOM,
        re.compile(r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED"),
    ),
    (
        FailureKind.CPU_OOM,
        re.compile(r"^(\w+\.)*MemoryError\b|DefaultCPUAllocator: can't allocate|Cannot allocate memory|oom-kill"),
    ),
    (FailureKind.DISK_FULL, re.compile(r"No space left on device|Disk quota exceeded")),
    (FailureKind.GRADER_UNREACHABLE, re.compile(r"Connection refused|ConnectError|Max retries exceeded")),
)
_TRACEBACK = "Traceback (most recent call last):"
_PROOF_LINES = 6
SAMPLING_LAG_S = 3.0
"""A program that was seen this shortly before the agent's end ended with it; processes are sampled once a second."""
KILLED_CODES = frozenset({-9, 137})
"""Exit codes of a program that got SIGKILL, as Python and as a shell reports it."""


def process_metrics(evidence: TrialEvidence) -> ProcessMetrics:
    """The process metrics of one trial; what is not defined is None."""
    received = sorted(evidence.submissions, key=lambda submission: submission.number)
    scored = scored_submissions(evidence)
    start = evidence.started_at
    allowed = evidence.deadline - start
    improved = [s for s in scored if _score(s) > evidence.base_public.value]
    best = best_submission(evidence)
    steps = list(pairwise(scored))
    return ProcessMetrics(
        n_submissions=len(received),
        n_scored=len(scored),
        valid_submission_rate=len(scored) / len(received) if received else None,
        first_valid_idx=received.index(scored[0]) + 1 if scored else None,
        first_valid_delay=scored[0].received_at - start if scored else None,
        score_trajectory=_trajectory(scored, start),
        time_to_first_improvement=improved[0].received_at - start if improved else None,
        time_to_best=best.received_at - start if best else None,
        monotonic_ratio=sum(_score(b) >= _score(a) for a, b in steps) / len(steps) if steps else None,
        copy_model_count=sum(submission.is_base_copy for submission in received),
        time_used_ratio=(evidence.ended_at - start) / allowed if allowed > 0 else None,
        last_submit_gap=evidence.ended_at - received[-1].received_at if received else None,
    )


def scored_submissions(evidence: TrialEvidence) -> list[SubmissionRecord]:
    """Submissions with a public score, in the order of their numbers."""
    scored = [submission for submission in evidence.submissions if submission.score is not None]
    return sorted(scored, key=lambda submission: submission.number)


def best_submission(evidence: TrialEvidence) -> SubmissionRecord | None:
    """The submission with the best public score (ties: the earlier one), whether or not it beats the base."""
    return max(scored_submissions(evidence), key=lambda s: (_score(s), -s.number), default=None)


def revision_changes(revisions: Sequence[Revision], started_at: float) -> tuple[RevisionChange, ...]:
    """The changes of each revision against the one before it; of the first against an empty workspace.

    A revision that changed only data and logs, which are not read, is left out, unless it was taken for a submission.
    """
    changes = []
    before: dict[str, str] = {}
    for revision in sorted(revisions, key=lambda revision: revision.t):
        after = dict(revision.files)
        files = [
            _file_change(path, before.get(path), after.get(path))
            for path in sorted(before.keys() | after.keys())
            if before.get(path) != after.get(path)
        ]
        if files or revision.submission is not None:
            changes.append(RevisionChange(revision.id, revision.t - started_at, revision.submission, tuple(files)))
        before = after
    return tuple(changes)


def log_seconds(metrics: Iterable[MetricPoint], started_at: float, ended_at: float) -> float | None:
    """Time within the agent's phase that training logs cover, from first to last line of each.

    Logs that overlap (one run written to two files, two runs at once) count once. None without two lines in any.
    """
    times: dict[str, list[float]] = {}
    for point in metrics:
        times.setdefault(point.file, []).append(point.t)
    spans = [
        (max(min(moments), started_at), min(max(moments), ended_at)) for moments in times.values() if len(moments) > 1
    ]
    return covered_seconds((start, max(start, end)) for start, end in spans)


def covered_seconds(spans: Iterable[tuple[float, float]]) -> float | None:
    """Length of the union of time spans (start, end), so that parallel work is not counted twice."""
    total, reached, any_span = 0.0, float("-inf"), False
    for start, end in sorted(spans):
        any_span = True
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total if any_span else None


def _trajectory(scored: Sequence[SubmissionRecord], start: float) -> tuple[TrajectoryPoint, ...]:
    points, best = [], float("-inf")
    for submission in scored:
        best = max(best, _score(submission))
        points.append(TrajectoryPoint(submission.number, submission.received_at - start, _score(submission), best))
    return tuple(points)


def _score(submission: SubmissionRecord) -> float:
    if submission.score is None:
        raise ValueError(f"submission {submission.number} has no score; pass scored submissions only")
    return submission.score.value


def _file_change(path: str, before: str | None, after: str | None) -> FileChange:
    """Lines compared as multisets: a real diff can take quadratic time on a text made for it."""
    old, new = Counter((before or "").splitlines()), Counter((after or "").splitlines())
    return FileChange(path, added=(new - old).total(), removed=(old - new).total())


def autonomy_of(evidence: TrialEvidence, integrity: IntegrityVerdict, *, is_shown: bool) -> Autonomy:
    """Whether the task was completed, and by the agent alone. Submitting the base model does not complete it.

    is_shown: more than claims show that what was submitted was trained.
    """
    during = [i for i in evidence.interventions if evidence.started_at <= i.t <= evidence.ended_at]
    is_void = integrity.state is IntegrityState.VOID
    is_scored = not is_void and any(not s.is_base_copy for s in scored_submissions(evidence))
    is_completed = is_scored and is_shown
    lines = tuple(
        EvidenceLine("events/interventions.jsonl", f"{i.t - evidence.started_at:.0f} s: {i.note}")
        for i in during[:MAX_EVIDENCE]
    )
    return Autonomy(len(during), is_completed, is_completed and not during, lines, is_shown or not is_scored)


def recovery_of(evidence: TrialEvidence, failures: tuple[Failure, ...]) -> Recovery:
    """The crashes of the agent's programs, and those that were fixed: a trained checkpoint was scored afterwards."""
    judged = [failure for failure in failures if failure.kind in BREAKDOWNS]
    n_recovered = sum(failure.recovered is True for failure in judged)
    n_unknown = sum(failure.recovered is None for failure in judged)
    n_known = len(judged) - n_unknown
    failed = [index for index, command in enumerate(evidence.commands) if command.failed]
    last_success = max((index for index, c in enumerate(evidence.commands) if c.failed is False), default=-1)
    lines = tuple(
        EvidenceLine(f"command {index + 1}", evidence.commands[index].command[:200]) for index in failed[:MAX_EVIDENCE]
    )
    return Recovery(
        n_failures=len(judged),
        n_recovered=n_recovered,
        n_unknown=n_unknown,
        rate=n_recovered / n_known if n_known else None,
        n_commands=len(evidence.commands),
        n_failed_commands=len(failed),
        n_followed_by_success=sum(index < last_success for index in failed),
        evidence=lines,
    )


def failures_of(evidence: TrialEvidence, ends: Mapping[str, Sequence[float]] | None = None) -> tuple[Failure, ...]:
    """All failures that the records show, those that the harness recorded first.

    ends: path of a script -> when each of its runs was last seen (`programs.ends_of_programs`): tells which crashes a
    scored checkpoint followed.
    """
    return (
        *_phase_failures(evidence),
        *_submission_failures(evidence),
        *_llm_failures(evidence),
        *_log_failures(evidence, ends or {}),
        *_divergence(evidence),
    )


def rejection_kind(submission: SubmissionRecord) -> str:
    """The kind of a rejection, from the grader's sentence without the path and note that the agent chose."""
    reason = submission.reason
    for agent_text in (submission.model_path, submission.note):
        if agent_text:  # else an agent could choose the kind by what it calls its files
            reason = reason.replace(agent_text, " ")
    lowered = reason.lower()
    return next((kind for kind, pattern in REJECTIONS if re.search(pattern, lowered)), "other")


def _phase_failures(evidence: TrialEvidence) -> Iterator[Failure]:
    """How the agent's phase was interrupted and how it ended."""
    has_valid = bool(scored_submissions(evidence))
    code = f"exit code {evidence.agent_exit_code}"
    end = evidence.agent_end
    for pause in evidence.interruptions:
        left_s = evidence.deadline - evidence.started_at - pause.used_s
        line = EvidenceLine("events/trial.jsonl", f"started again with {left_s:.0f} s left")
        detail = f"after {pause.used_s:.0f} s of work ({pause.reason}); the agent was started again"
        yield Failure(FailureKind.INTERRUPTED, detail, None, True, (line,))
    tail = _log_lines([line for line in evidence.agent_log_tail.splitlines() if line.strip()])
    if end is AgentEnd.CRASHED:
        is_kill = evidence.agent_exit_code in KILLED_CODES
        detail = f"the agent ended with {code}" + (" (killed, as when memory runs out)" if is_kill else "")
        yield Failure(FailureKind.CRASH, detail, None, False, tail)  # not recovered: the phase ended with it
    elif end is AgentEnd.LIMIT:
        yield Failure(FailureKind.LIMIT, f"the sandbox stopped the agent ({code})", None, False, tail)
    elif end is AgentEnd.DEADLINE:  # not a failure of the pipeline if something was scored before
        allowed = evidence.deadline - evidence.started_at
        stated = evidence.agent_end_reason or f"stopped after {allowed:.0f} s, all of the wall clock"
        line = EvidenceLine("events/trial.jsonl", stated)
        yield Failure(
            FailureKind.DEADLINE, "the agent was still at work when its time was up", None, has_valid, (line,)
        )
    elif end is AgentEnd.INTERRUPTED:
        line = EvidenceLine("events/trial.jsonl", "the agent's phase was closed on resume")
        yield Failure(FailureKind.INTERRUPTED, "the harness stopped; not the agent's doing", None, has_valid, (line,))
    elif end is AgentEnd.INFRASTRUCTURE:
        line = EvidenceLine("events/trial.jsonl", evidence.agent_end_reason or "the agent's phase was ended by us")
        detail = "infrastructure fault; not the agent's doing"
        yield Failure(FailureKind.GATEWAY_LOST, detail, None, has_valid, (line,))
    if not evidence.submissions:
        line = EvidenceLine("grader.db", "0 submissions")
        yield Failure(FailureKind.NO_SUBMISSION, "the grader received nothing", None, False, (line,))


def _submission_failures(evidence: TrialEvidence) -> Iterator[Failure]:
    last_valid = max((submission.number for submission in scored_submissions(evidence)), default=0)
    for submission in evidence.submissions:
        lines = (EvidenceLine(f"submission {submission.number}", submission.reason or "no reason recorded"),)
        recovered = last_valid > submission.number  # numbers are in the order of receipt
        if submission.state is SubmissionState.REJECTED:
            kind, detail = FailureKind.SUBMISSION_REJECTED, rejection_kind(submission)
        elif submission.state is SubmissionState.FAILED:
            kind = FailureKind.EVALUATION_FAULT
            detail = f"fault: {submission.fault.value if submission.fault else 'not recorded'}"
        elif submission.state is SubmissionState.ACCEPTED:
            kind, detail = FailureKind.EVALUATION_FAULT, "accepted, and never evaluated"
        else:
            continue
        yield Failure(kind, detail, submission.number, recovered, lines)


def _llm_failures(evidence: TrialEvidence) -> Iterator[Failure]:
    """Calls that failed at the provider, and the end of the budget; a later answer is a recovery."""
    calls = evidence.llm.calls if evidence.llm is not None else ()
    answered = [call.number for call in calls if call.outcome == ExchangeOutcome.OK]
    last_answer = max(answered, default=0)
    broken = [
        call
        for call in calls
        if call.outcome in {ExchangeOutcome.FAILED, ExchangeOutcome.PARTIAL, ExchangeOutcome.LOST}
    ]
    refused = [call for call in calls if call.outcome == ExchangeOutcome.REFUSED]
    for kind, failed in ((FailureKind.LLM_FAILED, broken), (FailureKind.LLM_BUDGET, refused)):
        if failed:
            lines = tuple(
                EvidenceLine(f"llm/exchanges.jsonl: call {call.number}", call.fault or f"status {call.status}")
                for call in failed[-_PROOF_LINES:]
            )
            yield Failure(kind, f"{len(failed)} of {len(calls)} calls", None, last_answer > failed[-1].number, lines)


def _log_failures(evidence: TrialEvidence, ends: Mapping[str, Sequence[float]]) -> Iterator[Failure]:
    lines = evidence.agent_log_tail.splitlines()
    recovered = _recovered_from_log(evidence)
    for kind, pattern in LOG_PATTERNS:
        hits = [line for line in lines if pattern.search(line)]
        if hits:
            detail = f"{counted(len(hits), 'line')} in the agent's log"
            yield Failure(kind, detail, None, recovered, _log_lines(hits))
    blocks = list(_tracebacks(lines))
    if blocks:
        last = blocks[-1]
        detail = f"{len(blocks)} in the agent's log, the last one: {last[-1].strip()[:200]}"
        recovered = _recovered_from_crashes(evidence, blocks, ends)
        yield Failure(FailureKind.TRACEBACK, detail, None, recovered, _log_lines(last))


def _recovered_from_crashes(
    evidence: TrialEvidence, blocks: Sequence[list[str]], ends: Mapping[str, Sequence[float]]
) -> bool | None:
    """Whether a trained checkpoint was scored after each program ended that a traceback is of.

    None where that is not known for one of them.
    """
    n_seen: Counter[str] = Counter()
    answers: list[bool | None] = []
    for block in blocks:
        frames = [path for line in block for path in _FRAME.findall(line)]
        # the outermost frame is of the program itself; the n-th traceback of a program is of its n-th run
        name = next((name for name in ends if frames and frames[0].endswith(f"/{name.lstrip('/')}")), None)
        crashed_at = ends[name][min(n_seen[name], len(ends[name]) - 1)] if name is not None else None
        if name is not None:
            n_seen[name] += 1
        # the agent's own program, which went on after it printed a traceback
        if crashed_at is None or crashed_at >= evidence.ended_at - SAMPLING_LAG_S:
            answers.append(_recovered_from_log(evidence))
            continue
        answers.append(any(s.received_at > crashed_at for s in scored_submissions(evidence) if not s.is_base_copy))
    if any(answer is False for answer in answers):
        return False
    return None if None in answers else True


def _recovered_from_log(evidence: TrialEvidence) -> bool | None:
    """Whether a scored submission followed a failure in the log: lines have no time, so how the phase ended decides."""
    if all(submission.is_base_copy for submission in scored_submissions(evidence)):
        return False
    return True if evidence.agent_end is AgentEnd.EXITED else None


def _tracebacks(lines: list[str]) -> Iterator[list[str]]:
    """Each traceback down to the line that names the exception; a truncated one down to its last line."""
    for start, line in enumerate(lines):
        if line.strip() != _TRACEBACK:
            continue
        # frames are indented deeper than the header; the first line that is not names the exception
        indent = len(line) - len(line.lstrip())
        block = [line]
        for following in lines[start + 1 :]:
            block.append(following)
            if following.strip() and len(following) - len(following.lstrip()) <= indent:
                break
        yield block


def _divergence(evidence: TrialEvidence) -> Iterator[Failure]:
    for point in evidence.metrics:
        broken = sorted(key for key, value in point.values.items() if not math.isfinite(value))
        if broken:
            line = EvidenceLine(point.file, f"step {point.step}: {broken[0]} = {point.values[broken[0]]}")
            yield Failure(FailureKind.NOT_FINITE, f"first at step {point.step}", None, None, (line,))
            return


def _log_lines(lines: list[str]) -> tuple[EvidenceLine, ...]:
    return tuple(EvidenceLine("agent.log", line) for line in lines[-_PROOF_LINES:])
