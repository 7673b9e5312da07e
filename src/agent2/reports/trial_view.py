"""What the pages of one trial show: rows of clean text, the same for HTML and Markdown.

What the pages of one trial show: rows of clean text, the same for HTML and Markdown.

Every text that an agent could have written passes `clean` here; the templates escape what comes out for
their own format. No number is computed here: the analysis did that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import msgspec

from agent2.arena.analysis.process import best_submission, scored_submissions
from agent2.arena.analysis.result import final_record
from agent2.arena.analysis.verdicts import Analysis, EvidenceLine, ResultKind, Verdict
from agent2.arena.assignment import Mode
from agent2.arena.evidence import LlmRecord, SubmissionRecord, TrialEvidence, TypeScore
from agent2.arena.gateway.settings import TokenCounts
from agent2.arena.sweep_records import SweepRow
from agent2.reports.text import (
    DASH,
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

TYPE_NAMES = ("task type", "base, private", "final, private", "difference, points")
SWEEP_TYPE_NAMES = ("stack", "task type", "base, private", "final, private", "seeds", "games")


def type_rows(scores: Sequence[TypeScore]) -> tuple[tuple[str, ...], ...]:
    """One row for each kind; the difference is told without an interval, as kinds have few items."""
    return tuple(
        (
            clean(score.task_type),
            score_words(score.base, DASH),
            score_words(score.final, "the base model itself"),
            points(_difference(score)),
        )
        for score in scores
    )


def sweep_type_rows(rows: Sequence[SweepRow]) -> list[tuple[str, ...]]:
    """One row for each stack and kind: means over the trials that have a result.

    A trial whose result is the base model (a void one too) enters with the base's score.
    """
    groups: dict[tuple[str, str], list[TypeScore]] = {}
    for row in rows:
        if row.gain_points is None:
            continue
        for score in row.by_type:
            counted = replace(score, final=None) if row.result == ResultKind.VOID.value else score
            groups.setdefault((f"{row.agent} · {row.task}", score.task_type), []).append(counted)
    return [
        (
            clean(stack),
            clean(kind),
            percent(_mean([one.base.value for one in scores if one.base is not None])),
            percent(_mean([one.value for score in scores if (one := score.final or score.base) is not None])),
            str(len(scores)),
            str(max((one.base.n_items for one in scores if one.base is not None), default=0)),
        )
        for (stack, kind), scores in sorted(groups.items())
    ]


def _difference(score: TypeScore) -> float | None:
    if score.base is None or score.final is None:
        return None
    return 100 * (score.final.value - score.base.value)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


MAX_ROWS = 200

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LlmView:
    """The tables about an agent's driver."""

    totals: tuple[Row, ...]
    models: tuple[Row, ...]
    calls: tuple[Row, ...]


def llm_view(evidence: TrialEvidence) -> LlmView | None:
    """None for an agent without a driver."""
    llm = evidence.llm
    if llm is None:
        return None
    calls = tuple(
        (
            str(call.number),
            duration(call.t - evidence.started_at),
            duration(call.seconds),
            clean(call.asked_model if call.asked_model == call.model else f"{call.asked_model} → {call.model}", 80),
            *_token_cells(call.tokens),
            dollars(call.dollars),
            clean(call.outcome) + ("" if call.is_counted else ", not counted by the provider"),
            str(call.retries),
            clean(call.fault, 200),
        )
        for call in llm.calls[:MAX_ROWS]
    )
    models = tuple((clean(model, 80), *_token_cells(tokens)) for model, tokens in llm.totals.by_model.items())
    return LlmView(_totals(llm), models, calls)


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


def command_rows(evidence: TrialEvidence) -> tuple[Row, ...]:
    """The command lines of the agent's own record."""
    words = {True: "failed", False: "ok", None: DASH}
    return tuple(
        (
            str(number),
            clean(command.command, 300),
            duration(command.t - evidence.started_at) if command.t is not None else DASH,
            words[command.failed],
            count(command.exit_code),
        )
        for number, command in enumerate(evidence.commands[:MAX_ROWS], start=1)
    )


