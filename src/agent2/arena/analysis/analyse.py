"""One trial's evidence in, its analysis out: deterministic, without a model, without the trial's folder."""

from collections.abc import Iterator

from agent2.arena.analysis.criteria import success_criteria
from agent2.arena.analysis.failures import failures_of
from agent2.arena.analysis.process import process_metrics, revision_changes
from agent2.arena.analysis.programs import written_sources
from agent2.arena.analysis.result import efficiency_of, result_of
from agent2.arena.analysis.route import submission_routes, trial_route
from agent2.arena.analysis.stages import stage_verdicts
from agent2.arena.analysis.verdicts import Analysis
from agent2.arena.evidence import TrialEvidence


def analyse(evidence: TrialEvidence) -> Analysis:
    """All verdicts on one trial; the same evidence always gives the same analysis."""
    result = result_of(evidence)
    routes = submission_routes(evidence)
    route = trial_route(evidence, routes)
    failures = failures_of(evidence)
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
        warnings=tuple(_warnings(evidence)),
    )


def _warnings(evidence: TrialEvidence) -> Iterator[str]:
    if evidence.sandbox == "none":
        yield (
            "The agent ran without a sandbox: it could reach hidden items, the network and this machine. "
            "Its scores prove nothing to others."
        )
    yield from evidence.warnings
    for revision in evidence.revisions[-1:]:
        for facts in written_sources(revision.files):
            if facts.problem is not None:
                yield f"{facts.path} {facts.problem}; the route is judged without it."
