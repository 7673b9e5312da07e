"""Contents of the pages of one trial: tables over the records of evidence and analysis, for HTML and Markdown alike.

Every text that an agent could have written passes `clean` here; the templates escape the result for their own format.
No number is computed here: the analysis did that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

import msgspec

from agent2.arena.analysis.result import held_out_words
from agent2.arena.analysis.verdicts import Analysis, EvidenceLine, ResultKind, RevisionChange
from agent2.arena.evidence import (
    AssignmentVerdict,
    CommandLine,
    HeldOutScore,
    LlmCall,
    LlmRecord,
    ProcessSample,
    Reproduction,
    SubmissionRecord,
    TrialEvidence,
    TypeScore,
)
from agent2.arena.sweep_records import NOTHING_USABLE, SweepRow
from agent2.integrity import IntegrityCheck
from agent2.llm.records import TokenCounts
from agent2.records import JsonValue
from agent2.reports.headline import (
    Headline,
    cost_words,
    headline,
    headline_facts,
    headline_fields,
    headline_tiles,
    mode_words,
)
from agent2.reports.retention_view import SkillRow, retention_of
from agent2.reports.text import (
    DASH,
    Column,
    FieldTable,
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
from agent2.stats.estimates import PERCENT, POINTS

T = TypeVar("T")

BASE_COUNTS = frozenset({ResultKind.VOID.value, ResultKind.GATE_FAILED.value})
"""Results that count as the base model's score, whatever was measured."""
MAX_ROWS = 200
MAX_FILES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class TypeMean:
    """Scores of one task type, averaged over the trials of one stack that have a result."""

    stack: str
    task_type: str
    base: float | None
    final: float | None
    """A trial whose result is the base model, or void, counts with the base's score."""
    n_trials: int
    n_items: int


def type_table(scores: Sequence[TypeScore]) -> Table[TypeScore]:
    """One row for each task type; differences have no interval, since types have few items."""
    return Table(
        (
            Column("task type", lambda score: clean(score.task_type)),
            Column("base", lambda score: score_words(score.base, DASH)),
            Column("final", lambda score: score_words(score.final, "the base model itself")),
            Column("difference, points", lambda score: points(_difference(score))),
        ),
        scores,
    )


def held_out_table(scores: Sequence[HeldOutScore]) -> Table[HeldOutScore]:
    """One row for each held-out task."""
    return Table(
        (
            Column("held-out task", lambda score: clean(score.task)),
            Column("items", lambda score: str(score.base.n) if score.base is not None else DASH),
            Column("base [95%]", lambda score: PERCENT.estimate(score.base) if score.base is not None else DASH),
            Column("final [95%]", lambda score: PERCENT.estimate(score.final) if score.final is not None else DASH),
            Column("change", lambda score: clean(held_out_words(score), 300)),
            Column("p", lambda score: p_words(score.change.p_value) if score.change is not None else DASH),
        ),
        scores,
    )


def sweep_type_table(rows: Sequence[SweepRow]) -> Table[TypeMean]:
    """One row for each stack and task type: means over the trials that have a result."""
    groups: dict[tuple[str, str], list[TypeScore]] = {}
    for row in rows:
        if row.gain is None:
            continue
        for score in row.by_type:
            counted = replace(score, final=None) if row.result in BASE_COUNTS | NOTHING_USABLE else score
            groups.setdefault((f"{row.agent} · {row.task}", score.task_type), []).append(counted)
    means = [
        TypeMean(
            stack=stack,
            task_type=kind,
            base=_mean([score.base.value for score in scores if score.base is not None]),
            final=_mean([estimate.value for score in scores if (estimate := score.final or score.base) is not None]),
            n_trials=len(scores),
            n_items=max((score.base.n for score in scores if score.base is not None), default=0),
        )
        for (stack, kind), scores in sorted(groups.items())
    ]
    return Table(
        (
            Column("stack", lambda mean: clean(mean.stack)),
            Column("task type", lambda mean: clean(mean.task_type)),
            Column("base, private", lambda mean: percent(mean.base)),
            Column("final, private", lambda mean: percent(mean.final)),
            Column("seeds", lambda mean: str(mean.n_trials)),
            Column("items", lambda mean: str(mean.n_items)),
        ),
        means,
    )


def _difference(score: TypeScore) -> float | None:
    if score.base is None or score.final is None:
        return None
    return 100 * (score.final.value - score.base.value)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


@dataclass(frozen=True, slots=True)
class ModelTokens:
    """Token counts of one model."""

    model: str
    tokens: TokenCounts


@dataclass(frozen=True, slots=True)
class LlmView:
    """The tables about an agent's driver."""

    totals: FieldTable[LlmRecord]
    models: Table[ModelTokens]
    calls: Table[LlmCall]


