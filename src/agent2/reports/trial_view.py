"""What the pages of one trial show: tables over the records of evidence and analysis, the same for HTML and Markdown.

Every text that an agent could have written passes `clean` here; the templates escape what comes out for their own
format. No number is computed here: the analysis did that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

import msgspec

from agent2.arena.analysis.process import best_submission, scored_submissions
from agent2.arena.analysis.result import final_record
from agent2.arena.analysis.verdicts import (
    Analysis,
    EvidenceLine,
    IntegrityState,
    ModeFinding,
    Result,
    ResultKind,
    RevisionChange,
    Verdict,
)
from agent2.arena.assignment import Mode
from agent2.arena.evidence import (
    AgentEnd,
    CommandLine,
    LlmCall,
    LlmRecord,
    ProcessSample,
    SubmissionRecord,
    TrialEvidence,
    TypeScore,
)
from agent2.arena.gateway.settings import TokenCounts
from agent2.arena.sweep_records import SweepRow
from agent2.integrity import IntegrityCheck
from agent2.records import JsonValue
from agent2.reports.text import (
    DASH,
    Column,
    Facts,
    Table,
    Tile,
    clean,
    count,
    dollars,
    duration,
    p_words,
    percent,
    points,
    ratio,
    score_words,
    size,
)
from agent2.stats.estimates import POINTS, Estimate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TypeMean:
    """One kind of task over the trials of one stack that have a result."""

    stack: str
    task_type: str
    base: float | None
    final: float | None
    """A trial whose result is the base model (a void one too) enters with the base's score."""
    n_trials: int
    n_items: int


def type_table(scores: Sequence[TypeScore]) -> Table[TypeScore]:
    """One row for each kind; the difference is given without an interval, as kinds have few items."""
    return Table(
        (
            Column("task type", lambda one: clean(one.task_type)),
            Column("base", lambda one: score_words(one.base, DASH)),
            Column("final", lambda one: score_words(one.final, "the base model itself")),
            Column("difference, points", lambda one: points(_difference(one))),
        ),
        scores,
    )


BASE_COUNTS = frozenset({ResultKind.VOID.value, ResultKind.GATE_FAILED.value})
"""Results that count as the base model's score, whatever was measured."""


def sweep_type_table(rows: Sequence[SweepRow]) -> Table[TypeMean]:
    """One row for each stack and kind: means over the trials that have a result."""
    groups: dict[tuple[str, str], list[TypeScore]] = {}
    for row in rows:
        if row.gain is None:
            continue
        for score in row.by_type:
            counted = replace(score, final=None) if row.result in BASE_COUNTS else score
            groups.setdefault((f"{row.agent} · {row.task}", score.task_type), []).append(counted)
    means = [
        TypeMean(
            stack=stack,
            task_type=kind,
            base=_mean([one.base.value for one in scores if one.base is not None]),
            final=_mean([one.value for score in scores if (one := score.final or score.base) is not None]),
            n_trials=len(scores),
            n_items=max((one.base.n for one in scores if one.base is not None), default=0),
        )
        for (stack, kind), scores in sorted(groups.items())
    ]
    return Table(
        (
            Column("stack", lambda one: clean(one.stack)),
            Column("task type", lambda one: clean(one.task_type)),
            Column("base, private", lambda one: percent(one.base)),
            Column("final, private", lambda one: percent(one.final)),
            Column("seeds", lambda one: str(one.n_trials)),
            Column("games", lambda one: str(one.n_items)),
        ),
        means,
    )


def _difference(score: TypeScore) -> float | None:
    if score.base is None or score.final is None:
        return None
    return 100 * (score.final.value - score.base.value)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class ModelTokens:
    """What one model was sent and answered."""

    model: str
    tokens: TokenCounts


@dataclass(frozen=True, slots=True)
class LlmView:
    """The tables about an agent's driver."""

    totals: Facts[LlmRecord]
    models: Table[ModelTokens]
    calls: Table[LlmCall]


