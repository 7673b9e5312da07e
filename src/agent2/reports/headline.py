"""The result of a trial in short: the record, and its text for the terminal, the pages and the sweep's tables."""

from dataclasses import dataclass, replace

from agent2.arena.analysis.process import best_submission, scored_submissions
from agent2.arena.analysis.reproduced import reproduction_verdict
from agent2.arena.analysis.result import final_record
from agent2.arena.analysis.verdicts import Analysis, IntegrityState, ModeFinding, Result, ResultKind, Verdict
from agent2.arena.evidence import NOT_MEASURED, AgentEnd, AssignmentVerdict, LlmRecord, TrialEvidence
from agent2.arena.spec import Mode
from agent2.reports.text import (
    DASH,
    Column,
    FieldTable,
    Tile,
    clean,
    dollars,
    duration,
    p_words,
    percent,
    points,
    score_words,
)
from agent2.stats.estimates import POINTS, Estimate
from agent2.texts import counted

KEPT = {Verdict.PASS: "kept", Verdict.FAIL: "BROKEN", Verdict.PARTIAL: "partly kept", Verdict.UNKNOWN: "not known"}
"""How a trial held to its mode."""
STRIKING = 2.0
"""Ratio of lengths from which the headline asks to read answers."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The result of a trial in short: what `agent2 run` prints, the report opens with and its JSON contains."""

    base_public: Estimate
    is_quick: bool
    """Few hidden items and no noise band: a look, no result."""
    best_public: Estimate | None
    best_submission: int | None
    """Number of the submission with the best public score; None: nothing was scored."""
    base_private: Estimate | None
    final_private: Estimate | None
    final_submission: int | None
    """None: the result is the base model."""
    is_base_copy: bool
    """The final submission is the base model, by weight digest."""
    result: Result
    route: str
    route_reason: str
    used_s: float
    allowed_s: float
    time_used_ratio: float | None
    n_submissions: int
    n_scored: int
    most_submissions: int | None
    """None: no limit."""
    n_judgements: int | None
    """None: the task has no judge to ask."""
    most_judgements: int | None
    """None: no limit."""
    llm: LlmRecord | None
    """Without its calls; None: the agent had no driver."""
    integrity: IntegrityState
    integrity_reason: str
    mode: ModeFinding
    agent_end: AgentEnd
    exit_code: int | None
    sandbox: str
    """`none`: the result proves nothing to others."""
    base_answer_tokens: float | None = None
    """Mean tokens that a model wrote for a private item, and of the final checkpoint; None: not known."""
    final_answer_tokens: float | None = None
    reproduction: str = ""
    """Verdict on the recorded program, run again; empty where nobody did."""
    assignment: AssignmentVerdict | None = None
    """On an assignment that asks for more than a checkpoint."""
    last_log_line: str = ""
    """Of agent.log, where the agent crashed or ended with an exit code; for a Python program its error."""


def headline(evidence: TrialEvidence, analysis: Analysis) -> Headline:
    """The result of a trial in short."""
    best, final = best_submission(evidence), final_record(evidence)
    return Headline(
        base_public=evidence.base_public,
        is_quick=evidence.is_quick,
        best_public=best.score if best is not None else None,
        best_submission=best.number if best is not None else None,
        base_private=evidence.base_private,
        final_private=evidence.final_private,
        final_submission=final.number if final is not None else None,
        is_base_copy=final is not None and final.is_base_copy,
        result=analysis.result,
        route=analysis.route.label,
        route_reason=analysis.route.reason,
        used_s=evidence.ended_at - evidence.started_at,
        allowed_s=evidence.deadline - evidence.started_at,
        time_used_ratio=analysis.process.time_used_ratio,
        n_submissions=len(evidence.submissions),
        n_scored=len(scored_submissions(evidence)),
        most_submissions=evidence.task.budget.submissions,
        n_judgements=evidence.n_judgements,
        most_judgements=evidence.task.budget.judgements,
        llm=replace(evidence.llm, calls=()) if evidence.llm is not None else None,
        integrity=analysis.integrity.state,
        integrity_reason=analysis.integrity.reason,
        mode=analysis.mode,
        agent_end=evidence.agent_end,
        exit_code=evidence.agent_exit_code,
        sandbox=evidence.sandbox,
        base_answer_tokens=evidence.base_answer_tokens,
        final_answer_tokens=evidence.final_answer_tokens,
        reproduction=verdict.value if (verdict := reproduction_verdict(evidence)) is not None else "",
        assignment=evidence.assignment,
        last_log_line="".join(last_log_lines(evidence, 1)),
    )


def last_log_lines(evidence: TrialEvidence, n: int) -> list[str]:
    """The last `n` lines of agent.log that are not blank, where the agent crashed or ended with an exit code."""
    if evidence.agent_end is not AgentEnd.CRASHED and not evidence.agent_exit_code:
        return []
    return [line for line in evidence.agent_log_tail.splitlines() if line.strip()][-n:]


