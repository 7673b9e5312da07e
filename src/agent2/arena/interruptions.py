"""Interruptions of an agent's phase: when the harness died under it, and when the agent was started again.

The agent dies with its harness. `trial.jsonl` then has `agent_interrupted` (Ctrl-C, a full disk) or nothing (a killed
harness, whose last touch of `harness.alive` says when), and `agent_restarted` once the trial was resumed. Time in
between counts for nobody: `ActiveTime` maps moments to a clock that stands still during these pauses.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent2.arena.eventlog import Events
from agent2.arena.paths import TrialPaths
from agent2.records import JsonValue

LEAST_RESTART_S = 5.0
"""An agent with less time left is not started again: it could do nothing."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The agent was stopped with its harness and started again."""

    stopped_at: float
    """Unix seconds; of a killed harness when it was alive last."""
    restarted_at: float
    used_s: float
    """Seconds that the agent had worked until then, pauses left out."""
    reason: str


def interruptions(events: Events) -> tuple[Interruption, ...]:
    """Every interruption that was followed by a restart, in order."""
    found: list[Interruption] = []
    began = used_s = 0.0
    told: dict[str, JsonValue] | None = None
    for row in events.rows:
        name = row.get("event")
        if name == "agent_started":
            began = float(row["t"])
        elif name == "agent_interrupted":
            told = row
        elif name == "agent_restarted":
            restarted_at = float(row["t"])
            stopped = min(max(float(row["stopped_at"]), began), restarted_at)
            used_s += stopped - began
            reason = str(told.get("reason", "")) if told is not None else "the harness was killed"
            found.append(Interruption(stopped, restarted_at, used_s, reason))
            began, told = restarted_at, None
    return tuple(found)


def stopped_at(events: Events, paths: TrialPaths) -> float | None:
    """When an open agent phase stopped, Unix seconds; None if no agent was started or its phase is closed."""
    starts = [row for row in events.rows if row.get("event") in ("agent_started", "agent_restarted")]
    if not starts or events.last("agent_ended") is not None:
        return None
    began, deadline = float(starts[-1]["t"]), float(starts[-1]["deadline"])
    told = events.last("agent_interrupted")
    if told is not None and float(told["t"]) >= began:
        last = float(told["t"])
    else:
        last = paths.alive.stat().st_mtime if paths.alive.exists() else began
    return min(max(last, began), deadline)


def time_used(events: Events, paths: TrialPaths) -> float:
    """Seconds that the agent has worked, pauses left out; 0 before it was started."""
    stopped = stopped_at(events, paths)
    if stopped is None:
        return 0.0
    earlier = interruptions(events)
    starts = [row for row in events.rows if row.get("event") in ("agent_started", "agent_restarted")]
    return (earlier[-1].used_s if earlier else 0.0) + stopped - float(starts[-1]["t"])


@dataclass(frozen=True, slots=True)
class ActiveTime:
    """A clock that stands still while the agent was not at work."""

    pauses: Sequence[Interruption]

    def __call__(self, t: float) -> float:
        """A moment (Unix seconds) without the pauses before it; one within a pause is the pause's beginning."""
        lost = sum(max(0.0, min(t, pause.restarted_at) - pause.stopped_at) for pause in self.pauses)
        return t - lost
