"""The five success criteria of an arena run, each with a verdict and its reason.

"Bug-free" means that no failure was observed; no record can prove more. "Generalises" is judged on private
items of the same task; other tasks and other seeds need a sweep, and the reason says so.
"""

from agent2.arena.analysis.code_signals import Method
from agent2.arena.analysis.design import read_design
from agent2.arena.analysis.route import training_programs, training_steps
from agent2.arena.analysis.stages import BREAKDOWNS, made_by_training, trained_submissions, was_recorded
from agent2.arena.analysis.verdicts import (
    Certainty,
    Criterion,
    Failure,
    Result,
    ResultKind,
    Route,
    RouteFinding,
    Verdict,
)
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
        Criterion("trains without crashes", *_trains(evidence, route, failures)),
        Criterion("positive delta performance", *_improves(result)),
        Criterion("generalizes to held-out tasks", *_generalises(result)),
    )


def _designed(evidence: TrialEvidence, route: RouteFinding) -> tuple[Verdict, str]:
    design, problems = read_design(evidence.design)
    was_seen = bool(training_programs(evidence)) and route.certainty in {Certainty.OBSERVED, Certainty.RAN}
    took_rl = route.route in RL_ROUTES and was_seen
    problems = problems or (design.vague_parts() if design is not None else ())
    if design is None or problems:
        verdict = Verdict.PARTIAL if took_rl else Verdict.FAIL
        return verdict, "; ".join(problems) + (f"; yet the route was {route.label}" if took_rl else "")
    named = design.named_algorithms()
    names = ", ".join(algorithm.name for algorithm in named) or "no algorithm known by name"
    plans_rl = any(algorithm.method in RL_METHODS for algorithm in named)
    if named and not plans_rl:
        verdict = Verdict.PARTIAL if took_rl else Verdict.FAIL
        return verdict, f"complete design of a supervised pipeline ({names}); route taken: {route.label}"
    if took_rl:
        return Verdict.PASS, f"complete design ({names}), and the route taken was {route.label}"
    if route.route in {Route.NO_SUBMISSION, Route.COPY} and not any(
        algorithm.method in RL_METHODS for algorithm, _ in training_steps(evidence)
    ):
        return Verdict.FAIL, f"the design names {names}, and nothing was trained that way: {route.label}"
    if was_seen and route.route not in {Route.NO_SUBMISSION, Route.COPY}:
        return Verdict.FAIL, f"the design names {names}, but the route taken was {route.label}"
    return Verdict.UNKNOWN, f"the design names {names}; nothing shows that what was handed in was made that way"


def _bug_free(evidence: TrialEvidence, failures: tuple[Failure, ...]) -> tuple[Verdict, str]:
    bugs = [failure.kind.value for failure in failures if failure.kind in BREAKDOWNS]
    refused = [s.number for s in evidence.submissions if s.state is SubmissionState.REJECTED]
    if bugs or refused:
        parts = [*dict.fromkeys(bugs), *([f"{len(refused)} submission(s) refused"] if refused else [])]
        return Verdict.FAIL, "; ".join(parts)
    if not was_recorded(evidence):
        return Verdict.UNKNOWN, "no failure was observed, and no code was recorded"
    if not training_programs(evidence):
        seen = bool(trained_submissions(evidence))
        verdict = Verdict.UNKNOWN if seen else Verdict.FAIL
        return verdict, "no failure was observed, and no code that trains was seen running"
    return Verdict.PASS, "no failure was observed, which is not a proof of none"


def _trains(evidence: TrialEvidence, route: RouteFinding, failures: tuple[Failure, ...]) -> tuple[Verdict, str]:
    crashes = [failure.kind.value for failure in failures if failure.kind in BREAKDOWNS]
    trained = trained_submissions(evidence)
    ran = training_programs(evidence)
    if not trained and not ran and not crashes:
        if evidence.agent_end in {AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE} or not was_recorded(evidence):
            return Verdict.UNKNOWN, "no training was recorded"
        told = "; its training log is of no program that was seen" if evidence.metrics else ""
        return Verdict.FAIL, f"nothing was trained{told}"
    if crashes:
        verdict = Verdict.PARTIAL if trained else Verdict.FAIL
        end = "; a trained checkpoint was scored all the same" if trained else ""
        return verdict, "; ".join(dict.fromkeys(crashes)) + end
    if not ran and not made_by_training(evidence, route):
        return Verdict.UNKNOWN, "a checkpoint that differs from the base was handed in; no training was seen"
    return Verdict.PASS, "training ended without a crash"


def _no_gain(result: Result) -> tuple[Verdict, str] | None:
    if result.kind in {ResultKind.NOT_MEASURED, ResultKind.NOT_CLEARED}:
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