def headline_fields(trial: Headline) -> FieldTable[Headline]:
    """The headline as text, a line for each field."""
    return FieldTable(
        (
            Column("assignment", lambda trial: trial.assignment.summary if trial.assignment is not None else ""),
            Column(
                "quick look",
                lambda trial: "few items, no noise band: run it without quick=true for a result" * trial.is_quick,
            ),
            Column("base model, public items", lambda trial: score_words(trial.base_public)),
            Column("best submission, public items", _best_words),
            Column("base model, private items", lambda trial: score_words(trial.base_private)),
            Column("final, private items", _final_words),
            Column("gain on private items", lambda trial: gain_words(trial.result)),
            Column("against the base", lambda trial: claim_words(trial.result)),
            Column("tokens an answer, private items", _length_words),
            Column("evaluation noise", lambda trial: noise_words(trial.result)),
            Column("public minus private", _selection_words),
            Column("route", lambda trial: clean(f"{trial.route}: {trial.route_reason}")),
            Column("run again", lambda trial: trial.reproduction),
            Column("budget used", _budget_words),
            Column("LLM", lambda trial: llm_words(trial.llm) if trial.llm is not None else ""),
            Column(
                "integrity",
                lambda trial: clean(f"{trial.integrity.value.replace('_', ' ')}: {trial.integrity_reason}", 300),
            ),
            Column("mode", lambda trial: mode_words(trial.mode) if trial.mode.mode is not Mode.FREE else ""),
            Column("agent's phase", lambda trial: f"{trial.agent_end.value}, {_exit_words(trial.exit_code)}"),
            Column("last line of agent.log", lambda trial: clean(trial.last_log_line, 300)),
            Column(
                "sandbox",
                lambda trial: "NONE: the result proves nothing to others" if trial.sandbox == "none" else trial.sandbox,
            ),
        ),
        trial,
    )


def headline_facts(trial: Headline) -> FieldTable[Headline]:
    """The headline below a page's tiles and its sentence: the fields that neither of them says."""
    repeated = {
        "base model, public items", "best submission, public items", "base model, private items",
        "final, private items", "gain on private items",
    }  # fmt: skip
    if trial.result.kind is ResultKind.MEASURED:
        repeated.add("against the base")
    fields = headline_fields(trial)
    return FieldTable([column for column in fields.columns if column.name not in repeated], trial)


def headline_tiles(trial: Headline) -> tuple[Tile, ...]:
    """The scores of a trial and its gain as large numbers."""
    return (
        _score_tile("base, public", score_words(trial.base_public)),
        _score_tile("best submission, public", _best_words(trial)),
        _score_tile("base, private", score_words(trial.base_private)),
        Tile("final, private", DASH, _final_words(trial))
        if trial.final_submission is None
        else _score_tile("final, private", _final_words(trial)),
        _gain_tile(gain_words(trial.result)),
    )


def _score_tile(name: str, sentence: str) -> Tile:
    value, _, detail = sentence.partition(" ")
    return Tile(name, value, detail) if value.endswith("%") else Tile(name, DASH, sentence)


def _gain_tile(sentence: str) -> Tile:
    """`+28.0 points`, or `none`; the rest of the sentence below it."""
    value, points_word, detail = sentence.partition(" points")
    if not value.lstrip("+-").replace(".", "").isdigit():
        value, _, detail = sentence.partition(": ")
        points_word = ""
    return Tile("paired gain, private", f"{value}{points_word}", detail.removeprefix(":").strip())


def claim_words(result: Result) -> str:
    """Better, worse or unclear, and why; empty without a measured gain."""
    return f"{result.claim} ({result.why})" if result.claim is not None else ""


def noise_words(result: Result) -> str:
    """Spread of scores of one checkpoint when it is evaluated again."""
    if result.noise_over == NOT_MEASURED:
        return "not measured: a quick trial has no noise band"
    if not result.noise_points:
        return "not known: every run of the base model scored the same"
    return f"±{result.noise_points:.1f} points (the base model against itself, over {result.noise_over})"


