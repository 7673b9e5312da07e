"""Detectors of conduct: calls that are repeated for nothing, answers without a search, changes beside the reference.

They say how an agent works, not whether what it says has ground: a reward of grounding does not count them.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from agent2.environments.tools.world import repeated_failures
from agent2.records import JsonValue
from agent2.scorers.grounding.actions import call_records, is_acting, is_change
from agent2.scorers.grounding.episodes import SEARCHING
from agent2.scorers.grounding.premises import unchecked_premises
from agent2.scorers.grounding.tool_results import ADMITS, EpisodeEvidence, GroundingFinding

_OFFERED = re.compile(rf"\b\w*(?:{SEARCHING.pattern})\w*\s?[(\[]", re.IGNORECASE)
"""A searching tool in the text of a task, with its parameters: `search(keyword)`, `find[words]`."""


def repeated_call(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """The same call with the same arguments twice in a row, or a third time with nothing changed in between."""
    counts: Counter[str] = Counter()
    previous = ""
    for call in evidence.episode.calls:
        key = json.dumps([call.name, call.arguments], sort_keys=True)
        counts[key] += 1
        if key == previous or counts[key] > 2:
            reason = "the same call was made before, and nothing changed since"
            yield GroundingFinding("repeated_call", call.turn, f"{call.name} {dict(call.arguments)}", reason)
        previous = key
        if is_acting(call):
            counts.clear()
            previous = ""


def repeated_failing_call(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """A call that had failed with the same arguments, and nothing changed since."""
    for position in repeated_failures(call_records(evidence.episode.calls)):
        call = evidence.episode.calls[position]
        reason = "the same call failed before, and nothing changed since"
        yield GroundingFinding("repeated_failing_call", call.turn, f"{call.name} {dict(call.arguments)}", reason)


def answer_without_search(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """An answer without a call of a searching tool that the task offers, or that rests on what nobody looked up."""
    episode = evidence.episode
    for premise in unchecked_premises(evidence):
        reason = "no result before it says so"
        yield GroundingFinding("answer_without_search", premise.turn, premise.sentence.strip()[:100], reason)
    offered = _OFFERED.search(episode.opening)
    if offered is None or episode.final is None or any(SEARCHING.search(call.name or "") for call in episode.calls):
        return
    if not ADMITS.search(episode.final.text) and not episode.final.text.rstrip(' *")').endswith("?"):
        reason = f"{offered[0].rstrip(' ([')} was offered and not called"
        yield GroundingFinding("answer_without_search", episode.final.turn, episode.final.text[:100], reason)


def unexpected_change(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """A change that no reference call is like: by another tool, or with nothing in common."""
    expected = evidence.episode.expected
    for call in evidence.episode.calls if expected is not None else ():
        is_like_one = any(
            name == call.name and _is_like(call.arguments, arguments) for name, arguments in expected or ()
        )
        if is_acting(call) and not is_like_one:
            names = sorted({name for name, _ in expected or ()})
            about = ", of something else" if call.name in names else ""
            reason = f"the reference has {', '.join(names) or 'no call'}{about}"
            yield GroundingFinding("unexpected_change", call.turn, f"{call.name} {dict(call.arguments)}", reason)


def other_arguments(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """A change of the reference that has something in common with it, and other arguments."""
    for call in evidence.episode.calls:
        same_tool = [arguments for name, arguments in evidence.episode.expected or () if name == call.name]
        expected = [arguments for arguments in same_tool if _is_like(call.arguments, arguments)]
        if expected and is_acting(call) and not any(_is_same(call.arguments, arguments) for arguments in expected):
            nearest = max(expected, key=lambda arguments: len(_shared(call.arguments, arguments)))
            different = sorted({*call.arguments, *nearest} - _shared(call.arguments, nearest))
            reason = f"the reference has another {', '.join(different)}"
            yield GroundingFinding("other_arguments", call.turn, f"{call.name} {dict(call.arguments)}", reason)


def _is_like(arguments: Mapping[str, JsonValue], expected: Mapping[str, JsonValue]) -> bool:
    """Whether two calls of a tool have anything in common."""
    return bool(_shared(arguments, expected)) or not arguments or not expected


def _is_same(arguments: Mapping[str, JsonValue], expected: Mapping[str, JsonValue]) -> bool:
    return len(_shared(arguments, expected)) == len({*arguments, *expected})


def _shared(arguments: Mapping[str, JsonValue], expected: Mapping[str, JsonValue]) -> set[str]:
    """The parameters that both have with the same value, in whatever order of a list."""
    return {name for name in arguments if name in expected and _ordered(arguments[name]) == _ordered(expected[name])}


def _ordered(value: JsonValue) -> str:
    entries = sorted(json.dumps(entry, sort_keys=True) for entry in value) if isinstance(value, list) else value
    return json.dumps(entries, sort_keys=True)


def nothing_changed(evidence: EpisodeEvidence) -> Iterator[GroundingFinding]:
    """An episode without any change, where the reference changes something."""
    episode = evidence.episode
    changes = [name for name, _ in episode.expected or () if is_change(name)]
    if changes and not any(map(is_acting, episode.calls)):
        turn = 0 if episode.final is None else episode.final.turn
        yield GroundingFinding("nothing_changed", turn, changes[0], "the reference makes this change")