def llm_view(evidence: TrialEvidence) -> LlmView | None:
    """None for an agent without a driver."""
    llm = evidence.llm
    if llm is None:
        return None
    models = Table(
        (Column[ModelTokens]("model", lambda one: clean(one.model, 80)), *_token_columns(lambda one: one.tokens)),
        [ModelTokens(model, tokens) for model, tokens in llm.totals.by_model.items()],
    )
    calls = Table(
        (
            Column[LlmCall]("#", lambda call: str(call.number)),
            Column("at", lambda call: duration(call.t - evidence.started_at)),
            Column("took", lambda call: duration(call.seconds)),
            Column(
                "model",
                lambda call: clean(
                    call.asked_model if call.asked_model == call.model else f"{call.asked_model} → {call.model}", 80
                ),
            ),
            *_token_columns(lambda call: call.tokens),
            Column("cost", lambda call: dollars(call.dollars)),
            Column(
                "outcome",
                lambda call: clean(call.outcome) + ("" if call.is_counted else ", not counted by the provider"),
            ),
            Column("retries", lambda call: str(call.retries)),
            Column("fault", lambda call: clean(call.fault, 200)),
        ),
        llm.calls[:MAX_ROWS],
    )
    return LlmView(_llm_totals(llm), models, calls)


def llm_words(llm: LlmRecord) -> str:
    """Calls, tokens and cost in one line."""
    totals, budget = llm.totals, []
    if llm.max_tokens is not None:
        budget.append(f"{llm.max_tokens:,} tokens")
    if llm.max_dollars is not None:
        budget.append(f"${llm.max_dollars:g}")
    allowed = f" (budget {', '.join(budget)})" if budget else ""
    tokens = f"{totals.tokens.input:,} tokens in, {totals.tokens.output:,} out"
    return f"{totals.calls} calls, {tokens}, {cost_words(llm)}{allowed}"


def cost_words(llm: LlmRecord) -> str:
    """Dollars; what is not known is said, and is never a zero."""
    totals = llm.totals
    if totals.dollars is None:
        return "cost unknown: the price of the model is not known"
    if llm.replay_of is not None:
        return f"{dollars(totals.dollars)} when it was recorded, nothing now"
    missing = f", and {totals.n_unknown_cost} calls of unknown cost" if totals.n_unknown_cost else ""
    return f"{dollars(totals.dollars)}{missing}"


def command_table(evidence: TrialEvidence) -> Table[tuple[int, CommandLine]]:
    """The command lines of the agent's own record, numbered from 1."""
    words = {True: "failed", False: "ok", None: DASH}
    begun = evidence.started_at
    return Table(
        (
            Column("#", lambda line: str(line[0])),
            Column("command", lambda line: clean(line[1].command, 300)),
            Column("at", lambda line: duration(line[1].t - begun) if line[1].t is not None else DASH),
            Column("outcome", lambda line: words[line[1].failed]),
            Column("exit code", lambda line: count(line[1].exit_code)),
        ),
        list(enumerate(evidence.commands[:MAX_ROWS], start=1)),
    )


KEPT = {Verdict.PASS: "kept", Verdict.FAIL: "BROKEN", Verdict.PARTIAL: "partly kept", Verdict.UNKNOWN: "not known"}
"""How a trial held to its mode."""


def conduct_facts(analysis: Analysis) -> Facts[Analysis]:
    """Mode, autonomy and recovery."""

    def task(found: Analysis) -> str:
        completed = "completed" if found.autonomy.is_completed else "not completed"
        return completed + (", by the agent alone" if found.autonomy.is_autonomous else "")

    def failures(found: Analysis) -> str:
        unknown = f", {found.recovery.n_unknown} not known" if found.recovery.n_unknown else ""
        return f"{found.recovery.n_failures} / {found.recovery.n_recovered}{unknown}"

    return Facts(
        (
            Column("mode", lambda found: _mode_words(found.mode)),
            Column("task", task),
            Column("human interventions", lambda found: f"{found.autonomy.n_interventions or 'none'} reported"),
            Column("failures / recovered", failures),
            Column("recovery rate", lambda found: ratio(found.recovery.rate)),
            Column(
                "commands / failed", lambda found: f"{found.recovery.n_commands} / {found.recovery.n_failed_commands}"
            ),
            Column(
                "failed commands followed by one that succeeded",
                lambda found: str(found.recovery.n_followed_by_success),
            ),
        ),
        analysis,
    )


def _mode_words(mode: ModeFinding) -> str:
    return clean(f"{mode.mode.value}, {KEPT[mode.verdict]}: {mode.reason}")