def conduct_rows(analysis: Analysis) -> tuple[Row, ...]:
    """Mode, autonomy and recovery."""
    mode, autonomy, recovery = analysis.mode, analysis.autonomy, analysis.recovery
    kept = {Verdict.PASS: "kept", Verdict.FAIL: "BROKEN", Verdict.PARTIAL: "partly kept", Verdict.UNKNOWN: "not known"}
    completed = "completed" if autonomy.is_completed else "not completed"
    alone = ", by the agent alone" if autonomy.is_autonomous else ""
    told = f"{autonomy.n_interventions} reported" if autonomy.n_interventions else "none reported"
    unknown = f", {recovery.n_unknown} not known" if recovery.n_unknown else ""
    return (
        ("mode", clean(f"{mode.mode.value}, {kept[mode.verdict]}: {mode.reason}")),
        ("task", f"{completed}{alone}"),
        ("human interventions", told),
        ("failures / recovered", f"{recovery.n_failures} / {recovery.n_recovered}{unknown}"),
        ("recovery rate", ratio(recovery.rate)),
        ("commands / failed", f"{recovery.n_commands} / {recovery.n_failed_commands}"),
        ("failed commands followed by one that succeeded", str(recovery.n_followed_by_success)),
    )


def _totals(llm: LlmRecord) -> tuple[Row, ...]:
    totals = llm.totals
    rows = [
        ("calls", str(totals.calls)),
        ("input tokens", f"{totals.tokens.input:,} ({totals.tokens.cached_input:,} of them cached)"),
        ("output tokens", f"{totals.tokens.output:,} ({totals.tokens.reasoning:,} of them reasoning)"),
        ("cost", cost_words(llm)),
        ("failed / broken off / lost / refused", " / ".join(map(str, _troubles(llm)))),
        ("retries", str(totals.retries)),
    ]
    if llm.replay_of is not None:
        rows.append(("answers", clean(f"recorded ones of {llm.replay_of}; {llm.n_differences} requests differed")))
    return tuple(rows)


def _troubles(llm: LlmRecord) -> tuple[int, ...]:
    totals = llm.totals
    return totals.n_failed, totals.n_partial, totals.n_lost, totals.n_refused


def _token_cells(tokens: TokenCounts) -> Row:
    return tuple(f"{n:,}" for n in (tokens.input, tokens.cached_input, tokens.output, tokens.reasoning))


MAX_FILES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One judged question."""

    name: str
    verdict: str
    reason: str
    proof: tuple[Row, ...] = ()
    """(where, what) of each line of evidence."""


@dataclass(frozen=True, slots=True)
class TrialView:
    """All texts of a trial's pages."""

    title: str
    subtitle: str
    words: str
    is_unsandboxed: bool
    warnings: tuple[str, ...]
    tiles: tuple[Row, ...]
    """(name, value, detail) of the headline numbers."""
    headline: tuple[Row, ...]
    route: VerdictView
    submissions: tuple[Row, ...]
    stages: tuple[VerdictView, ...]
    criteria: tuple[VerdictView, ...]
    failures: tuple[VerdictView, ...]
    types: tuple[Row, ...]
    """Private scores by kind of task."""
    conduct: tuple[Row, ...]
    """Mode, autonomy and recovery."""
    conduct_proof: tuple[Row, ...]
    integrity: VerdictView
    findings: tuple[VerdictView, ...]
    """What the integrity audit found."""
    checks: tuple[Row, ...]
    """(name, what it looked at) of each check of the audit."""
    llm: LlmView | None
    commands: tuple[Row, ...]
    process: tuple[Row, ...]
    revisions: tuple[Row, ...]
    processes: tuple[Row, ...]
    containment: tuple[Row, ...]
    provenance: tuple[Row, ...]
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
        headline=tuple(headline(evidence, analysis)),
        route=_route(analysis),
        submissions=_submissions(evidence, analysis),
        stages=tuple(
            VerdictView(s.stage.value, s.verdict.value, clean(s.reason), _proof(s.evidence)) for s in analysis.stages
        ),
        criteria=tuple(VerdictView(c.name, c.verdict.value, clean(c.reason)) for c in analysis.criteria),
        failures=_failures(analysis),
        types=type_rows(evidence.by_type),
        conduct=conduct_rows(analysis),
        conduct_proof=_proof((*analysis.mode.evidence, *analysis.autonomy.evidence, *analysis.recovery.evidence)),
        integrity=VerdictView(
            "Integrity", analysis.integrity.state.value.replace("_", " "), clean(analysis.integrity.reason, 600)
        ),
        findings=_findings(analysis),
        checks=tuple((clean(c.name), clean(c.looked_at, 600)) for c in analysis.integrity.checks[:MAX_ROWS]),
        llm=llm_view(evidence),
        commands=command_rows(evidence),
        process=_process(analysis),
        revisions=_revisions(analysis),
        processes=_processes(evidence),
        containment=tuple(
            (clean(row.get("what", "")), clean(row.get("strength", "")), clean(row.get("how", "")))
            for row in evidence.containment
        ),
        provenance=_provenance(evidence),
        left_out=tuple(f"{n - MAX_ROWS} of {n} {what} are left out here." for what, n in long.items() if n > MAX_ROWS),
    )


