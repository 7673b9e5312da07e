"""Detectors of conduct: calls that are repeated for nothing, and answers without a search.

They say how an agent works, not whether what it says has ground: a reward of grounding does not count them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from agent2.environments.tools.world import repeated_calls, repeated_failures
from agent2.records import JsonValue
from agent2.scorers.grounding.actions import is_acting
from agent2.scorers.grounding.episodes import RecordedCall
from agent2.scorers.grounding.tool_results import ADMITS, EpisodeEvidence, GroundingFinding

SEARCHING = re.compile(r"search|find|query|lookup|look_up|retrieve|browse", re.IGNORECASE)
_OFFERED = re.compile(rf"\b\w*(?:{SEARCHING.pattern})\w*\s?[(\[]", re.IGNORECASE)
"""A searching tool in the text of a task, with its parameters: `search(keyword)`, `find[words]`."""


def repeated_call(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """A call that had succeeded with the same arguments, and nothing changed since."""
    yield from _repeated(evidence, repeated_calls(_records(evidence.episode.calls)), "repeated_call", "succeeded")


def repeated_failing_call(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """A call that had failed with the same arguments, and nothing changed since."""
    positions = repeated_failures(_records(evidence.episode.calls))
    yield from _repeated(evidence, positions, "repeated_failing_call", "failed")


def _repeated(
    evidence: EpisodeEvidence, positions: Sequence[int], detector: str, outcome: str
) -> Iterator[GroundingFinding]:
    for position in positions:
        call = evidence.episode.calls[position]
        reason = f"the same call {outcome} before, and nothing changed since"
        yield GroundingFinding(detector, call.turn, f"{call.name} {dict(call.arguments)}", reason)


def _records(calls: Sequence[RecordedCall]) -> list[Mapping[str, JsonValue]]:
    """Calls as worlds record them; where none recorded whether a call changed something, its name decides."""
    return [
        {
            "name": call.name,
            "arguments": call.arguments,
            "error": call.error,
            "detail": call.detail,
            "injected": call.injected,
            "changed": is_acting(call),
        }
        for call in calls
    ]


def answer_without_search(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """An answer without one call of a searching tool, where the task offers one."""
    episode = evidence.episode
    offered = _OFFERED.search(episode.opening)
    if offered is None or episode.final is None or any(SEARCHING.search(call.name or "") for call in episode.calls):
        return
    if not ADMITS.search(episode.final.text) and not episode.final.text.rstrip(' *")').endswith("?"):
        reason = f"{offered[0].rstrip(' ([')} was offered and not called"
        yield GroundingFinding("answer_without_search", episode.final.turn, episode.final.text[:100], reason)
