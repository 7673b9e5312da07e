"""Detectors of the classes selection and argument: what a call names, against what was offered and given."""

import re
from collections.abc import Iterator, Mapping, Sequence

from rapidfuzz.distance import OSA

from agent2.environments.tools.toolboxes import SEARCH
from agent2.environments.tools.world import LOGIN, ErrorKind, ToolFaultKind
from agent2.records import JsonValue
from agent2.scorers.grounding.claims import (
    CallMade,
    ClaimKind,
    Seen,
    TextClaim,
    claims_of,
    leaves_of,
    plain,
    speaks_of_days,
    stem,
    word_set,
)
from agent2.scorers.grounding.tool_results import GroundingFinding, Grounds

_FREE = word_set(
    """
    query q question keyword keywords words text message body comment reason note notes description content
    subject summary thought title
    """
)
"""Parameters that take the model's own words; only checkable claims in them have to be given."""
_OWN = word_set(
    """
    code patch sql expression formula script command calculation program regex pattern
    """
)
"""Parameters in which a model computes or programs."""
_PLACES = word_set(
    """
    line page part limit offset index position rank row column k n top top_k size max_results num_results depth
    start_line end_line per_page max count_limit timeout
    """
)
"""Parameters that say how much or where, not what."""
_OPTIONS = word_set(
    """
    true false yes no all any none null default asc desc ascending descending celsius fahrenheit metric imperial
    json html csv xml en utf-8 utc today now current latest low medium high economy business one_way round_trip
    """
)
"""Values that an interface itself offers."""
_SEARCHING = re.compile(r"search|find|query|lookup|look_up|retrieve|browse")