def gain_words(result: Result) -> str:
    """The gain with its interval, or why there is none."""
    if result.kind is ResultKind.COPY:
        return "0.0 points: a copy of the base, by weight digest"
    if result.kind is ResultKind.VOID:
        measured = f" (measured: {points(result.voided_gain_points)})" if result.voided_gain_points is not None else ""
        return f"0.0 points: void, the base model's score counts{measured}"
    if result.kind is ResultKind.GATE_FAILED:
        return (
            f"0.0 points: a gate failed, the base model's score counts (measured: {points(result.voided_gain_points)})"
        )
    if result.kind is ResultKind.NOT_CLEARED:
        return f"none: not cleared (measured: {points(result.voided_gain_points)}), a check did not come to its end"
    if result.kind is ResultKind.BASE_KEPT:
        return "0.0 points: the base is kept, no submission beat it"
    if result.gain is None or result.gain.low is None:
        return {
            ResultKind.NO_SUBMISSION: "none: no submission (this is not a zero)",
            ResultKind.NO_VALID_SUBMISSION: "none: no submission could be scored (this is not a zero)",
        }.get(result.kind, "not measured")
    relative = f", {result.relative_percent:+.0f}% of the base" if result.relative_percent is not None else ""
    gain = f"{POINTS.number(result.gain.value)} points {POINTS.interval(result.gain)} over items"
    return f"{gain}, {p_words(result.p_value)}{relative}"


def llm_words(llm: LlmRecord) -> str:
    """Calls, tokens and cost in one line."""
    totals, budget = llm.totals, []
    if llm.max_tokens is not None:
        budget.append(f"{llm.max_tokens:,} tokens")
    if llm.max_dollars is not None:
        budget.append(f"${llm.max_dollars:g}")
    allowed = f" (budget {', '.join(budget)})" if budget else ""
    tokens = f"{totals.tokens.input:,} tokens in, {totals.tokens.output:,} out"
    return f"{counted(totals.calls, 'call')}, {tokens}, {cost_words(llm)}{allowed}"


def cost_words(llm: LlmRecord) -> str:
    """Dollars; an unknown cost is named as unknown, never 0."""
    totals = llm.totals
    if totals.dollars is None:
        return "cost unknown: the price of the model is not known"
    if llm.replay_of is not None:
        return f"{dollars(totals.dollars)} when it was recorded, nothing now"
    missing = f", and {counted(totals.n_unknown_cost, 'call')} of unknown cost" if totals.n_unknown_cost else ""
    return f"{dollars(totals.dollars)}{missing}"


def mode_words(mode: ModeFinding) -> str:
    """How a trial held to its mode, and why."""
    return clean(f"{mode.mode.value}, {KEPT[mode.verdict]}: {mode.reason}")


def _best_words(trial: Headline) -> str:
    if trial.best_submission is None:
        return "no scored submission"
    return f"{score_words(trial.best_public)}, submission {trial.best_submission}"


def _final_words(trial: Headline) -> str:
    if trial.final_submission is not None:
        copy = ", a copy of the base" if trial.is_base_copy else ""
        copy += ", VOID: the base counts" if trial.result.kind is ResultKind.VOID else ""
        copy += ", GATE FAILED: the base counts" if trial.result.kind is ResultKind.GATE_FAILED else ""
        copy += ", NOT CLEARED" if trial.result.kind is ResultKind.NOT_CLEARED else ""
        return f"{score_words(trial.final_private, 'evaluation failed')}, submission {trial.final_submission}{copy}"
    why = "no submission"
    if trial.n_submissions:
        why = "no submission beat it" if trial.n_scored else "no submission could be scored"
    return f"{score_words(trial.base_private)}, the base model itself: {why}"


def _length_words(trial: Headline) -> str:
    """How long answers became, with a warning where a scorer may have been met without an answer; often empty."""
    before, after = trial.base_answer_tokens, trial.final_answer_tokens
    if before is None or after is None or trial.is_base_copy:
        return ""
    lengths = f"{before:.1f} of the base model, {after:.1f} of the final checkpoint"
    longest, shortest = max(before, after), min(before, after)
    if longest <= STRIKING * shortest or not before:
        return lengths
    return f"{lengths}, {percent(after / before)} as long: read some, a scorer may be met without an answer"


def _selection_words(trial: Headline) -> str:
    gap = trial.result.selection_gap_points
    return f"{points(gap)} points (same checkpoint)" if gap is not None else ""


def _budget_words(trial: Headline) -> str:
    of_limit = f" of {trial.most_submissions}" if trial.most_submissions is not None else ""
    late_s = trial.used_s - trial.allowed_s
    # above 100% would look like more time than was allowed: nothing is accepted after the deadline
    if late_s > 0:
        share = f" (100%; it took {duration(late_s)} to stop it)"
    else:
        share = f" ({percent(trial.time_used_ratio)})" if trial.time_used_ratio is not None else ""
    time = f"{duration(trial.used_s)} of {duration(trial.allowed_s)}{share}"
    judged = ""
    if trial.n_judgements is not None:
        of_most = f" of {trial.most_judgements}" if trial.most_judgements is not None else ""
        judged = f", {trial.n_judgements}{of_most} judgements"
    submissions = (
        counted(trial.n_submissions, "submission") if not of_limit else f"{trial.n_submissions}{of_limit} submissions"
    )
    return f"{time}, {submissions}{judged}"


def _exit_words(exit_code: int | None) -> str:
    return "no exit code" if exit_code is None else f"exit code {exit_code}"
