"""What the gateway, the agent's own record, the GPUs and people left in a trial's folder, as evidence."""

from collections.abc import Mapping
from pathlib import PurePath

from agent2.arena.eventlog import read_events
from agent2.arena.evidence import Intervention, LlmCall, LlmRecord
from agent2.arena.gateway.read import Exchange, Outcome, read_exchanges, totals
from agent2.arena.paths import TrialPaths
from agent2.records import JsonValue

DIFFERENCES = "differences.jsonl"
_UNANSWERED = frozenset({Outcome.LOST, Outcome.OPEN})


def read_llm(paths: TrialPaths, config: Mapping[str, JsonValue]) -> LlmRecord | None:
    """The agent's LLM calls; None for an agent without a driver."""
    if config.get("driver") is None:
        return None
    exchanges = read_exchanges(paths.llm)
    budget, replay = config.get("budget") or {}, config.get("replay")
    return LlmRecord(
        totals=totals(exchanges),
        calls=tuple(_call(exchange) for exchange in exchanges),
        max_tokens=budget.get("llm_tokens"),
        max_dollars=budget.get("llm_dollars"),
        replay_of=PurePath(str(replay.get("trial"))).name if isinstance(replay, dict) else None,
        n_differences=len(read_events(paths.llm / DIFFERENCES).rows),
    )


def _call(exchange: Exchange) -> LlmCall:
    return LlmCall(
        number=exchange.id,
        t=exchange.started_at,
        seconds=exchange.latency_s,
        protocol=exchange.protocol.value,
        asked_model=exchange.asked_model,
        model=exchange.model,
        outcome=exchange.outcome.value,
        status=exchange.status,
        tokens=exchange.tokens,
        is_counted=exchange.counted and exchange.outcome not in _UNANSWERED,
        dollars=exchange.dollars,
        retries=exchange.retries,
        fault=exchange.fault,
    )


def read_gpu_hours(paths: TrialPaths) -> float | None:
    """Hours in which GPUs worked for the agent; None where that was not measured."""
    found = [row.get("seconds") for row in read_events(paths.gpu_log).rows if row.get("event") == "gpu_use"]
    lists = [seconds for seconds in found if isinstance(seconds, list)]  # one for each start of the agent
    return sum(map(sum, lists)) / 3600 if lists and len(lists) == len(found) else None


def read_interventions(paths: TrialPaths, warnings: list[str]) -> tuple[Intervention, ...]:
    """What people reported of themselves."""
    events = read_events(paths.interventions_log)
    if events.n_torn:
        warnings.append(f"events/interventions.jsonl: {events.n_torn} damaged line(s) left out.")
    return tuple(Intervention(float(row["t"]), str(row.get("note", "")), str(row.get("by", ""))) for row in events.rows)
