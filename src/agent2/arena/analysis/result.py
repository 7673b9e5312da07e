"""The outcome of a trial: what was gained, how surely, and in words when there is no number.

A trial without a submission has no gain; it is never a zero. A copy of the base and a base that nothing beat
have a gain of 0 by identity and by rule, and say so.
"""

from agent2.arena.analysis.process import best_submission, covered_seconds, log_seconds
from agent2.arena.analysis.route import training_programs
from agent2.arena.analysis.verdicts import Efficiency, IntegrityState, IntegrityVerdict, Result, ResultKind
from agent2.arena.evidence import SubmissionRecord, TrialEvidence
from agent2.stats.comparisons import judge


def result_of(evidence: TrialEvidence, integrity: IntegrityVerdict | None = None) -> Result:
    """The outcome, with gains in percentage points.

    integrity: a void trial counts as the base model's score, one that is not cleared has no gain.
    """
    kind = measured = _kind(evidence)
    if integrity is not None and integrity.state is IntegrityState.VOID and measured in VOIDABLE:
        kind = ResultKind.VOID
    elif integrity is not None and integrity.state is IntegrityState.NOT_CLEARED and measured is ResultKind.MEASURED:
        kind = ResultKind.NOT_CLEARED
    gain = evidence.gain if kind is ResultKind.MEASURED else None
    is_zero = kind in {ResultKind.COPY, ResultKind.BASE_KEPT, ResultKind.VOID}
    delta = gain.delta if gain is not None else (0.0 if is_zero else None)
    judged = judge(gain, evidence.noise.half_width) if gain is not None else None
    has_band = gain is not None and evidence.noise.half_width > 0
    best = best_submission(evidence)
    public = best.score.value - evidence.base_public.value if best is not None and best.score is not None else None
    return Result(
        kind=kind,
        words=_words(kind, evidence, integrity),
        gain_points=_points(delta),
        low_points=_points(gain.low if gain is not None else None),
        high_points=_points(gain.high if gain is not None else None),
        p_value=gain.p_value if gain is not None else None,
        relative_percent=_relative_percent(delta, evidence),
        claim=judged.claim if judged is not None else None,
        why=judged.why if judged is not None else "",
        within_noise=abs(gain.delta) <= evidence.noise.half_width if gain is not None and has_band else None,
        noise_points=100 * evidence.noise.half_width,
        noise_over=evidence.noise.over,
        best_submission=best.number if best is not None else None,
        public_gain_points=_points(public),
        selection_gap_points=_selection_gap(evidence),
        voided_gain_points=_points(evidence.gain.delta) if kind in UNCOUNTED and evidence.gain else None,
    )


VOIDABLE = frozenset({ResultKind.MEASURED, ResultKind.NOT_MEASURED, ResultKind.BASE_KEPT, ResultKind.COPY})
"""Results that a void trial can have had; nothing handed in stays nothing."""
UNCOUNTED = frozenset({ResultKind.VOID, ResultKind.NOT_CLEARED})
"""Results under which a gain that was measured does not count."""


def efficiency_of(evidence: TrialEvidence) -> Efficiency:
    """What the agent's training cost; None where nothing was recorded."""
    processes = evidence.processes
    return Efficiency(
        training_program_s=covered_seconds((p.first_seen, p.last_seen) for p in training_programs(evidence)),
        training_log_s=log_seconds(evidence.metrics, evidence.started_at, evidence.ended_at),
        max_rss_bytes=max((sample.max_rss_bytes for sample in processes), default=None),
        cpu_s=sum(sample.cpu_s for sample in processes) if processes else None,
        gpu_hours=evidence.gpu_hours,
    )


def final_record(evidence: TrialEvidence) -> SubmissionRecord | None:
    """The submission that was scored on the private items; None when that is the base itself."""
    return next((s for s in evidence.submissions if s.number == evidence.final_submission), None)


def _kind(evidence: TrialEvidence) -> ResultKind:
    if not evidence.submissions:
        return ResultKind.NO_SUBMISSION
    best = best_submission(evidence)
    if best is None:
        return ResultKind.NO_VALID_SUBMISSION
    final = final_record(evidence)
    if (final or best).is_base_copy:
        return ResultKind.COPY
    if final is None:
        return ResultKind.BASE_KEPT
    return ResultKind.MEASURED if evidence.gain is not None else ResultKind.NOT_MEASURED


def _words(kind: ResultKind, evidence: TrialEvidence, integrity: IntegrityVerdict | None) -> str:
    n_submissions = len(evidence.submissions)
    if kind is ResultKind.VOID and integrity is not None:
        return f"void, the base model's score stands, gain 0 by rule: {integrity.reason}"
    if kind is ResultKind.NOT_CLEARED and integrity is not None:
        return (
            f"no cleared result: {integrity.reason}; agent2 resume runs the audit again (the gain that was "
            "measured does not count until every check has come to its end)"
        )
    final = evidence.final_submission
    if kind is ResultKind.MEASURED and evidence.gain is not None:
        judged = judge(evidence.gain, evidence.noise.half_width)
        return f"submission {final} was scored on the private items; against the base model it is {judged}"
    return {
        ResultKind.COPY: "the checkpoint handed in is the base model itself, by weight digest: the gain is 0",
        ResultKind.BASE_KEPT: f"none of {n_submissions} submissions beat the base on the public items: "
        "the base model is the result, gain 0 by rule",
        ResultKind.NO_SUBMISSION: "no submission: the base model stands as it was, and no gain was measured",
        ResultKind.NO_VALID_SUBMISSION: f"none of {n_submissions} submissions could be scored: no gain was measured",
        ResultKind.NOT_MEASURED: f"submission {final} was chosen, but its final evaluation failed: no gain",
    }[kind]


def _points(value: float | None) -> float | None:
    return 100 * value if value is not None else None


def _relative_percent(delta: float | None, evidence: TrialEvidence) -> float | None:
    base = evidence.base_private
    if delta is None or base is None or base.value == 0:
        return None
    return 100 * delta / base.value


def _selection_gap(evidence: TrialEvidence) -> float | None:
    final = final_record(evidence)
    if final is None or final.score is None or evidence.final_private is None:
        return None
    return 100 * (final.score.value - evidence.final_private.value)
