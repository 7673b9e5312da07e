"""What a trial's page shows of its driver, its commands, and the people who stepped in: rows of clean text."""

from dataclasses import dataclass

from agent2.arena.analysis.verdicts import Analysis, Verdict
from agent2.arena.evidence import LlmRecord, TrialEvidence
from agent2.arena.gateway.settings import TokenCounts
from agent2.reports.text import clean
from agent2.reports.words import DASH, count, dollars, duration, ratio

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
