"""Process metrics, revision changes and efficiency: how an agent spent its budget.

Names and meaning follow the process metrics of the published benchmark (arXiv:2604.10547). "Valid" means that
the grader could score the submission; a copy of the base is valid and counted apart.

How far the agent came by itself: interventions of people, and what it did after something failed.

Autonomy counts a task as completed when a submission other than the base model could be scored and the trial is not
void. Interventions are those that people reported; one that nobody reported is not known. Recovery is judged from the
failures of the analysis and from command lines that the agent was told had failed; a failure counts as recovered when a
submission that could be scored came after.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
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
from agent2.arena.evidence import MetricPoint, Revision, SubmissionRecord, TrialEvidence


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
