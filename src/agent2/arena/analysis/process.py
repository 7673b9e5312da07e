"""How an agent spent its budget, what went wrong, and how far it came without help.

Names and meaning follow the process metrics of the published benchmark (arXiv:2604.10547). "Valid" means that the
grader could score the submission; a copy of the base is valid and counted separately.

Failures: facts of the harness (how the phase ended, what the grader answered) come first. The agent's log is its own
writing and proves only that something was printed.

Autonomy counts a task as completed when a submission other than the base model could be scored and the trial is not
void. Interventions are those that were reported; unreported ones are unknown. A failure, or a command that was
reported to the agent as failed, counts as recovered when a submission that could be scored came after it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from agent2.arena.gateway.recording import ExchangeOutcome


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
    """What each revision changed against the one before it; the first against an empty workspace.

    A revision that changed only files that are not shown (data, logs) is left out, unless it was taken for a
    submission.
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
    spans = [(max(min(seen), started_at), min(max(seen), ended_at)) for seen in times.values() if len(seen) > 1]
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
    """Lines as multisets: linear in the text, whatever an agent writes."""
    old, new = Counter((before or "").splitlines()), Counter((after or "").splitlines())
    return FileChange(path, added=(new - old).total(), removed=(old - new).total())


MAX_EVIDENCE = 6
NOT_TO_RECOVER_FROM = frozenset(
    {
        FailureKind.NO_SUBMISSION,
        FailureKind.DEADLINE,
        FailureKind.INTERRUPTED,
        FailureKind.GATEWAY_LOST,
        FailureKind.LLM_BUDGET,
    }
)
"""Ends of a trial and faults of ours: nothing follows that the agent could do."""


def autonomy_of(evidence: TrialEvidence, integrity: IntegrityVerdict) -> Autonomy:
    """Whether the task was completed, and whether by the agent alone. Handing the base model back completes nothing."""
    during = [i for i in evidence.interventions if evidence.started_at <= i.t <= evidence.ended_at]
    is_void = integrity.state is IntegrityState.VOID
    is_completed = not is_void and any(not s.is_base_copy for s in scored_submissions(evidence))
    lines = tuple(
        EvidenceLine("events/interventions.jsonl", f"{i.t - evidence.started_at:.0f} s: {i.note}")
        for i in during[:MAX_EVIDENCE]
    )
    return Autonomy(len(during), is_completed, is_completed and not during, lines)


def recovery_of(evidence: TrialEvidence, failures: tuple[Failure, ...]) -> Recovery:
    """How many failures there were to recover from, and how many were."""
    judged = [failure for failure in failures if failure.kind not in NOT_TO_RECOVER_FROM]
    n_recovered = sum(failure.recovered is True for failure in judged)
    n_unknown = sum(failure.recovered is None for failure in judged)
    failed = [place for place, command in enumerate(evidence.commands) if command.failed]
    last_good = max((p for p, command in enumerate(evidence.commands) if command.failed is False), default=-1)
    went_on = sum(place < last_good for place in failed)
    known = len(judged) - n_unknown
    lines = tuple(
        EvidenceLine(f"command {place + 1}", evidence.commands[place].command[:200]) for place in failed[:MAX_EVIDENCE]
    )
    return Recovery(
        n_failures=len(judged),
        n_recovered=n_recovered,
        n_unknown=n_unknown,
        rate=n_recovered / known if known else None,
        n_commands=len(evidence.commands),
        n_failed_commands=len(failed),
        n_followed_by_success=went_on,
        evidence=lines,
    )


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
"""Kind of a refusal and what the grader's sentence says of it; the first match counts."""

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
KILLED_CODES = frozenset({-9, 137})


def failures_of(evidence: TrialEvidence) -> tuple[Failure, ...]:
    """All failures that the records show, the harness's own facts first."""
    return (
        *_ending(evidence),
        *_submissions(evidence),
        *_llm(evidence),
        *_log(evidence),
        *_divergence(evidence),
    )


def rejection_kind(submission: SubmissionRecord) -> str:
    """The kind of a refusal, from the grader's sentence without the path and note that the agent chose."""
    reason = submission.reason
    for own_words in (submission.model_path, submission.note):
        if own_words:
            reason = reason.replace(own_words, " ")
    lowered = reason.lower()
    return next((kind for kind, pattern in REJECTIONS if re.search(pattern, lowered)), "other")