def llm_view(evidence: TrialEvidence) -> LlmView | None:
    """None for an agent without a driver."""
    llm = evidence.llm
    if llm is None:
        return None
    models = Table(
        (
            Column[ModelTokens]("model", lambda model: clean(model.model, 80)),
            *_token_columns(lambda model: model.tokens),
        ),
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
                    call.asked_model if call.asked_model == call.model else f"{call.asked_model} → {call.model}",
                    80,
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


def command_table(evidence: TrialEvidence) -> Table[tuple[int, CommandLine]]:
    """The command lines of the agent's own record, numbered from 1."""
    outcomes = {True: "failed", False: "ok", None: DASH}
    started_at = evidence.started_at
    return Table(
        (
            Column("#", lambda line: str(line[0])),
            Column("command", lambda line: clean(line[1].command, 300)),
            Column("at", lambda line: duration(line[1].t - started_at) if line[1].t is not None else DASH),
            Column("outcome", lambda line: outcomes[line[1].failed]),
            Column("exit code", lambda line: count(line[1].exit_code)),
        ),
        list(enumerate(evidence.commands[:MAX_ROWS], start=1)),
    )


def reproduction_table(evidence: TrialEvidence) -> Table[Reproduction]:
    """The reproductions of a trial, in the order in which they were recorded."""

    def verdict(reproduction: Reproduction) -> str:
        return reproduction.verdict.value + ("" if reproduction.is_own else " (says somebody else; does not count)")

    return Table(
        (Column("verdict", verdict), *_REPRODUCTION_COLUMNS),
        evidence.reproductions[-MAX_ROWS:],
    )


def reproduction_fields(reproduction: Reproduction) -> FieldTable[Reproduction]:
    """One reproduction, a line for each field."""
    return FieldTable((Column("verdict", lambda r: r.verdict.value), *_REPRODUCTION_COLUMNS), reproduction)


def _pair_words(reproduction: Reproduction) -> str:
    pair = reproduction.difference
    return f"{POINTS.estimate(pair.change)}, {p_words(pair.p_value)}" if pair is not None else DASH


_REPRODUCTION_COLUMNS: tuple[Column[Reproduction], ...] = (
    Column("seed", lambda r: f"{r.seed}{', the recorded one' if r.is_same_seed else ''}"),
    Column("against the recorded checkpoint, points", _pair_words),
    Column("noise band, points", lambda r: f"±{100 * r.noise:.1f}" if r.noise is not None else DASH),
    Column("gain of the new trial, points", lambda r: POINTS.estimate(r.gain.change) if r.gain else DASH),
    Column("reason", lambda r: clean(r.reason, 500)),
    Column("what differed", lambda r: clean("; ".join(r.conditions), 500) or DASH),
    Column("new trial", lambda r: clean(r.trial or "", 120) or DASH),
)


def conduct_fields(analysis: Analysis) -> FieldTable[Analysis]:
    """Mode, autonomy and recovery."""

    def task(a: Analysis) -> str:
        if not a.autonomy.is_shown:
            return "not shown: what was scored is not shown to be trained"
        completed = "completed" if a.autonomy.is_completed else "not completed"
        return completed + (", by the agent alone" if a.autonomy.is_autonomous else "")

    def failures(a: Analysis) -> str:
        unknown = f", {a.recovery.n_unknown} not known" if a.recovery.n_unknown else ""
        return f"{a.recovery.n_failures} / {a.recovery.n_recovered}{unknown}"

    return FieldTable(
        (
            Column("mode", lambda a: mode_words(a.mode)),
            Column("task", task),
            Column("human interventions", lambda a: f"{a.autonomy.n_interventions or 'none'} reported"),
            Column("failures / recovered", failures),
            Column("recovery rate", lambda a: ratio(a.recovery.rate)),
            Column("commands / failed", lambda a: f"{a.recovery.n_commands} / {a.recovery.n_failed_commands}"),
            Column(
                "failed commands followed by one that succeeded",
                lambda a: str(a.recovery.n_followed_by_success),
            ),
        ),
        analysis,
    )


def _llm_totals(llm: LlmRecord) -> FieldTable[LlmRecord]:
    def failures(record: LlmRecord) -> str:
        totals = record.totals
        return " / ".join(map(str, (totals.n_failed, totals.n_partial, totals.n_lost, totals.n_refused)))

    def tokens(n: int, n_part: int, part: str) -> str:
        return f"{n:,} ({n_part:,} of them {part})"

    return FieldTable(
        (
            Column("calls", lambda record: str(record.totals.calls)),
            Column(
                "input tokens",
                lambda record: tokens(record.totals.tokens.input, record.totals.tokens.cached_input, "cached"),
            ),
            Column(
                "output tokens",
                lambda record: tokens(record.totals.tokens.output, record.totals.tokens.reasoning, "reasoning"),
            ),
            Column("cost", cost_words),
            Column("failed / broken off / lost / refused", failures),
            Column("retries", lambda record: str(record.totals.retries)),
            Column(
                "answers",
                lambda record: (
                    clean(f"recorded ones of {record.replay_of}; {record.n_differences} requests differed")
                    if record.replay_of is not None
                    else ""
                ),
            ),
        ),
        llm,
    )


def _token_columns(tokens: Callable[[T], TokenCounts]) -> tuple[Column[T], ...]:
    return (
        Column("input", lambda record: f"{tokens(record).input:,}"),
        Column("cached", lambda record: f"{tokens(record).cached_input:,}"),
        Column("output", lambda record: f"{tokens(record).output:,}"),
        Column("reasoning", lambda record: f"{tokens(record).reasoning:,}"),
    )


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One question of the analysis, with its verdict and evidence."""

    name: str
    verdict: str
    reason: str
    proof: tuple[EvidenceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialView:
    """All texts of a trial's pages."""

    title: str
    subtitle: str
    result: str
    is_unsandboxed: bool
    warnings: tuple[str, ...]
    tiles: tuple[Tile, ...]
    headline: FieldTable[Headline]
    facts: FieldTable[Headline]
    """What the headline says beside the tiles and the sentence."""
    best_submission: int | None
    """Number of the one with the best public score."""
    route: VerdictView
    reproductions: Table[Reproduction]
    """What came out when the recorded program was run again."""
    assignment: VerdictView | None
    """On an assignment that asks for more than a checkpoint."""
    assignment_parts: tuple[VerdictView, ...]
    retention: Table[SkillRow]
    """What the final checkpoint still does beside the task."""
    submissions: Table[SubmissionRecord]
    stages: tuple[VerdictView, ...]
    criteria: tuple[VerdictView, ...]
    failures: tuple[VerdictView, ...]
    types: Table[TypeScore]
    """Private scores by task type."""
    held_out: Table[HeldOutScore]
    conduct: FieldTable[Analysis]
    """Mode, autonomy and recovery."""
    conduct_proof: tuple[EvidenceLine, ...]
    integrity: VerdictView
    findings: tuple[VerdictView, ...]
    """Of the integrity audit."""
    checks: Table[IntegrityCheck]
    """Coverage of each check of the audit."""
    llm: LlmView | None
    commands: Table[tuple[int, CommandLine]]
    process: FieldTable[Analysis]
    revisions: Table[RevisionChange]
    processes: Table[ProcessSample]
    containment: Table[Mapping[str, str]]
    provenance: Table[tuple[str, JsonValue]]
    left_out: tuple[str, ...]
    """Tables that were cut, one sentence each."""


def _assignment(verdict: AssignmentVerdict | None) -> VerdictView | None:
    if verdict is None:
        return None
    credit = "no credit given" if verdict.credit is None else f"credit {verdict.credit:.2f} of 1"
    return VerdictView(verdict.kind, "passed" if verdict.passed else "not passed", credit)


def _assignment_parts(verdict: AssignmentVerdict | None) -> tuple[VerdictView, ...]:
    parts = verdict.parts if verdict is not None else ()
    return tuple(
        VerdictView(part.name, DASH if part.credit is None else f"{part.credit:.2f}", clean(part.reason, 600))
        for part in parts
    )


def trial_view(evidence: TrialEvidence, analysis: Analysis) -> TrialView:
    """The texts of a trial's pages."""
    task, short = evidence.task, headline(evidence, analysis)
    driver = f" driven by {evidence.driver}" if evidence.driver else ""
    n_rows = {
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
        result=clean(analysis.result.words),
        is_unsandboxed=evidence.sandbox == "none",
        warnings=tuple(clean(warning) for warning in analysis.warnings),
        tiles=headline_tiles(short),
        headline=headline_fields(short),
        facts=headline_facts(short),
        best_submission=short.best_submission,
        route=_route(analysis),
        reproductions=reproduction_table(evidence),
        assignment=_assignment(evidence.assignment),
        assignment_parts=_assignment_parts(evidence.assignment),
        retention=retention_of(evidence),
        submissions=_submissions(evidence, analysis),
        stages=tuple(
            VerdictView(s.stage.value, s.verdict.value, clean(s.reason), _proof(s.evidence)) for s in analysis.stages
        ),
        criteria=tuple(VerdictView(c.name, c.verdict.value, clean(c.reason)) for c in analysis.criteria),
        failures=_failures(analysis),
        types=type_table(evidence.by_type),
        held_out=held_out_table(evidence.held_out),
        conduct=conduct_fields(analysis),
        conduct_proof=_proof((*analysis.mode.evidence, *analysis.autonomy.evidence, *analysis.recovery.evidence)),
        integrity=VerdictView(
            "Integrity", analysis.integrity.state.value.replace("_", " "), clean(analysis.integrity.reason, 600)
        ),
        findings=tuple(
            VerdictView(
                clean(f"{finding.subject}: {finding.name}" if finding.subject else finding.name),
                f"{finding.effect.value}, {finding.severity.value} severity",
                clean(finding.words, 600),
                _proof(EvidenceLine(proof.where, proof.what) for proof in finding.proofs),
            )
            for finding in analysis.integrity.findings[:MAX_ROWS]
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
        left_out=tuple(
            f"{n - MAX_ROWS} of {n} {name} are left out here." for name, n in n_rows.items() if n > MAX_ROWS
        ),
    )


def _route(analysis: Analysis) -> VerdictView:
    route = analysis.route
    return VerdictView(
        route.label, route.certainty.value.replace("_", " "), clean(route.reason), _proof(route.evidence)
    )


def _proof(lines: Iterable[EvidenceLine]) -> tuple[EvidenceLine, ...]:
    return tuple(EvidenceLine(clean(line.where, 160), clean(line.text, 300)) for line in lines)


def _submissions(evidence: TrialEvidence, analysis: Analysis) -> Table[SubmissionRecord]:
    routes = {route.number: route.finding for route in analysis.submission_routes}

    def number(submission: SubmissionRecord) -> str:
        marks = " ★ final" if submission.number == evidence.final_submission else ""
        return f"{submission.number}{marks}{' · copy of the base' if submission.is_base_copy else ''}"

    def against_base(submission: SubmissionRecord) -> str:
        return DASH if submission.score is None else POINTS.number(submission.score.value - evidence.base_public.value)

    def route(submission: SubmissionRecord) -> str:
        finding = routes[submission.number]
        return f"{finding.label} ({finding.certainty.value.replace('_', ' ')})"

    return Table(
        (
            Column("#", number),
            Column("at", lambda submission: duration(submission.received_at - evidence.started_at)),
            Column("path", lambda submission: clean(submission.model_path, 120)),
            Column("note", lambda submission: clean(submission.note, 200)),
            Column("state", lambda submission: submission.state.value),
            Column("public score", lambda submission: score_words(submission.score, "no score")),
            Column("vs base, points", against_base),
            Column("route", route),
            Column("revision", lambda submission: clean((submission.revision or "")[:10])),
            Column("reason", lambda submission: clean(submission.reason, 500)),
        ),
        evidence.submissions[:MAX_ROWS],
    )


def _failures(analysis: Analysis) -> tuple[VerdictView, ...]:
    views = []
    for failure in analysis.failures[:MAX_ROWS]:
        recovered = {True: "recovered", False: "not recovered", None: "recovery not known"}[failure.recovered]
        views.append(VerdictView(failure.kind.value, recovered, clean(failure.detail), _proof(failure.evidence)))
    return tuple(views)


def _process(analysis: Analysis) -> FieldTable[Analysis]:
    return FieldTable(
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
            Column("processor time of training programs", lambda a: duration(a.efficiency.training_cpu_s)),
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
        listed = [f"{clean(file.path, 80)} +{file.added} -{file.removed}" for file in change.files[:MAX_FILES_SHOWN]]
        more = len(change.files) - len(listed)
        return "; ".join(listed) + (f"; and {more} more" if more > 0 else "") if listed else "no change"

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
            Column("pid", lambda process: str(process.pid)),
            Column("command", lambda process: clean(" ".join(process.command), 160)),
            Column("from", lambda process: duration(process.first_seen - evidence.started_at)),
            Column("seen for", lambda process: duration(process.last_seen - process.first_seen)),
            Column("CPU", lambda process: duration(process.cpu_s)),
            Column("memory", lambda process: size(process.max_rss_bytes)),
        ),
        sorted(evidence.processes, key=lambda sample: -sample.cpu_s)[:MAX_ROWS],
    )


def _provenance(evidence: TrialEvidence) -> Table[tuple[str, JsonValue]]:
    rows: list[tuple[str, JsonValue]] = [("base model, weights digest", evidence.base_weights_digest)]
    for key, value in sorted(evidence.lock.items()):
        inner = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{key}.{part}" if part else key, content) for part, content in inner]

    def text(content: JsonValue) -> str:
        return clean(content if isinstance(content, str) else msgspec.json.encode(content).decode(), 200)

    return Table((Column("what", lambda row: clean(row[0], 80)), Column("value", lambda row: text(row[1]))), rows)
