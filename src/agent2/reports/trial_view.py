"""What the pages of one trial show: tables over the records of evidence and analysis, the same for HTML and Markdown.

Every text that an agent could have written passes `clean` here; the templates escape what comes out for their own
format. No number is computed here: the analysis did that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

import msgspec

from agent2.arena.analysis.process import best_submission
from agent2.arena.analysis.verdicts import Analysis, EvidenceLine, ResultKind, RevisionChange
from agent2.arena.evidence import (
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
from agent2.reports.headline import Headline, cost_words, gain_words, headline, headline_facts, mode_words
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
            Column("items", lambda one: str(one.n_items)),
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
                    call.requested_model
                    if call.requested_model == call.model
                    else f"{call.requested_model} → {call.model}",
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
            Column("mode", lambda found: mode_words(found.mode)),
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
