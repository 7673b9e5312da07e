"""One trial's evidence in, its analysis out: deterministic, without a model, without the trial's folder."""

from collections.abc import Iterator

from agent2.arena.analysis.failures import failures_of
from agent2.arena.analysis.process import autonomy_of, process_metrics, recovery_of, revision_changes
from agent2.arena.analysis.programs import last_sources
from agent2.arena.analysis.result import efficiency_of, integrity_verdict, result_of, success_criteria
from agent2.arena.analysis.route import mode_finding, submission_routes, trial_route
from agent2.arena.analysis.stages import stage_verdicts
from agent2.arena.analysis.verdicts import Analysis, IntegrityState, IntegrityVerdict, ModeFinding, Verdict
from agent2.arena.evidence import LlmRecord, TrialEvidence

MAX_UNREAD_TOLD = 10


def analyse(evidence: TrialEvidence) -> Analysis:
    """All verdicts on one trial; the same evidence always gives the same analysis."""
    integrity = integrity_verdict(evidence)
    result = result_of(evidence, integrity)
    routes = submission_routes(evidence)
    route = trial_route(evidence, routes)
    failures = failures_of(evidence)
    mode = mode_finding(evidence, routes)
    return Analysis(
        result=result,
        process=process_metrics(evidence),
        route=route,
        submission_routes=routes,
        stages=stage_verdicts(evidence, route, failures),
        criteria=success_criteria(evidence, result, route, failures),
        failures=failures,
        efficiency=efficiency_of(evidence),
        changes=revision_changes(evidence.revisions, evidence.started_at),
        mode=mode,
        autonomy=autonomy_of(evidence, integrity),
        recovery=recovery_of(evidence, failures),
        integrity=integrity,
        warnings=tuple(_warnings(evidence, mode, integrity)),
    )


FOLLOWS = {
    IntegrityState.VOID: "the result is void",
    IntegrityState.NOT_CLEARED: "there is no cleared result",
    IntegrityState.FLAGGED: "a person should look",
}


def _warnings(evidence: TrialEvidence, mode: ModeFinding, integrity: IntegrityVerdict) -> Iterator[str]:
    if evidence.sandbox == "none":
        yield (
            "The agent ran without a sandbox: it could reach hidden items, the network and this machine. "
            "Its scores prove nothing to others."
        )
    elif any(row.get("what") == "network" and row.get("strength") == "none" for row in evidence.containment):
        yield (
            "The agent had an open network: models, data and answers may have come from outside. "
            "events/network.jsonl lists the hosts, not what they sent."
        )
    follows = FOLLOWS.get(integrity.state)
    if follows is not None:
        yield f"Integrity: {follows}: {integrity.reason}."
    if mode.verdict is not Verdict.PASS:
        yield f"Mode {mode.mode.value}: {mode.reason}."
    yield from _llm_warnings(evidence.llm)
    yield from evidence.warnings
    not_kept = list(dict.fromkeys(name for revision in evidence.revisions for name in revision.not_kept))
    if not_kept:
        more = f" and {len(not_kept) - MAX_UNREAD_TOLD} more" if len(not_kept) > MAX_UNREAD_TOLD else ""
        yield f"Code too large or packed was not kept: {', '.join(not_kept[:MAX_UNREAD_TOLD])}{more}."
    n_partial = sum(not revision.is_complete and not revision.not_kept for revision in evidence.revisions)
    if n_partial:
        yield f"{n_partial} of {len(evidence.revisions)} code revisions do not hold all files: there were too many."
    unread = [facts for facts in last_sources(evidence) if facts.problem is not None]
    for facts in unread[:MAX_UNREAD_TOLD]:
        yield f"{facts.path} {facts.problem}; the route is judged without it."
    if len(unread) > MAX_UNREAD_TOLD:
        yield f"{len(unread) - MAX_UNREAD_TOLD} more sources were not read; the route is judged without them."


def _llm_warnings(llm: LlmRecord | None) -> Iterator[str]:
    if llm is None:
        return
    totals = llm.totals
    if llm.replay_of is not None:
        differ = f"; {llm.n_differences} requests were not the recorded ones" if llm.n_differences else ""
        yield f"A replay of {llm.replay_of}: the LLM's answers are recorded ones{differ}."
    if totals.calls and totals.n_failed == totals.calls:
        yield f"None of {totals.calls} LLM calls was answered: the result says nothing about the agent."
    if totals.n_unknown_cost:
        yield f"The cost of {totals.n_unknown_cost} of {totals.calls} LLM calls is not known and in no sum."
    if totals.n_estimated:
        yield (
            f"The provider told no usable token counts for {totals.n_estimated} LLM calls: their tokens are estimated "
            "from the texts, and their cost is unknown."
        )
    if totals.n_uncounted:
        yield f"The provider told no token counts for {totals.n_uncounted} LLM calls: the true sum is larger."
    if totals.n_lost:
        yield f"{totals.n_lost} LLM calls were lost with the gateway; they count as what was reserved for them."
