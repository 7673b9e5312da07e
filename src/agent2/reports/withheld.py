"""Finished trials without anything that an agent may have written: for pages of one that was shown a hidden item.

Promises: numbers, verdicts, and sentences with neither of them from the agent stay; every reason, piece of evidence,
path, note, command and log line that could quote the agent reads `WITHHELD` or is left out.
"""

from dataclasses import replace

from agent2.arena.analysis.result import containment_warnings
from agent2.arena.analysis.verdicts import Analysis, Result, ResultKind, RouteFinding
from agent2.arena.evidence import AssignmentVerdict, LlmRecord, TrialEvidence
from agent2.integrity import IntegrityFinding

WITHHELD = "withheld"
WARNING = "The agent was shown a hidden item: what it wrote, which may quote it, is not shown here. See agent2 view."


def without_agent_texts(evidence: TrialEvidence) -> TrialEvidence:
    """What was recorded, without texts of the agent."""
    return replace(
        evidence,
        submissions=[
            replace(submission, model_path=WITHHELD, note="", reason=WITHHELD if submission.reason else "")
            for submission in evidence.submissions
        ],
        reproductions=[replace(r, reason=WITHHELD, conditions=(), trial=None) for r in evidence.reproductions],
        llm=_without_models(evidence.llm),
        assignment=_without_reasons(evidence.assignment),
        held_out=[replace(score, problem=WITHHELD if score.problem else "") for score in evidence.held_out],
        agent_log_tail="",
        agent_files={},
        commands=(),
        processes=(),
        revisions=(),
        metrics=(),
        design=None,
        warnings=(),
    )


def _without_models(llm: LlmRecord | None) -> LlmRecord | None:
    """Totals alone: an agent chooses the names of the models that it asks for."""
    return None if llm is None else replace(llm, calls=(), totals=replace(llm.totals, by_model={}))


def _without_reasons(verdict: AssignmentVerdict | None) -> AssignmentVerdict | None:
    """The reasons of credit are the grader's own; why something could not be judged may quote what was delivered."""
    if verdict is None or verdict.credit is not None:
        return verdict
    return replace(verdict, parts=[replace(part, reason=WITHHELD) for part in verdict.parts])


def without_quotes(evidence: TrialEvidence, analysis: Analysis) -> Analysis:
    """What was concluded from the evidence, without the reasons and the proofs that may quote the agent."""
    integrity = analysis.integrity
    return replace(
        analysis,
        result=_without_cause(analysis.result),
        route=_without_proof(analysis.route),
        submission_routes=tuple(replace(r, finding=_without_proof(r.finding)) for r in analysis.submission_routes),
        stages=tuple(replace(stage, reason=WITHHELD, evidence=()) for stage in analysis.stages),
        criteria=tuple(replace(criterion, reason=WITHHELD) for criterion in analysis.criteria),
        failures=tuple(replace(failure, detail=WITHHELD, evidence=()) for failure in analysis.failures),
        changes=(),
        mode=replace(analysis.mode, reason=WITHHELD, evidence=()),
        autonomy=replace(analysis.autonomy, evidence=()),
        recovery=replace(analysis.recovery, evidence=()),
        integrity=replace(
            integrity, reason=WITHHELD, findings=tuple(map(_without_words, integrity.findings)), checks=()
        ),
        warnings=(*containment_warnings(evidence), WARNING),
    )


def _without_proof(finding: RouteFinding) -> RouteFinding:
    return replace(finding, reason=WITHHELD, evidence=())


def _without_words(finding: IntegrityFinding) -> IntegrityFinding:
    return replace(finding, words=WITHHELD, proofs=())


def _without_cause(result: Result) -> Result:
    causes = {
        ResultKind.VOID: "void: the base model's score counts, gain 0 by rule",
        ResultKind.NOT_CLEARED: "no cleared result: a check of the integrity audit was cut short",
    }
    return replace(result, words=causes.get(result.kind, result.words))
