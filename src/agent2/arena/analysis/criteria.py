"""The five success criteria of an arena run, each with a verdict and its reason.

"Bug-free" means that no failure was observed; no record can prove more. "Generalises" is judged on private
items of the same task; other tasks and other seeds need a sweep, and the reason says so.
"""

from agent2.arena.analysis.code_signals import Method
from agent2.arena.analysis.design import read_design
from agent2.arena.analysis.stages import BREAKDOWNS, trained_submissions, was_recorded
from agent2.arena.analysis.verdicts import Criterion, Failure, Result, ResultKind, Route, RouteFinding, Verdict
from agent2.arena.evidence import AgentEnd, SubmissionState, TrialEvidence
from agent2.stats.comparisons import Claim

RL_METHODS = frozenset({Method.RL, Method.PREFERENCE})
RL_ROUTES = frozenset({Route.RL, Route.SFT_THEN_RL, Route.PREFERENCE})


def success_criteria(
    evidence: TrialEvidence, result: Result, route: RouteFinding, failures: tuple[Failure, ...]
) -> tuple[Criterion, ...]:
    """The five criteria, in their order."""
    return (
        Criterion("valid RL approach designed", *_designed(evidence, route)),
        Criterion("bug-free code", *_bug_free(evidence, failures)),
        Criterion("trains without crashes", *_trains(evidence, failures)),
        Criterion("positive delta performance", *_improves(result)),
        Criterion("generalizes to held-out tasks", *_generalises(result)),
    )


def _designed(evidence: TrialEvidence, route: RouteFinding) -> tuple[Verdict, str]:
    design, problems = read_design(evidence.design)
    took_rl = route.route in RL_ROUTES
    if design is None:
        verdict = Verdict.PARTIAL if took_rl else Verdict.FAIL
        return verdict, "; ".join(problems) + (f"; yet the route was {route.label}" if took_rl else "")
    named = design.named_algorithms()
    if any(algorithm.method in RL_METHODS for algorithm in named):
        return Verdict.PASS, f"complete design, names {', '.join(algorithm.name for algorithm in named)}"
    if named:
        return Verdict.FAIL, f"complete design, but of a supervised pipeline ({', '.join(a.name for a in named)})"
    verdict = Verdict.PASS if took_rl else Verdict.UNKNOWN
    return verdict, f"complete design; its algorithm is not one known by name, route taken: {route.label}"


def _bug_free(evidence: TrialEvidence, failures: tuple[Failure, ...]) -> tuple[Verdict, str]:
    bugs = [failure.kind.value for failure in failures if failure.kind in BREAKDOWNS]
    refused = [s.number for s in evidence.submissions if s.state is SubmissionState.REJECTED]
    if bugs or refused:
        parts = [*dict.fromkeys(bugs), *([f"{len(refused)} submission(s) refused"] if refused else [])]
        return Verdict.FAIL, "; ".join(parts)
    if not evidence.revisions and not evidence.agent_files:
        return Verdict.UNKNOWN, "no failure was observed, and no code was recorded"
    return Verdict.PASS, "no failure was observed, which is not a proof of none"


def _trains(evidence: TrialEvidence, failures: tuple[Failure, ...]) -> tuple[Verdict, str]:
    crashes = [failure.kind.value for failure in failures if failure.kind in BREAKDOWNS]
    trained = trained_submissions(evidence)
    if not trained and not evidence.metrics and not crashes:
        if evidence.agent_end in {AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE} or not was_recorded(evidence):
            return Verdict.UNKNOWN, "no training was recorded"
        return Verdict.FAIL, "nothing was trained"
    if crashes:
        verdict = Verdict.PARTIAL if trained else Verdict.FAIL
        end = "; a trained checkpoint was scored all the same" if trained else ""
        return verdict, "; ".join(dict.fromkeys(crashes)) + end
    return Verdict.PASS, "training ended without a crash"


def _no_gain(result: Result) -> tuple[Verdict, str] | None:
    if result.kind is ResultKind.NOT_MEASURED:
        return Verdict.UNKNOWN, result.words
    return None if result.kind is ResultKind.MEASURED else (Verdict.FAIL, result.words)


def _improves(result: Result) -> tuple[Verdict, str]:
    if result.gain_points is None or result.kind is not ResultKind.MEASURED:
        return _no_gain(result) or (Verdict.UNKNOWN, result.words)
    gain = f"{result.gain_points:+.1f} points on the private items"
    told = f"{gain}: {result.claim} ({result.why})"
    if result.gain_points <= 0:
        return Verdict.FAIL, told
    return (Verdict.PASS if result.claim is Claim.BETTER else Verdict.PARTIAL), told


def _generalises(result: Result) -> tuple[Verdict, str]:
    if result.low_points is None or result.high_points is None:
        return _no_gain(result) or (Verdict.UNKNOWN, result.words)
    where = "on items that neither training nor selection saw (same task; other tasks were not asked)"
    interval = f"95% interval {result.low_points:+.1f} to {result.high_points:+.1f} points"
    told = f"{interval}, {result.claim} ({result.why}), {where}"
    if result.claim is Claim.BETTER:
        return Verdict.PASS, told
    return (Verdict.FAIL if result.high_points <= 0 else Verdict.PARTIAL), told
