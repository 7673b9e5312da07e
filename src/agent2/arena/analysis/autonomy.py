"""How far the agent came by itself: interventions of people, and what it did after something failed.

Autonomy counts a task as completed when a submission other than the base model could be scored and the trial is not
void. Interventions are those that people reported; one that nobody reported is not known. Recovery is judged from the
failures of the analysis and from command lines that the agent was told had failed; a failure counts as recovered when a
submission that could be scored came after.
"""

from agent2.arena.analysis.process import scored_submissions
from agent2.arena.analysis.verdicts import (
    Autonomy,
    EvidenceLine,
    Failure,
    FailureKind,
    IntegrityState,
    IntegrityVerdict,
    Recovery,
)
from agent2.arena.evidence import TrialEvidence

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