def headline(evidence: TrialEvidence, analysis: Analysis) -> list[tuple[str, str]]:
    """The result in rows of (name, value): what `agent2 run` prints and the report opens with."""
    result = analysis.result
    best = best_submission(evidence)
    final = final_record(evidence)
    best_words = f"{score_words(best.score)}, submission {best.number}" if best is not None else "no scored submission"
    rows = [
        ("base model, public items", score_words(evidence.base_public)),
        ("best submission, public items", best_words),
        ("base model, private items", score_words(evidence.base_private)),
        ("final, private items", _final_words(evidence, analysis, final)),
        ("gain on private items", _gain_words(analysis)),
        ("against the base", claim_words(analysis)),
        ("evaluation noise", noise_words(analysis)),
        ("public minus private", f"{points(result.selection_gap_points)} points (same checkpoint)"),
        ("route", clean(f"{analysis.route.label}: {analysis.route.reason}")),
        ("budget used", _budget_words(evidence, analysis)),
        ("LLM", llm_words(evidence.llm) if evidence.llm is not None else ""),
        ("integrity", _integrity_words(analysis)),
        ("mode", conduct_rows(analysis)[0][1] if evidence.mode is not Mode.FREE else ""),
        ("agent's phase", f"{evidence.agent_end.value}, {_exit_words(evidence)}"),
        ("sandbox", "NONE: the result proves nothing to others" if evidence.sandbox == "none" else evidence.sandbox),
    ]
    if result.selection_gap_points is None:
        rows = [row for row in rows if row[0] != "public minus private"]
    return [row for row in rows if row[1]]


def summary_lines(evidence: TrialEvidence, analysis: Analysis) -> list[str]:
    """The headline as plain lines for a terminal."""
    rows = headline(evidence, analysis)
    width = max(len(name) for name, _ in rows)
    return [clean(analysis.result.words), *(f"{name:<{width}}  {value}" for name, value in rows)]


def claim_words(analysis: Analysis) -> str:
    """Better, worse or unclear, and why; empty without a measured gain."""
    result = analysis.result
    return f"{result.claim} ({result.why})" if result.claim is not None else ""


def noise_words(analysis: Analysis) -> str:
    """How far one checkpoint is from itself."""
    result = analysis.result
    if not result.noise_points:
        return "not known: every run of the base model scored the same"
    return f"±{result.noise_points:.1f} points (the base model against itself, over {result.noise_over})"


def _final_words(evidence: TrialEvidence, analysis: Analysis, final: SubmissionRecord | None) -> str:
    if final is not None:
        copy = ", a copy of the base" if final.is_base_copy else ""
        copy += ", VOID: the base stands" if analysis.result.kind is ResultKind.VOID else ""
        copy += ", NOT CLEARED" if analysis.result.kind is ResultKind.NOT_CLEARED else ""
        return f"{score_words(evidence.final_private, 'evaluation failed')}, submission {final.number}{copy}"
    why = "no submission"
    if evidence.submissions:
        why = "no submission beat it" if scored_submissions(evidence) else "no submission could be scored"
    return f"{score_words(evidence.base_private)}, the base model itself: {why}"


