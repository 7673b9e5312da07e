"""Whether the agent kept to the routes that its assignment allowed: a finding with evidence, never a silent change.

Judged from the routes of what was handed in, so it is as certain as those are (`route`). An SFT-only run may not
choose its samples by a reward; an RL-only run may learn from rewards and preferences. Whether preferences were drawn
online cannot be told from the outside and is not judged.
"""

from collections.abc import Iterator, Sequence

from agent2.arena.analysis.code_signals import ALGORITHM_WORDS, HAND_WRITTEN, Method
from agent2.arena.analysis.route import training_steps, unknown_programs
from agent2.arena.analysis.verdicts import Certainty, EvidenceLine, ModeFinding, Route, SubmissionRoute, Verdict
from agent2.arena.assignment import Mode
from agent2.arena.evidence import TrialEvidence

ALLOWED: dict[Mode, frozenset[Method]] = {
    Mode.FREE: frozenset(Method),
    Mode.SFT_ONLY: frozenset({Method.SFT}),
    Mode.RL_ONLY: frozenset({Method.RL, Method.PREFERENCE}),
}
MAX_EVIDENCE = 8
_METHODS = {algorithm.name: algorithm.method for algorithm in (*ALGORITHM_WORDS.values(), HAND_WRITTEN)}
_METHODS |= {method.value.upper(): method for method in Method}


def mode_finding(evidence: TrialEvidence, routes: Sequence[SubmissionRoute]) -> ModeFinding:
    """Whether each submission was made by a route that the mode allows."""
    mode, allowed = evidence.mode, ALLOWED[evidence.mode]
    if mode is Mode.FREE:
        return ModeFinding(mode, Verdict.PASS, "any route was allowed")
    broken = [route for route in routes if _forbidden(route, allowed)]
    proven = [route for route in broken if route.finding.certainty in {Certainty.OBSERVED, Certainty.RAN}]
    if proven:
        numbers = ", ".join(str(route.number) for route in proven)
        labels = ", ".join(dict.fromkeys(route.finding.label for route in proven))
        lines = tuple(line for route in proven for line in route.finding.evidence)[:MAX_EVIDENCE]
        return ModeFinding(mode, Verdict.FAIL, f"the rule was broken: submission {numbers} was made by {labels}", lines)
    unknown = unknown_programs(evidence)
    if unknown and routes:
        lines = tuple(program.line for program in sorted(unknown, key=lambda program: -program.cpu_s))[:MAX_EVIDENCE]
        n = len(unknown)
        reason = (
            "it cannot be told whether the rule was kept: what "
            f"{'a program' if n == 1 else f'{n} programs'} did that ran long enough to train was not recorded"
        )
        return ModeFinding(mode, Verdict.UNKNOWN, reason, lines)
    missing = list(dict.fromkeys(name for revision in evidence.revisions for name in revision.not_kept))
    if routes and (missing or any(not revision.is_complete for revision in evidence.revisions)):
        lines = tuple(EvidenceLine("revisions.git", f"not kept: {name}") for name in missing[:MAX_EVIDENCE])
        reason = "it cannot be told whether the rule was kept: not all of the agent's code was kept"
        return ModeFinding(mode, Verdict.UNKNOWN, reason, lines)
    unseen = [route.number for route in routes if route.finding.route is Route.UNKNOWN]
    if broken or unseen:
        numbers = ", ".join(str(number) for number in sorted({*unseen, *(route.number for route in broken)}))
        lines = tuple(line for route in broken for line in route.finding.evidence)[:MAX_EVIDENCE]
        reason = f"it cannot be told whether the rule was kept: nothing shows how submission {numbers} was made"
        return ModeFinding(mode, Verdict.UNKNOWN, reason, lines)
    tried = tuple(dict.fromkeys(_other_programs(evidence, allowed)))[:MAX_EVIDENCE]
    if tried:
        reason = "what was handed in kept to the rule, but another program that the rule forbids was run"
        return ModeFinding(mode, Verdict.PARTIAL, reason, tried)
    if not routes:
        return ModeFinding(mode, Verdict.PASS, "nothing was handed in, and nothing forbidden was seen to run")
    return ModeFinding(mode, Verdict.PASS, "every submission was made by a route that the rule allows")


def _forbidden(route: SubmissionRoute, allowed: frozenset[Method]) -> bool:
    return any(name in _METHODS and _METHODS[name] not in allowed for name in route.finding.algorithms)


def _other_programs(evidence: TrialEvidence, allowed: frozenset[Method]) -> Iterator[EvidenceLine]:
    return (line for algorithm, line in training_steps(evidence) if algorithm.method not in allowed)