def _llm_totals(llm: LlmRecord) -> Facts[LlmRecord]:
    def troubles(one: LlmRecord) -> str:
        totals = one.totals
        return " / ".join(map(str, (totals.n_failed, totals.n_partial, totals.n_lost, totals.n_refused)))

    def tokens(n: int, part: int, of_them: str) -> str:
        return f"{n:,} ({part:,} of them {of_them})"

    return Facts(
        (
            Column("calls", lambda one: str(one.totals.calls)),
            Column(
                "input tokens",
                lambda one: tokens(one.totals.tokens.input, one.totals.tokens.cached_input, "cached"),
            ),
            Column(
                "output tokens",
                lambda one: tokens(one.totals.tokens.output, one.totals.tokens.reasoning, "reasoning"),
            ),
            Column("cost", cost_words),
            Column("failed / broken off / lost / refused", troubles),
            Column("retries", lambda one: str(one.totals.retries)),
            Column(
                "answers",
                lambda one: (
                    clean(f"recorded ones of {one.replay_of}; {one.n_differences} requests differed")
                    if one.replay_of is not None
                    else ""
                ),
            ),
        ),
        llm,
    )


def _token_columns(tokens: Callable[[T], TokenCounts]) -> tuple[Column[T], ...]:
    return (
        Column("input", lambda one: f"{tokens(one).input:,}"),
        Column("cached", lambda one: f"{tokens(one).cached_input:,}"),
        Column("output", lambda one: f"{tokens(one).output:,}"),
        Column("reasoning", lambda one: f"{tokens(one).reasoning:,}"),
    )


MAX_FILES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Headline:
    """The result of a trial in short: what `agent2 run` prints, the report opens with and its JSON contains."""

    base_public: Estimate
    best_public: Estimate | None
    best_submission: int | None
    """The one with the best public score; None: nothing was scored."""
    base_private: Estimate | None
    final_private: Estimate | None
    final_submission: int | None
    """None: the result is the base model."""
    is_base_copy: bool
    """What was handed in is the base model, by weight digest."""
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


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One judged question."""

    name: str
    verdict: str
    reason: str
    proof: tuple[EvidenceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialView:
    """All texts of a trial's pages."""

    title: str
    subtitle: str
    words: str
    is_unsandboxed: bool
    warnings: tuple[str, ...]
    tiles: tuple[Tile, ...]
    headline: Facts[Headline]
    route: VerdictView
    submissions: Table[SubmissionRecord]
    stages: tuple[VerdictView, ...]
    criteria: tuple[VerdictView, ...]
    failures: tuple[VerdictView, ...]
    types: Table[TypeScore]
    """Private scores by kind of task."""
    conduct: Facts[Analysis]
    """Mode, autonomy and recovery."""
    conduct_proof: tuple[EvidenceLine, ...]
    integrity: VerdictView
    findings: tuple[VerdictView, ...]
    """What the integrity audit found."""
    checks: Table[IntegrityCheck]
    """What each check of the audit looked at."""
    llm: LlmView | None
    commands: Table[tuple[int, CommandLine]]
    process: Facts[Analysis]
    revisions: Table[RevisionChange]
    processes: Table[ProcessSample]
    containment: Table[Mapping[str, str]]
    provenance: Table[tuple[str, JsonValue]]
    left_out: tuple[str, ...]
    """Tables that were cut, one sentence each."""


