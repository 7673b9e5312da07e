"""What reproductions say of a trial: whether its recorded program makes its checkpoint.

Only results that this installation recorded (by their mark) of the present final checkpoint count; others are shown.
A route that is consistent by code, processor time and weights, and whose program made such a checkpoint again, is
observed: nothing but the program was there the second time, and its files are too small to hold the checkpoint. A route
whose program, run again with the recorded seed, makes nothing better than the base model is a claim.

Does NOT prove the method: what the code that was reached computes is still read from its text.
"""

from collections.abc import Sequence
from dataclasses import replace

from agent2.arena.analysis.verdicts import Certainty, EvidenceLine, RouteFinding
from agent2.arena.evidence import Reproduction, ReproductionVerdict, TrialEvidence

_BY_WEIGHT = (ReproductionVerdict.NOT_REPRODUCED, ReproductionVerdict.UNDECIDED, ReproductionVerdict.NOT_POSSIBLE)


def counted_reproductions(evidence: TrialEvidence) -> tuple[Reproduction, ...]:
    """The reproductions of the final checkpoint that this installation recorded."""
    final = next((s for s in evidence.submissions if s.number == evidence.final_submission), None)
    digest = final.weights_digest if final is not None else None
    return tuple(r for r in evidence.reproductions if r.is_own and r.weights_digest == (digest or ""))


def reproduction_verdict(evidence: TrialEvidence) -> ReproductionVerdict | None:
    """All counted reproductions together; None without one.

    A program that failed with the recorded seed is not reproduced by trying until it succeeds.
    """
    counted = counted_reproductions(evidence)
    verdicts = {r.verdict for r in counted}
    if ReproductionVerdict.REPRODUCED in verdicts and not _failed_with_its_seed(counted):
        return ReproductionVerdict.REPRODUCED
    return next((verdict for verdict in _BY_WEIGHT if verdict in verdicts), None)


def with_reproductions(finding: RouteFinding, evidence: TrialEvidence) -> RouteFinding:
    """The route of the final submission, weighed with its reproductions."""
    counted = counted_reproductions(evidence)
    if finding.certainty is Certainty.NONE or not counted:
        return finding
    if reproduction_verdict(evidence) is ReproductionVerdict.REPRODUCED:
        successes = [r for r in counted if r.verdict is ReproductionVerdict.REPRODUCED]
        success = min(successes, key=lambda r: bool(r.could_bring))
        reason = f"{finding.reason}; the recorded program, run again, handed in such a checkpoint"
        if success.could_bring:  # then nothing tells making it from bringing it along
            reason = f"{reason}, which it may have brought along: {success.could_bring}"
        is_observed = finding.certainty is Certainty.CONSISTENT and not success.could_bring
        certainty = Certainty.OBSERVED if is_observed else finding.certainty
        return replace(finding, certainty=certainty, reason=reason, evidence=(_line(success), *finding.evidence))
    failed = [r for r in _failed_with_its_seed(counted) if not r.is_better]
    if failed and not any(r.verdict is ReproductionVerdict.REPRODUCED for r in counted):
        reason = f"run again with its seed, the recorded program does not make such a checkpoint: {failed[-1].reason}"
        return replace(
            finding, certainty=Certainty.CLAIMED, reason=reason, evidence=(_line(failed[-1]), *finding.evidence)
        )
    return finding


def _failed_with_its_seed(counted: Sequence[Reproduction]) -> list[Reproduction]:
    return [r for r in counted if r.is_same_seed and r.verdict is ReproductionVerdict.NOT_REPRODUCED]


def _line(reproduction: Reproduction) -> EvidenceLine:
    text = f"{reproduction.verdict.value} (seed {reproduction.seed}): {reproduction.reason}"
    return EvidenceLine("events/reproductions.jsonl", text)