def _ending(evidence: TrialEvidence) -> Iterator[Failure]:
    has_valid = bool(scored_submissions(evidence))
    code = f"exit code {evidence.agent_exit_code}"
    end = evidence.agent_end
    for pause in evidence.interruptions:
        left = evidence.deadline - evidence.started_at - pause.used_s
        line = EvidenceLine("events/trial.jsonl", f"started again with {left:.0f} s left")
        detail = f"after {pause.used_s:.0f} s of work ({pause.reason}); the agent was started again"
        yield Failure(FailureKind.INTERRUPTED, detail, None, True, (line,))
    tail = _log_lines([line for line in evidence.agent_log_tail.splitlines() if line.strip()])
    if end is AgentEnd.CRASHED:
        is_kill = evidence.agent_exit_code in KILLED_CODES
        detail = f"the agent ended with {code}" + (" (killed, as when memory runs out)" if is_kill else "")
        yield Failure(FailureKind.CRASH, detail, None, False, tail)  # it is the end: nothing came afterwards
    elif end is AgentEnd.LIMIT:
        yield Failure(FailureKind.LIMIT, f"the sandbox stopped the agent ({code})", None, False, tail)
    elif end is AgentEnd.DEADLINE:
        allowed = evidence.deadline - evidence.started_at
        line = EvidenceLine("events/trial.jsonl", f"stopped after {allowed:.0f} s, all of the wall clock")
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


def _submissions(evidence: TrialEvidence) -> Iterator[Failure]:
    last_valid = max((submission.number for submission in scored_submissions(evidence)), default=0)
    for submission in evidence.submissions:
        lines = (EvidenceLine(f"submission {submission.number}", submission.reason or "no reason recorded"),)
        recovered = last_valid > submission.number
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


def _llm(evidence: TrialEvidence) -> Iterator[Failure]:
    """Calls that the provider failed, and the end of the budget; an answer that came afterwards is a recovery."""
    calls = evidence.llm.calls if evidence.llm is not None else ()
    answered = [call.number for call in calls if call.outcome == ExchangeOutcome.OK]
    last_answer = max(answered, default=0)
    broken = [
        call
        for call in calls
        if call.outcome in {ExchangeOutcome.FAILED, ExchangeOutcome.PARTIAL, ExchangeOutcome.LOST}
    ]
    refused = [call for call in calls if call.outcome == ExchangeOutcome.REFUSED]
    for kind, found in ((FailureKind.LLM_FAILED, broken), (FailureKind.LLM_BUDGET, refused)):
        if found:
            lines = tuple(
                EvidenceLine(f"llm/exchanges.jsonl: call {call.number}", call.fault or f"status {call.status}")
                for call in found[-_PROOF_LINES:]
            )
            yield Failure(kind, f"{len(found)} of {len(calls)} calls", None, last_answer > found[-1].number, lines)


def _log(evidence: TrialEvidence) -> Iterator[Failure]:
    lines = evidence.agent_log_tail.splitlines()
    recovered = _recovered_from_talk(evidence)
    for kind, pattern in LOG_PATTERNS:
        hits = [line for line in lines if pattern.search(line)]
        if hits:
            detail = f"{len(hits)} line(s) in the agent's log"
            yield Failure(kind, detail, None, recovered, _log_lines(hits))
    blocks = list(_tracebacks(lines))
    if blocks:
        last = blocks[-1]
        detail = f"{len(blocks)} in the agent's log, the last one: {last[-1].strip()[:200]}"
        yield Failure(FailureKind.TRACEBACK, detail, None, recovered, _log_lines(last))


def _recovered_from_talk(evidence: TrialEvidence) -> bool | None:
    """Whether a scored submission followed what the log shows: its lines have no time, so the end decides."""
    if not scored_submissions(evidence):
        return False
    return True if evidence.agent_end is AgentEnd.EXITED else None


def _tracebacks(lines: list[str]) -> Iterator[list[str]]:
    """Each traceback down to the line that names the exception; a cut-off one down to where it breaks off."""
    for start, line in enumerate(lines):
        if line.strip() != _TRACEBACK:
            continue
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