def trial_view(evidence: TrialEvidence, analysis: Analysis) -> TrialView:
    """The texts of a trial's pages."""
    task = evidence.task
    driver = f" driven by {evidence.driver}" if evidence.driver else ""
    long = {
        "submissions": len(evidence.submissions),
        "failures": len(analysis.failures),
        "code revisions": len(analysis.changes),
        "processes": len(evidence.processes),
        "commands": len(evidence.commands),
        "LLM calls": len(evidence.llm.calls) if evidence.llm is not None else 0,
    }
    return TrialView(
        title=clean(f"{evidence.agent}{driver} on {task.name}"),
        subtitle=clean(
            f"trial {evidence.trial_id} · seed {evidence.seed} · {task.title} · level {task.level.value} · "
            + ("published task" if task.published else "embedded task, not comparable with published scores")
        ),
        words=clean(analysis.result.words),
        is_unsandboxed=evidence.sandbox == "none",
        warnings=tuple(clean(warning) for warning in analysis.warnings),
        tiles=_tiles(evidence, analysis),
        headline=headline_facts(headline(evidence, analysis)),
        route=_route(analysis),
        submissions=_submissions(evidence, analysis),
        stages=tuple(
            VerdictView(s.stage.value, s.verdict.value, clean(s.reason), _proof(s.evidence)) for s in analysis.stages
        ),
        criteria=tuple(VerdictView(c.name, c.verdict.value, clean(c.reason)) for c in analysis.criteria),
        failures=_failures(analysis),
        types=type_table(evidence.by_type),
        conduct=conduct_facts(analysis),
        conduct_proof=_proof((*analysis.mode.evidence, *analysis.autonomy.evidence, *analysis.recovery.evidence)),
        integrity=VerdictView(
            "Integrity", analysis.integrity.state.value.replace("_", " "), clean(analysis.integrity.reason, 600)
        ),
        findings=tuple(
            VerdictView(
                clean(f"{found.subject}: {found.name}" if found.subject else found.name),
                f"{found.effect.value}, {found.severity.value} severity",
                clean(found.words, 600),
                _proof(EvidenceLine(proof.where, proof.what) for proof in found.proofs),
            )
            for found in analysis.integrity.findings[:MAX_ROWS]
        ),
        checks=Table(
            (
                Column("check", lambda check: clean(check.name)),
                Column("looked at", lambda check: clean(check.looked_at, 600)),
            ),
            analysis.integrity.checks[:MAX_ROWS],
        ),
        llm=llm_view(evidence),
        commands=command_table(evidence),
        process=_process(analysis),
        revisions=_revisions(analysis),
        processes=_processes(evidence),
        containment=Table(
            (
                Column("what", lambda row: clean(row.get("what", ""))),
                Column("strength", lambda row: clean(row.get("strength", ""))),
                Column("how", lambda row: clean(row.get("how", ""))),
            ),
            evidence.containment,
        ),
        provenance=_provenance(evidence),
        left_out=tuple(f"{n - MAX_ROWS} of {n} {what} are left out here." for what, n in long.items() if n > MAX_ROWS),
    )


def headline(evidence: TrialEvidence, analysis: Analysis) -> Headline:
    """The result of a trial in short."""
    best, final = best_submission(evidence), final_record(evidence)
    return Headline(
        base_public=evidence.base_public,
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
    )


def headline_facts(found: Headline) -> Facts[Headline]:
    """The headline in words, one line each."""
    return Facts(
        (
            Column("base model, public items", lambda one: score_words(one.base_public)),
            Column("best submission, public items", _best_words),
            Column("base model, private items", lambda one: score_words(one.base_private)),
            Column("final, private items", _final_words),
            Column("gain on private items", lambda one: gain_words(one.result)),
            Column("against the base", lambda one: claim_words(one.result)),
            Column("evaluation noise", lambda one: noise_words(one.result)),
            Column("public minus private", _selection_words),
            Column("route", lambda one: clean(f"{one.route}: {one.route_reason}")),
            Column("budget used", _budget_words),
            Column("LLM", lambda one: llm_words(one.llm) if one.llm is not None else ""),
            Column(
                "integrity", lambda one: clean(f"{one.integrity.value.replace('_', ' ')}: {one.integrity_reason}", 300)
            ),
            Column("mode", lambda one: _mode_words(one.mode) if one.mode.mode is not Mode.FREE else ""),
            Column("agent's phase", lambda one: f"{one.agent_end.value}, {_exit_words(one.exit_code)}"),
            Column(
                "sandbox",
                lambda one: "NONE: the result proves nothing to others" if one.sandbox == "none" else one.sandbox,
            ),
        ),
        found,
    )


def summary_lines(evidence: TrialEvidence, analysis: Analysis) -> list[str]:
    """The headline as plain lines for a terminal."""
    rows = headline_facts(headline(evidence, analysis)).lines()
    width = max(map(len, rows))
    return [clean(analysis.result.words), *(f"{name:<{width}}  {value}" for name, value in rows.items())]


def claim_words(result: Result) -> str:
    """Better, worse or unclear, and why; empty without a measured gain."""
    return f"{result.claim} ({result.why})" if result.claim is not None else ""


def noise_words(result: Result) -> str:
    """How far one checkpoint is from itself."""
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


