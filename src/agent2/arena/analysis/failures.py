"""What went wrong in a trial, each with the lines that prove it.

Facts of the harness (how the phase ended, what the grader answered) come first; what stands in the agent's
log is the agent's own writing and proves only that it was printed.
"""

import math
import re
from collections.abc import Iterator

from agent2.arena.analysis.process import scored_submissions
from agent2.arena.analysis.verdicts import EvidenceLine, Failure, FailureKind
from agent2.arena.evidence import AgentEnd, SubmissionRecord, SubmissionState, TrialEvidence
from agent2.arena.gateway.recording import ExchangeOutcome

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
    tail = _tail_lines(evidence.agent_log_tail)
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
    """Whether a scored submission followed what the log shows: its lines have no time, so the end must tell."""
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


def _tail_lines(log: str) -> tuple[EvidenceLine, ...]:
    return _log_lines([line for line in log.splitlines() if line.strip()])


def _log_lines(lines: list[str]) -> tuple[EvidenceLine, ...]:
    return tuple(EvidenceLine("agent.log", line) for line in lines[-_PROOF_LINES:])