def _gain_words(analysis: Analysis) -> str:
    result = analysis.result
    if result.kind is ResultKind.COPY:
        return "0.0 points: a copy of the base, by weight digest"
    if result.kind is ResultKind.VOID:
        measured = f" (measured: {points(result.voided_gain_points)})" if result.voided_gain_points is not None else ""
        return f"0.0 points: void, the base model's score stands{measured}"
    if result.kind is ResultKind.NOT_CLEARED:
        return f"none: not cleared (measured: {points(result.voided_gain_points)}), a check did not come to its end"
    if result.kind is ResultKind.BASE_KEPT:
        return "0.0 points: the base is kept, no submission beat it"
    if result.gain_points is None or result.low_points is None or result.high_points is None:
        return {
            ResultKind.NO_SUBMISSION: "none: no submission (this is not a zero)",
            ResultKind.NO_VALID_SUBMISSION: "none: no submission could be scored (this is not a zero)",
        }.get(result.kind, "not measured")
    relative = f", {result.relative_percent:+.0f}% of the base" if result.relative_percent is not None else ""
    interval = f"[{result.low_points:+.1f}, {result.high_points:+.1f}] over items"
    return f"{points(result.gain_points)} points {interval}, {p_words(result.p_value)}{relative}"


def _integrity_words(analysis: Analysis) -> str:
    state = analysis.integrity.state
    return clean(f"{state.value.replace('_', ' ')}: {analysis.integrity.reason}", 300)


def _budget_words(evidence: TrialEvidence, analysis: Analysis) -> str:
    used, allowed = evidence.ended_at - evidence.started_at, evidence.deadline - evidence.started_at
    limit = evidence.task.budget.submissions
    of_limit = f" of {limit}" if limit is not None else ""
    share = f" ({percent(analysis.process.time_used_ratio)})" if analysis.process.time_used_ratio is not None else ""
    return f"{duration(used)} of {duration(allowed)}{share}, {len(evidence.submissions)}{of_limit} submissions"


def _exit_words(evidence: TrialEvidence) -> str:
    return "no exit code" if evidence.agent_exit_code is None else f"exit code {evidence.agent_exit_code}"


def _tiles(evidence: TrialEvidence, analysis: Analysis) -> tuple[Row, ...]:
    result = analysis.result
    best = best_submission(evidence)
    final = evidence.final_private
    interval = f"95% [{points(result.low_points)}, {points(result.high_points)}] over items, "
    interval += f"{p_words(result.p_value)}: {result.claim}"
    return (
        ("base, public", percent(evidence.base_public.value), _interval(evidence.base_public)),
        (
            "best submission, public",
            percent(best.score.value if best and best.score else None),
            _interval(best.score) if best is not None else "nothing scored",
        ),
        (
            "final, private",
            percent(final.value if final is not None else None),
            _interval(final) if final is not None else f"base stands: {score_words(evidence.base_private)}",
        ),
        (
            "paired gain, private",
            f"{points(result.gain_points)} points" if result.gain_points is not None else "none",
            interval if result.low_points is not None else _gain_words(analysis).partition(": ")[2],
        ),
    )


def _interval(score: object) -> str:
    return score_words(score).partition(" ")[2] if score is not None else ""  # type: ignore[arg-type]


def _route(analysis: Analysis) -> VerdictView:
    route = analysis.route
    return VerdictView(
        route.label, route.certainty.value.replace("_", " "), clean(route.reason), _proof(route.evidence)
    )


def _proof(lines: tuple[EvidenceLine, ...]) -> tuple[Row, ...]:
    return tuple((clean(line.where, 160), clean(line.text, 300)) for line in lines)