def _best_words(found: Headline) -> str:
    if found.best_submission is None:
        return "no scored submission"
    return f"{score_words(found.best_public)}, submission {found.best_submission}"


def _final_words(found: Headline) -> str:
    if found.final_submission is not None:
        copy = ", a copy of the base" if found.is_base_copy else ""
        copy += ", VOID: the base counts" if found.result.kind is ResultKind.VOID else ""
        copy += ", GATE FAILED: the base counts" if found.result.kind is ResultKind.GATE_FAILED else ""
        copy += ", NOT CLEARED" if found.result.kind is ResultKind.NOT_CLEARED else ""
        return f"{score_words(found.final_private, 'evaluation failed')}, submission {found.final_submission}{copy}"
    why = "no submission"
    if found.n_submissions:
        why = "no submission beat it" if found.n_scored else "no submission could be scored"
    return f"{score_words(found.base_private)}, the base model itself: {why}"


def _selection_words(found: Headline) -> str:
    gap = found.result.selection_gap_points
    return f"{points(gap)} points (same checkpoint)" if gap is not None else ""


def _budget_words(found: Headline) -> str:
    of_limit = f" of {found.most_submissions}" if found.most_submissions is not None else ""
    share = f" ({percent(found.time_used_ratio)})" if found.time_used_ratio is not None else ""
    time = f"{duration(found.used_s)} of {duration(found.allowed_s)}{share}"
    judged = ""
    if found.n_judgements is not None:
        of_most = f" of {found.most_judgements}" if found.most_judgements is not None else ""
        judged = f", {found.n_judgements}{of_most} judgements"
    return f"{time}, {found.n_submissions}{of_limit} submissions{judged}"


def _exit_words(exit_code: int | None) -> str:
    return "no exit code" if exit_code is None else f"exit code {exit_code}"


def _tiles(evidence: TrialEvidence, analysis: Analysis) -> tuple[Tile, ...]:
    result = analysis.result
    best, final = best_submission(evidence), evidence.final_private
    interval = f"95% {POINTS.interval(result.gain)} over items, {p_words(result.p_value)}: {result.claim}"
    is_measured = result.gain is not None and result.gain.low is not None
    return (
        Tile("base, public", percent(evidence.base_public.value), _interval(evidence.base_public)),
        Tile(
            "best submission, public",
            percent(best.score.value if best and best.score else None),
            _interval(best.score) if best is not None else "nothing scored",
        ),
        Tile(
            "final, private",
            percent(final.value if final is not None else None),
            _interval(final) if final is not None else f"base counts: {score_words(evidence.base_private)}",
        ),
        Tile(
            "paired gain, private",
            f"{POINTS.number(result.gain.value)} points" if result.gain is not None else "none",
            interval if is_measured else gain_words(result).partition(": ")[2],
        ),
    )


def _interval(score: Estimate | None) -> str:
    return score_words(score).partition(" ")[2] if score is not None else ""


def _route(analysis: Analysis) -> VerdictView:
    route = analysis.route
    return VerdictView(
        route.label, route.certainty.value.replace("_", " "), clean(route.reason), _proof(route.evidence)
    )


def _proof(lines: Iterable[EvidenceLine]) -> tuple[EvidenceLine, ...]:
    return tuple(EvidenceLine(clean(line.where, 160), clean(line.text, 300)) for line in lines)


def _submissions(evidence: TrialEvidence, analysis: Analysis) -> Table[SubmissionRecord]:
    routes = {route.number: route.finding for route in analysis.submission_routes}

    def number(one: SubmissionRecord) -> str:
        marks = " ★ final" if one.number == evidence.final_submission else ""
        return f"{one.number}{marks}{' · copy of the base' if one.is_base_copy else ''}"

    def against_base(one: SubmissionRecord) -> str:
        return DASH if one.score is None else POINTS.number(one.score.value - evidence.base_public.value)

    def route(one: SubmissionRecord) -> str:
        found = routes[one.number]
        return f"{found.label} ({found.certainty.value.replace('_', ' ')})"

    return Table(
        (
            Column("#", number),
            Column("at", lambda one: duration(one.received_at - evidence.started_at)),
            Column("path", lambda one: clean(one.model_path, 120)),
            Column("note", lambda one: clean(one.note, 200)),
            Column("state", lambda one: one.state.value),
            Column("public score", lambda one: score_words(one.score, "no score")),
            Column("vs base, points", against_base),
            Column("route", route),
            Column("revision", lambda one: clean((one.revision or "")[:10])),
            Column("reason", lambda one: clean(one.reason, 500)),
        ),
        evidence.submissions[:MAX_ROWS],
    )