def unknown_tool(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A call of a tool that does not exist."""
    for call in grounds.episode.calls:
        if call.error == ErrorKind.UNKNOWN_TOOL:
            yield GroundingFinding("unknown_tool", call.turn, str(call.name), f"there is no tool {call.name!r}")


def unneeded_tool(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A call where the item asks for none."""
    gold = None if grounds.item is None else grounds.item.payload.get("gold")
    if gold is None or isinstance(gold, Mapping) or len(gold):
        return
    for call in grounds.episode.calls[:1]:
        yield GroundingFinding(
            "unneeded_tool", call.turn, str(call.name), f"{call.name} was called where no tool fits the task"
        )


def wrong_tool(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A call of an existing tool that is not the one that the item asks for."""
    gold = None if grounds.item is None else grounds.item.payload.get("gold")
    if not gold:
        return
    wanted = {str(one["name"]) for one in ([gold] if isinstance(gold, Mapping) else gold)}
    for call in grounds.episode.calls:
        if call.name is None or call.error == ErrorKind.UNKNOWN_TOOL or call.name in {*wanted, SEARCH.name, LOGIN}:
            continue
        yield GroundingFinding("wrong_tool", call.turn, call.name, f"the task asks for {', '.join(sorted(wanted))}")


def misfit_argument(grounds: Grounds) -> Iterator[GroundingFinding]:
    """Arguments that the tool's schema refuses."""
    for call in grounds.episode.calls:
        if call.error == ToolFaultKind.SCHEMA_ERROR and not call.injected:
            yield GroundingFinding(
                "misfit_argument", call.turn, str(call.name), f"{call.name} refuses it: {call.detail}"
            )


def invented_argument(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An argument that neither the task nor any result gave before."""
    for call, name, value in _arguments(grounds):
        seen = grounds.seen(call.turn)
        for text in _not_given(call, name, value, grounds):
            if _misspelling(text, seen) is None:
                yield GroundingFinding(
                    "invented_argument", call.turn, text, f"{name} of {call.name} was given nowhere before"
                )


def misspelt_argument(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An argument that is nearly a value that was given."""
    for call, name, value in _arguments(grounds):
        seen = grounds.seen(call.turn)
        suspects = _not_given(call, name, value, grounds)
        if isinstance(value, str) and not suspects and _SEARCHING.search(call.name or ""):
            suspects = _searched_for(value, seen)
        for text in suspects:
            if (meant := _misspelling(text, seen)) is not None:
                yield GroundingFinding(
                    "misspelt_argument", call.turn, text, f"{name} of {call.name}: {meant!r} was given"
                )


def _arguments(grounds: Grounds) -> Iterator[tuple[CallMade, str, JsonValue]]:
    """Every value in the arguments of calls of existing tools, with the name of its parameter."""
    for call in grounds.episode.calls:
        if call.name in (None, LOGIN) or call.error == ErrorKind.UNKNOWN_TOOL:
            continue
        yield from ((call, name, value) for name, value in _named_leaves(call.arguments, ""))


def _searched_for(query: str, seen: Seen) -> list[str]:
    """The words of a query that may be misspelt: names, and words that differ from a given one in a single letter."""
    names = [one.text for one in claims_of(query) if one.kind is ClaimKind.NAME and not seen.has_words(one.text)]
    for word in plain(query).split():
        meant = None if len(word) < 5 or stem(word) in seen.stems else _misspelling(word, seen)
        if (
            meant is not None
            and OSA.distance(word, meant) == 1
            and not (word.startswith(meant) or meant.startswith(word))
        ):
            names.append(word)
    return names


def _named_leaves(value: JsonValue, name: str) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named_leaves(inner, str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named_leaves(inner, name)
    elif value is not None and not isinstance(value, bool):
        yield name, value


def _not_given(call: CallMade, name: str, value: JsonValue, grounds: Grounds) -> list[str]:
    """The parts of an argument that were given nowhere."""
    key, seen = name.casefold(), grounds.seen(call.turn)
    if key in _OWN or (key in _PLACES and re.fullmatch(r"\d{1,4}", str(value))):
        return []
    if isinstance(value, int | float):
        numbers = [float(one) for one in leaves_of(call.arguments) if isinstance(one, int | float)]
        beside = [one for one in numbers if one in seen.numbers] + grounds.figures_said(call.turn)
        return [] if seen.says_number(float(value), str(value), beside) else [str(value)]
    text = str(value).strip()
    is_free = key in _FREE or len(text.split()) > 6 or "\n" in text
    if is_free:
        if _SEARCHING.search(call.name or ""):
            return []
        free = [one for one in claims_of(text) if one.kind not in (ClaimKind.NUMBER, ClaimKind.QUOTE)]
        return [one.text for one in free if not seen.says(one)]
    if not text or text.casefold() in _OPTIONS or re.fullmatch(r"[A-Z]{2,4}", text) or seen.has_words(text):
        return []
    claims = claims_of(text, with_names=False)
    if claims and any(one.kind is ClaimKind.ADDRESS for one in claims):
        return [one.text for one in claims if not seen.says(one)]
    if claims and _is_only(text, claims):
        if claims[0].kind is ClaimKind.DATE and speaks_of_days(" ".join(seen.texts)):
            return []
        if all(seen.says(one) for one in claims):
            return []
    digits = re.sub(r"\D", "", text)
    if len(digits) >= 5 and not re.search(r"[A-Za-z]", text) and digits in re.sub(r"\D", "", " ".join(seen.texts)):
        return []
    return [text]


def _is_only(text: str, claims: Sequence[TextClaim]) -> bool:
    """Whether a text is its claims and nothing else."""
    for one in claims:
        text = text.replace(one.text, " ")
    return not re.search(r"\w", text)


def _misspelling(text: str, seen: Seen) -> str | None:
    """The given value that a text is a misspelling of; None: of none."""
    words, wrong = plain(text).split(), []
    for word in words:
        if stem(word) in seen.stems:
            continue
        if len(word) < 3 or any(letter.isdigit() for letter in word):
            return None
        most = 1 if len(word) < 6 else 2
        near = [
            other
            for other in set(seen.words.split())
            if len(other) >= 4 and other[0] == word[0] and 0 < OSA.distance(word, other, score_cutoff=most) <= most
        ]
        near += [
            other
            for other in set(seen.words.split())
            if len(other) >= 5 and not near and OSA.distance(word, other, score_cutoff=1) == 1
        ]
        if not near:
            return None
        wrong.append(min(near, key=lambda other: (OSA.distance(word, other), other)))
    return " ".join(wrong) or None