def _submissions(evidence: TrialEvidence, analysis: Analysis) -> tuple[Row, ...]:
    routes = {route.number: route.finding for route in analysis.submission_routes}
    rows = []
    for submission in evidence.submissions[:MAX_ROWS]:
        score = submission.score
        delta = points(100 * (score.value - evidence.base_public.value)) if score is not None else points(None)
        marks = " ★ final" if submission.number == evidence.final_submission else ""
        marks += " · copy of the base" if submission.is_base_copy else ""
        route = routes[submission.number]
        rows.append(
            (
                f"{submission.number}{marks}",
                duration(submission.received_at - evidence.started_at),
                clean(submission.model_path, 120),
                clean(submission.note, 200),
                submission.state.value,
                score_words(score, "no score"),
                delta,
                f"{route.label} ({route.certainty.value.replace('_', ' ')})",
                clean((submission.revision or "")[:10]),
                clean(submission.reason, 500),
            )
        )
    return tuple(rows)


def _failures(analysis: Analysis) -> tuple[VerdictView, ...]:
    views = []
    for failure in analysis.failures[:MAX_ROWS]:
        recovered = {True: "recovered", False: "not recovered", None: "recovery not known"}[failure.recovered]
        views.append(VerdictView(failure.kind.value, recovered, clean(failure.detail), _proof(failure.evidence)))
    return tuple(views)


def _findings(analysis: Analysis) -> tuple[VerdictView, ...]:
    return tuple(
        VerdictView(
            clean(f"{found.subject}: {found.name}" if found.subject else found.name),
            f"{found.effect.value}, {found.severity.value} severity",
            clean(found.words, 600),
            tuple((clean(proof.where, 160), clean(proof.what, 300)) for proof in found.proofs),
        )
        for found in analysis.integrity.findings[:MAX_ROWS]
    )


def _process(analysis: Analysis) -> tuple[Row, ...]:
    process, cost = analysis.process, analysis.efficiency
    return (
        ("submissions received / scored", f"{process.n_submissions} / {process.n_scored}"),
        ("valid_submission_rate", ratio(process.valid_submission_rate)),
        ("first_valid_idx", count(process.first_valid_idx)),
        ("first_valid_delay", duration(process.first_valid_delay)),
        ("time_to_first_improvement", duration(process.time_to_first_improvement)),
        ("time_to_best", duration(process.time_to_best)),
        ("monotonic_ratio", ratio(process.monotonic_ratio)),
        ("copy_model_count", count(process.copy_model_count)),
        ("time_used_ratio", ratio(process.time_used_ratio)),
        ("last_submit_gap", duration(process.last_submit_gap)),
        ("time with a training program running", duration(cost.training_program_s)),
        ("span of the training logs", duration(cost.training_log_s)),
        ("largest resident memory of a process", size(cost.max_rss_bytes)),
        ("CPU time of all processes", duration(cost.cpu_s)),
        ("GPU-hours", "not measured" if cost.gpu_hours is None else f"{cost.gpu_hours:.2f}"),
    )


def _revisions(analysis: Analysis) -> tuple[Row, ...]:
    rows = []
    for change in analysis.changes[:MAX_ROWS]:
        files = [f"{clean(file.path, 80)} +{file.added} -{file.removed}" for file in change.files[:MAX_FILES_SHOWN]]
        more = len(change.files) - len(files)
        rows.append(
            (
                clean(change.id[:10]),
                duration(change.seconds),
                count(change.submission),
                "; ".join(files) + (f"; and {more} more" if more > 0 else "") if files else "no change",
            )
        )
    return tuple(rows)


def _processes(evidence: TrialEvidence) -> tuple[Row, ...]:
    samples = sorted(evidence.processes, key=lambda sample: -sample.cpu_s)[:MAX_ROWS]
    return tuple(
        (
            str(sample.pid),
            clean(" ".join(sample.command), 160),
            duration(sample.first_seen - evidence.started_at),
            duration(sample.last_seen - sample.first_seen),
            duration(sample.cpu_s),
            size(sample.max_rss_bytes),
        )
        for sample in samples
    )


def _provenance(evidence: TrialEvidence) -> tuple[Row, ...]:
    rows = [("base model, weights digest", clean(evidence.base_weights_digest))]
    for key, value in sorted(evidence.lock.items()):
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for part, content in inner:
            text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
            rows.append((clean(f"{key}.{part}" if part else key, 80), clean(text, 200)))
    return tuple(rows)