def _failures(analysis: Analysis) -> tuple[VerdictView, ...]:
    views = []
    for failure in analysis.failures[:MAX_ROWS]:
        recovered = {True: "recovered", False: "not recovered", None: "recovery not known"}[failure.recovered]
        views.append(VerdictView(failure.kind.value, recovered, clean(failure.detail), _proof(failure.evidence)))
    return tuple(views)


def _process(analysis: Analysis) -> Facts[Analysis]:
    return Facts(
        (
            Column("submissions received / scored", lambda a: f"{a.process.n_submissions} / {a.process.n_scored}"),
            Column("valid_submission_rate", lambda a: ratio(a.process.valid_submission_rate)),
            Column("first_valid_idx", lambda a: count(a.process.first_valid_idx)),
            Column("first_valid_delay", lambda a: duration(a.process.first_valid_delay)),
            Column("time_to_first_improvement", lambda a: duration(a.process.time_to_first_improvement)),
            Column("time_to_best", lambda a: duration(a.process.time_to_best)),
            Column("monotonic_ratio", lambda a: ratio(a.process.monotonic_ratio)),
            Column("copy_model_count", lambda a: count(a.process.copy_model_count)),
            Column("time_used_ratio", lambda a: ratio(a.process.time_used_ratio)),
            Column("last_submit_gap", lambda a: duration(a.process.last_submit_gap)),
            Column("time with a training program running", lambda a: duration(a.efficiency.training_program_s)),
            Column("span of the training logs", lambda a: duration(a.efficiency.training_log_s)),
            Column("largest resident memory of a process", lambda a: size(a.efficiency.max_rss_bytes)),
            Column("CPU time of all processes", lambda a: duration(a.efficiency.cpu_s)),
            Column(
                "GPU-hours",
                lambda a: "not measured" if a.efficiency.gpu_hours is None else f"{a.efficiency.gpu_hours:.2f}",
            ),
        ),
        analysis,
    )


def _revisions(analysis: Analysis) -> Table[RevisionChange]:
    def files(change: RevisionChange) -> str:
        told = [f"{clean(file.path, 80)} +{file.added} -{file.removed}" for file in change.files[:MAX_FILES_SHOWN]]
        more = len(change.files) - len(told)
        return "; ".join(told) + (f"; and {more} more" if more > 0 else "") if told else "no change"

    return Table(
        (
            Column("revision", lambda change: clean(change.id[:10])),
            Column("at", lambda change: duration(change.seconds)),
            Column("for submission", lambda change: count(change.submission)),
            Column("lines added and removed", files),
        ),
        analysis.changes[:MAX_ROWS],
    )


def _processes(evidence: TrialEvidence) -> Table[ProcessSample]:
    return Table(
        (
            Column("pid", lambda one: str(one.pid)),
            Column("command", lambda one: clean(" ".join(one.command), 160)),
            Column("from", lambda one: duration(one.first_seen - evidence.started_at)),
            Column("seen for", lambda one: duration(one.last_seen - one.first_seen)),
            Column("CPU", lambda one: duration(one.cpu_s)),
            Column("memory", lambda one: size(one.max_rss_bytes)),
        ),
        sorted(evidence.processes, key=lambda sample: -sample.cpu_s)[:MAX_ROWS],
    )


def _provenance(evidence: TrialEvidence) -> Table[tuple[str, JsonValue]]:
    found: list[tuple[str, JsonValue]] = [("base model, weights digest", evidence.base_weights_digest)]
    for key, value in sorted(evidence.lock.items()):
        inner = value.items() if isinstance(value, dict) else [("", value)]
        found += [(f"{key}.{part}" if part else key, content) for part, content in inner]

    def words(content: JsonValue) -> str:
        return clean(content if isinstance(content, str) else msgspec.json.encode(content).decode(), 200)

    return Table((Column("what", lambda row: clean(row[0], 80)), Column("value", lambda row: words(row[1]))), found)
