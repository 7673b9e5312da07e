"""What an agent says against what it saw: eighteen checks of a tool episode, each a function from records to findings.

Five classes, after the usual division of hallucinations of agents with tools:

    selection   a tool that does not exist, is not needed, or is not the one that is asked for
    argument    a value that does not fit, was never given, or is misspelt
    result      a conclusion that differs from what tools returned, or an action that was never carried out
    citation    a source that does not exist, was not read, or does not say it; an altered quotation
    cascade     one unsupported step on which later ones rest, and the tool that is blamed for it

Promises: deterministic; a finding names the turn and the words, so that a reader can verify it in the card. A text that
makes no checkable claim is not judged: for sentences without numbers, names, dates or quotations a model has to be
asked (`judge`). `unneeded_tool` and `wrong_tool` need the item's own target and stay silent without it.
Does NOT know the world: what a model knows from elsewhere and no tool said counts as never given.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from rapidfuzz.distance import OSA

from agent2.environments.tools.apis import SEARCH
from agent2.environments.tools.world import LOGIN, ErrorKind, ToolFaultKind
from agent2.records import Item, JsonValue
from agent2.scorers.grounding.claims import (
    MOST_OPERANDS,
    CallMade,
    ClaimKind,
    Seen,
    Statement,
    TextClaim,
    ToolEpisode,
    claims_of,
    data_of,
    leaves_of,
    number_of,
    plain,
    speaks_of_days,
    stem,
    word_set,
)


class FindingKind(StrEnum):
    """Where a claim lost its ground."""

    SELECTION = "selection"
    ARGUMENT = "argument"
    RESULT = "result"
    CITATION = "citation"
    CASCADE = "cascade"


@dataclass(frozen=True, slots=True)
class GroundingFinding:
    """One thing without ground."""

    detector: str
    turn: int
    """Number of the model's message, from 0."""
    what: str
    """The words or the value that is meant."""
    why: str
    """One sentence that a reader can verify in the card."""


class Grounds:
    """An episode with what was seen before each of its turns, computed once."""

    def __init__(self, episode: ToolEpisode, item: Item | None = None) -> None:
        self.episode, self.item = episode, item
        self._seen: dict[int, Seen] = {}

    def seen(self, turn: int) -> Seen:
        """What was told before a turn."""
        if turn not in self._seen:
            self._seen[turn] = self.episode.seen_before(turn)
        return self._seen[turn]

    @cached_property
    def told(self) -> tuple[Statement, ...]:
        """What was said to the user, the final answer among it."""
        return tuple(one for one in self.episode.statements if not one.is_thought)

    @cached_property
    def unsupported(self) -> tuple[tuple[Statement, TextClaim], ...]:
        """The claims of what was said that nothing told before supports."""
        found = []
        for statement in self.told:
            seen = self.seen(statement.turn if statement.turn not in self._calling else statement.turn + 1)
            claims = claims_of(_without_asking(statement.text))
            found += [(statement, claim) for claim in _unsaid(claims, seen)]
        return tuple(found)

    def figures_said(self, turn: int) -> list[float]:
        """The numbers in what was said before a turn that had been told, or follow."""
        found: list[float] = []
        for statement in (one for one in self.told if one.turn < turn):
            seen = self.seen(statement.turn)
            claims = [one for one in claims_of(statement.text, with_names=False) if one.kind is ClaimKind.NUMBER]
            without = _unsaid(claims, seen)
            found += [number_of(one.text) for one in claims if one not in without]
        return list(dict.fromkeys(found))[-MOST_OPERANDS:]

    @cached_property
    def _calling(self) -> set[int]:
        return {call.turn for call in self.episode.calls}


def _unsaid(claims: Sequence[TextClaim], seen: Seen) -> list[TextClaim]:
    """The claims that were not told; a number may follow from told numbers of the same message."""
    numbers = [claim for claim in claims if claim.kind is ClaimKind.NUMBER]
    beside: list[float] = []
    for _ in range(2):  # what follows from a number that follows
        beside = [number_of(one.text) for one in numbers if seen.says(one, beside)]
    return [claim for claim in claims if not seen.says(claim, beside)]


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
_OWN_FAULTS = frozenset(
    {ToolFaultKind.SCHEMA_ERROR, ErrorKind.UNKNOWN_TOOL, ErrorKind.MALFORMED_CALL, ErrorKind.TOOL}
    | {ErrorKind.NOT_PERMITTED, ErrorKind.REFUSED, ErrorKind.BUDGET}
)
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


def invented_number(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A number, date, time or identifier in what is said that nothing before supports."""
    for statement, claim in grounds.unsupported:
        if claim.kind in (ClaimKind.NUMBER, ClaimKind.DATE, ClaimKind.TIME, ClaimKind.IDENTIFIER):
            yield GroundingFinding(
                "invented_number", statement.turn, claim.text, f"no {claim.kind} {claim.text!r} was told before"
            )


def invented_name(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A name in what is said that nothing before mentions."""
    for statement, claim in grounds.unsupported:
        if claim.kind is ClaimKind.NAME:
            yield GroundingFinding(
                "invented_name", statement.turn, claim.text, f"nothing told before mentions {claim.text!r}"
            )
    yield from _invented_values(grounds)


def _invented_values(grounds: Grounds) -> Iterator[GroundingFinding]:
    """Values of a structured answer that no result says, in small letters too."""
    final = grounds.episode.final
    if final is None:
        return
    seen = grounds.seen(final.turn + 1)
    for value in grounds.episode.values:
        claims = claims_of(value)
        if not claims and value.casefold() != "unknown" and not seen.has_words(value):
            yield GroundingFinding("invented_name", final.turn, value, f"nothing told before mentions {value!r}")


@dataclass(frozen=True, slots=True)
class _Fact:
    """A value that a result gives under a key."""

    key: frozenset[str]
    """Stems of the words of its name."""
    value: JsonValue
    about: frozenset[str]
    """Words of the other texts beside it, and of the call's arguments."""


_KEY_LINE = re.compile(r"^\s*([A-Za-z][\w ]{1,30}?)\s*[:=]\s*(\S.{0,80}?)[.;,]?\s*$")
_PROPOSES = re.compile(
    r"\b(?:confirm|proceed|would you like|shall i|do you want|should i|is that (?:right|correct)|"
    r"details? (?:of|for) the new)\b",
    re.IGNORECASE,
)
"""A message that proposes something: its values need not be those that hold now."""
_NOT = re.compile(r"\b(?:not|no longer|never|n't|isn't|aren't|wasn't|without|no)\b|n't\b", re.IGNORECASE)
_NO_KEYS = word_set("id name type get fetch show list result value data the of")
_NO_TOOL_KEYS = word_set("api fast open city prime next")
"""Words in the names of tools that say nothing about what they return."""


def contradicted_result(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A sentence that gives a key of a result another value than the result does."""
    facts: list[_Fact] = []
    by_turn = sorted(grounds.episode.calls, key=lambda call: call.turn)
    for statement in grounds.told:
        while by_turn and by_turn[0].turn <= statement.turn:
            facts += _facts(by_turn.pop(0))
        for clause in [] if _PROPOSES.search(statement.text) else _clauses(statement.text):
            if (fact := _contradicted(clause, facts)) is not None:
                key, why = " ".join(sorted(fact.key)), f"a result gives {fact.value!r}"
                yield GroundingFinding("contradicted_result", statement.turn, clause.strip(), f"{key}: {why}")


def _facts(call: CallMade) -> list[_Fact]:
    if call.error is not None or call.name is None:
        return []
    words = {stem(word) for value in leaves_of(call.arguments) for word in plain(value).split()}
    data = data_of(call.result)
    if isinstance(data, Mapping | list):
        return list(_facts_in(data, frozenset(), frozenset(words)))
    if isinstance(data, str):
        pairs = [match.groups() for line in data.splitlines() if (match := _KEY_LINE.match(line))]
        if pairs:
            return [_Fact(_key(key), _literal(value), frozenset(words)) for key, value in pairs if _key(key)]
        if len(data.split()) > 4:
            return []
        data = _literal(data)
    key = _key(call.name) - _NO_TOOL_KEYS
    return [_Fact(key, data, frozenset(words))] if key and data is not None and not isinstance(data, str) else []


def _facts_in(data: JsonValue, key: frozenset[str], about: frozenset[str]) -> Iterator[_Fact]:
    if isinstance(data, list):
        for entry in data:
            yield from _facts_in(entry, key, about)
        return
    if not isinstance(data, Mapping):
        if key and data is not None:
            yield _Fact(key, data, about)
        return
    here = {stem(word) for value in data.values() if isinstance(value, str) for word in plain(value).split()}
    for name, value in data.items():
        own = {stem(word) for word in plain(value).split()} if isinstance(value, str | int) else set()
        inner = about | (here - own) | (_key(name) if isinstance(value, Mapping | list) else set())
        yield from _facts_in(value, _key(name), frozenset(inner))


def _key(name: object) -> frozenset[str]:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name)).replace("_", " ")
    return frozenset(stem(word) for word in plain(spaced).split()) - _NO_KEYS


def _literal(text: str) -> JsonValue:
    bare = text.strip().strip("$\u20ac").replace(",", "")
    return float(bare) if re.fullmatch(r"-?\d+(?:\.\d+)?", bare) else text.strip()


def _clauses(text: str) -> list[str]:
    bare = _without_asking(text.replace("**", ""))
    return [part for part in re.split(r"(?<=[.!?;])\s+|\n+|, (?:and|but|while) |,? but | while ", bare) if part.strip()]


def _without_asking(text: str) -> str:
    """A text without its questions and conditions: they claim nothing."""
    parts = re.split(r"(?<=[.!?])\s+|\n+", text)
    kept = [part for part in parts if not part.rstrip(' *")').endswith("?") and not _CONDITION.match(part)]
    return "\n".join(kept)


_CONDITION = re.compile(r"\s*(?:if|in case|should you|suppose|for example|e\.g\.)\b", re.IGNORECASE)


def _contradicted(clause: str, facts: Sequence[_Fact]) -> _Fact | None:
    """The fact that a clause contradicts: it names the key, and none of the values that results give under it."""
    words = {stem(word) for word in plain(clause).split()}
    named = [fact for fact in facts if fact.key and fact.key <= words]
    if not named:
        return None
    longest = max(len(fact.key) for fact in named)
    named = [fact for fact in named if len(fact.key) == longest]
    if len({fact.key for fact in named}) > 1:
        return None  # several keys in one clause: which value belongs to which is not decided here
    overlap = [len(fact.about & words) for fact in named]
    best = max(overlap)
    same = [fact for fact, n in zip(named, overlap, strict=True) if n == best]
    if len({str(fact.value) for fact in same}) > 1 and not best:
        return None  # several values, and the clause does not say whose
    kinds = {_kind_of(fact.value) for fact in same}
    if len(kinds) != 1 or any(plain(fact.value) in plain(clause) for fact in same):
        return None
    kind = kinds.pop()
    if kind == "bool":
        said = not _NOT.search(clause)
        return None if any(fact.value == said for fact in same) else same[0]
    if kind == "number":
        return _another_number(clause, same, facts)
    if len({str(fact.value) for fact in same}) > 1 or str(same[0].value).casefold() in ("yes", "no"):
        return None
    match = re.search(
        rf"\b{_key_pattern(same[0].key)}\s*(?:is|was|:|=|are)\s+(?:now |currently )?([\w-]+)\W*$", clause.casefold()
    )
    is_other = match is not None and match[1] not in _NO_VALUES and stem(match[1]) not in _stems(same[0].value)
    return same[0] if is_other and not claims_of(clause, with_names=False) else None


_NO_VALUES = word_set("the a an not in on at as unknown shown given listed available below above follows required")
_COMBINED = re.compile(
    r"\b(?:total|sum|altogether|in all|combined|difference|per|each|both|average|mean|round-?trip|remaining|left|more|"
    r"less|than|extra|additional|from .* to|between)\b",
    re.IGNORECASE,
)


def _another_number(clause: str, same: Sequence[_Fact], facts: Sequence[_Fact]) -> _Fact | None:
    """The fact of a key whose number a clause replaces by another; None where the clause may combine numbers."""
    about = {
        number_of(one.text)
        for fact in facts
        for value in fact.about
        for one in claims_of(value)
        if one.kind is ClaimKind.NUMBER
    }
    numbers = [number_of(one.text) for one in claims_of(clause, with_names=False) if one.kind is ClaimKind.NUMBER]
    numbers = [one for one in numbers if one not in about]
    if not numbers or any(_is_about(one, float(_literal(str(fact.value)))) for one in numbers for fact in same):
        return None
    if len({str(fact.value) for fact in same}) > 1 or _COMBINED.search(clause):
        return None
    seen = Seen()
    for fact in facts:
        seen.add(fact.value)
    return None if len(numbers) > 1 and any(seen.says_number(one, str(one)) for one in numbers) else same[0]


def _stems(value: JsonValue) -> set[str]:
    return {stem(word) for word in plain(value).split()}


def _key_pattern(key: Iterable[str]) -> str:
    words = sorted(key)
    return rf"(?:{'|'.join(map(re.escape, words))})\w*" if words else r"(?!)"


def _kind_of(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float) or (isinstance(value, str) and isinstance(_literal(value), float)):
        return "number"
    return "text"


def _is_about(said: float, given: float) -> bool:
    """Whether one number is the other, rounded or as a percentage."""
    decimals = len(f"{said:g}".partition(".")[2])
    return any(abs(round(one, decimals) - said) < 1e-9 for one in (given, 100 * given, -given))


_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        word: family
        for family, words in {
            "book": "book booked reserve reserved schedule scheduled rebook rebooked",
            "order": "order ordered buy bought purchase purchased checkout",
            "cancel": "cancel cancelled canceled",
            "refund": "refund refunded reimburse reimbursed",
            "change": "update updated change changed modify modified edit edited fix fixed set correct corrected "
            "upgrade upgraded patch patched rename renamed replace replaced move moved",
            "send": "send sent email emailed message messaged notify notified forward forwarded",
            "delete": "delete deleted remove removed erase erased",
            "create": "create created add added register registered open opened insert inserted",
            "submit": "submit submitted file filed",
            "save": "save saved write written store stored",
            "close": "close closed archive archived",
            "pay": "pay paid transfer transferred charge charged",
        }.items()
        for word in words.split()
    }
)
_INCLUDES = MappingProxyType(
    {"change": ("create", "delete", "save", "pay", "book"), "book": ("pay", "create"), "order": ("pay", "create")}
)
"""What a call of one family may do besides."""
_DONE = "|".join(
    sorted((word for word in _FAMILIES if re.search(r"(?:ed|sent|paid|bought|written|set)$", word)), key=len)
)
_ADVERB = r"(?:(?:successfully|now|already|just|also|all|been|both|fully)\s+)*"
_CLAIMED = re.compile(
    rf"\b(?:i|we)(?:'ve| have)?\s+{_ADVERB}({_DONE})\b|\b(?:has|have)\s+{_ADVERB}been\s+{_ADVERB}({_DONE})\b"
    rf"|\b(?:is|are|was|were)\s+(?:now|successfully|just|also)\s+({_DONE})\b|^\W*(?:done[\W_]+)?({_DONE})\b(?!\s+by)"
    r"|\b(?:has|have) been (?:successfully )?(placed|completed|processed|confirmed)\b"
    r"|\b(?:it|that|all|everything)(?:'s| is) (?:all |now )?(done)\b",
    re.IGNORECASE | re.MULTILINE,
)
_UNDONE = re.compile(
    r"\b(?:not|n't|never|nothing|none|no \w+ (?:was|were|is|are|has|have)|cannot|unable|could|would|"
    r"should|will|can|may|might|fail\w*|if|once|when|before|until|already been|earlier|previously|to be|by another|"
    r"yet)\b|n't\b",
    re.IGNORECASE,
)


_MODAL = re.compile(r"\b(?:could|would|should|will|can|may|might)\b", re.IGNORECASE)


def claimed_action(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An action that is reported as done, and no call that did it."""
    for statement in grounds.told:
        done = [call for call in grounds.episode.calls if call.turn <= statement.turn and call.error is None]
        acting = [call for call in done if call.changed or (call.changed is None and _family(call.name))]
        families = {family for call in acting if (family := _family(call.name))}
        families |= {also for family in families for also in _INCLUDES.get(family, ())}
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", _without_asking(statement.text.replace("**", ""))):
            match = _CLAIMED.search(sentence)
            if match is None or _is_told(sentence, grounds.seen(statement.turn)):
                continue
            before, after = sentence[: match.end()], sentence[match.end() :]
            if _UNDONE.search(before) or _UNDONE.search(_MODAL.sub("", after)):  # "..., as you can see" undoes nothing
                continue
            word = next(group for group in match.groups() if group)
            family = _FAMILIES.get(word.casefold())
            is_done = (
                family in families if family and families and all(_family(call.name) for call in acting) else acting
            )
            if not is_done:
                yield GroundingFinding(
                    "claimed_action", statement.turn, sentence.strip(), f"no call did what {word!r} says"
                )


def _family(name: str | None) -> str | None:
    words = plain(re.sub(r"([a-z])([A-Z])", r"\1 \2", name or "").replace("_", " ")).split()
    return next((_FAMILIES[word] for word in words if word in _FAMILIES), None)


def _is_told(sentence: str, seen: Seen) -> bool:
    """Whether a tool or user said that something was done, in these words: a status that is only reported."""
    match = _CLAIMED.search(sentence)
    if match is None or re.match(r"\W*(?:i|we)\b", match[0], re.IGNORECASE):
        return False
    if any(one.kind is ClaimKind.DATE and seen.says(one) for one in claims_of(sentence, with_names=False)):
        return True
    word = next(group for group in match.groups() if group).casefold()
    results = "\n".join(seen.texts[1:]).casefold()
    return re.search(rf"\b{re.escape(word)}\b", results) is not None


_ADMITS = re.compile(
    r"\b(?:could not|couldn't|cannot|can't|unable|did not|didn't|fail\w*|error|no results?|not found|nothing|unknown|"
    r"unavailable|not available|no information|no data|not able|timed out|time-?out|do not know|don't know|"
    r"don't have|do not have|uncertain|unclear|not sure|sorry|unfortunately|no match\w*|denied|does not|doesn't|"
    r"no record|need more|without a result|incomplete|cut off|was not|wasn't|not given|not say)\b",
    re.IGNORECASE,
)


def hidden_failure(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An answer with values that no tool gave, after a call that failed or came back empty; the failure is not said."""
    final = grounds.episode.final
    if final is None or _ADMITS.search(final.text):
        return
    failed = _unrecovered(grounds.episode.calls)
    claims = [claim for statement, claim in grounds.unsupported if statement is final]
    if failed and claims:
        call = failed[-1]
        how = call.error or "empty result"
        yield GroundingFinding(
            "hidden_failure", final.turn, claims[0].text, f"{call.name} gave nothing ({how}), and the answer hides it"
        )


def _unrecovered(calls: Sequence[CallMade]) -> list[CallMade]:
    """Calls that gave nothing, and whose tool gave nothing afterwards either."""
    return [
        call
        for place, call in enumerate(calls)
        if call.name != LOGIN
        and call.is_empty
        and not any(later.name == call.name and not later.is_empty for later in calls[place + 1 :])
    ]


def missing_source(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A cited source that does not exist or was never shown."""
    final = grounds.episode.final
    turn = 0 if final is None else final.turn
    for one in grounds.episode.citations:
        if not one.get("exists"):
            yield GroundingFinding("missing_source", turn, str(one.get("page")), "there is no such page")
    for statement in grounds.told:
        seen = grounds.seen(statement.turn)
        for claim in claims_of(statement.text, with_names=False):
            if claim.kind is ClaimKind.ADDRESS and "@" not in claim.text and not seen.says(claim):
                yield GroundingFinding("missing_source", statement.turn, claim.text, "this address was never shown")
        shown = {int(one) for text in seen.texts[1:] for one in re.findall(r"\[(\d{1,3})\]", text)}
        for mark in dict.fromkeys(int(number) for number in re.findall(r"\[(\d{1,3})\]", statement.text)):
            if shown and mark not in shown:
                yield GroundingFinding("missing_source", statement.turn, f"[{mark}]", "no result has this number")


_OPENING = re.compile(r"open|fetch|read|visit|browse|get_page|load|scrape|click", re.IGNORECASE)


def _read_sources(episode: ToolEpisode) -> dict[str, list[str]]:
    """Source, as `plain` writes it, to what an opening tool showed of it; what `find` shows is of the page before."""
    read: dict[str, list[str]] = {}
    page = None
    for call in episode.calls:
        if call.result is None or not call.name:
            continue
        if _OPENING.search(call.name):
            named = [str(value) for value in leaves_of(call.arguments) if isinstance(value, str)]
            page = _bare(named[0]) if named else page
        elif call.name != "find":
            continue
        if page is not None:
            read.setdefault(page, []).append(str(call.result))
    return read


def _bare(source: str) -> str:
    return plain(re.sub(r"^(?:https?://)?(?:www\.)?|/+$", "", source.strip()))


def unread_source(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A cited source that exists and was not opened."""
    final = grounds.episode.final
    for one in grounds.episode.citations:
        if one.get("exists") and not one.get("opened"):
            turn = 0 if final is None else final.turn
            yield GroundingFinding("unread_source", turn, str(one.get("page")), "this page was not opened")
    read = _read_sources(grounds.episode)
    if not read:
        return
    for statement in grounds.told:
        seen = grounds.seen(statement.turn)
        for claim in claims_of(statement.text, with_names=False):
            is_cited = claim.kind is ClaimKind.ADDRESS and "@" not in claim.text and seen.says(claim)
            if is_cited and _bare(claim.text) not in read and not _was_asked_for(claim.text, grounds.episode):
                yield GroundingFinding("unread_source", statement.turn, claim.text, "this address was not opened")


def _was_asked_for(address: str, episode: ToolEpisode) -> bool:
    """Whether the task itself names the address: repeating it cites nothing."""
    return _bare(address) in plain(episode.opening)


def unsupported_citation(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A value or sentence whose cited source was read and does not contain it."""
    episode, final = grounds.episode, grounds.episode.final
    read = _read_sources(episode)
    cited = [_bare(str(one.get("page"))) for one in episode.citations]
    texts = [text for page in cited for text in read.get(page, ())]
    if texts and final is not None and all(page in read for page in cited):
        source = Seen()
        for text in texts:
            source.add(text)
        for value in episode.values:
            if value.casefold() != "unknown" and not source.has_words(value):
                names = ", ".join(str(one.get("page")) for one in episode.citations)
                yield GroundingFinding(
                    "unsupported_citation", final.turn, value, f"what was read of {names} does not say it"
                )
    for statement in grounds.told:
        yield from _unsupported_sentences(statement, grounds, read)


def _unsupported_sentences(
    statement: Statement, grounds: Grounds, read: Mapping[str, Sequence[str]]
) -> Iterator[GroundingFinding]:
    numbered = _numbered(grounds.seen(statement.turn))
    for sentence in re.split(r"(?<=[.!?\])])\s+(?=[A-Z*\d-])|\n+", statement.text):
        addresses = [one.text for one in claims_of(sentence, with_names=False) if one.kind is ClaimKind.ADDRESS]
        sources = [text for one in addresses for text in read.get(_bare(one), ())]
        marks = [int(one) for one in re.findall(r"\[(\d{1,3})\]", sentence)]
        sources += [numbered[one] for one in marks if one in numbered]
        if not sources:
            continue
        source = Seen()
        for text in sources:
            source.add(text)
        claims = [one for one in claims_of(sentence) if one.kind not in (ClaimKind.ADDRESS, ClaimKind.QUOTE)]
        hosts = plain(" ".join(addresses))
        missing = [one for one in _unsaid(claims, source) if plain(one.text) not in hosts]
        if missing:
            named = ", ".join([*addresses, *(f"[{one}]" for one in marks)])
            yield GroundingFinding("unsupported_citation", statement.turn, missing[0].text, f"{named} does not say it")


def _numbered(seen: Seen) -> dict[int, str]:
    """Numbered entries of results: [1] text."""
    entries: dict[int, str] = {}
    for text in seen.texts[1:]:
        pieces = re.split(r"\[(\d{1,3})\]", text)
        for number, piece in zip(pieces[1::2], pieces[2::2], strict=False):
            entries[int(number)] = entries.get(int(number), "") + " " + piece
    return entries


def altered_quote(grounds: Grounds) -> Iterator[GroundingFinding]:
    """Words between quotation marks, four or more, that were told in other words or not at all."""
    for statement, claim in grounds.unsupported:
        if claim.kind is ClaimKind.QUOTE:
            yield GroundingFinding(
                "altered_quote", statement.turn, claim.text, "nothing told before has these words in this order"
            )


_TOOLS = (
    r"(?:api|tool|service|server|system|database|backend|site|website|network|connection|endpoint|function|"
    r"platform)"
)
_BROKEN = (
    "down|broken|unavailable|offline|not working|failing|buggy|overloaded|unreliable|crashed|unresponsive|"
    r"out of service|malfunction\w*|a bug|(?:an? )?(?:internal |technical )?(?:problem|issue|error|outage)"
)
_BLAMES = re.compile(
    rf"\b{_TOOLS}s?\b[^.!?\n]{{0,40}}?\b(?:is|are|was|were|seems?|appears?|must|may|might|has|have|looks?|be|went)\b"
    rf"[^.!?\n]{{0,30}}?\b(?:{_BROKEN})\b"
    r"|\b(?:technical|internal|server|system|temporary) (?:issue|problem|error|outage|difficult\w+)s?\b"
    rf"|\b(?:problem|issue|outage|bug|error) (?:with|in|at|of|on) the {_TOOLS}\b"
    rf"|\b{_TOOLS} (?:does not|doesn't|did not|didn't) (?:respond|work)\b|\b{_TOOLS} (?:error|outage)\b",
    re.IGNORECASE,
)
_NO_BLAME = re.compile(
    r"\b(?:is|are|was|were|works?) (?:not|fine)\b(?! working)|\bisn't\b|\bnot the\b|"
    r"\bno (?:technical|problem|issue|error)|\bmy (?:mistake|error|fault)",
    re.IGNORECASE,
)


def wrong_blame(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A tool that is blamed for errors that were all the model's own."""
    calls = grounds.episode.calls
    for statement in grounds.episode.statements:
        before = [call for call in calls if call.turn < statement.turn + (not statement.is_thought) and call.error]
        if not before or any(call.injected or call.error not in _OWN_FAULTS for call in before):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", statement.text):
            if _BLAMES.search(sentence) and not _NO_BLAME.search(sentence):
                own = before[-1]
                why = f"the error was the call's own ({own.error}{': ' + own.detail if own.detail else ''})"
                yield GroundingFinding("wrong_blame", statement.turn, sentence.strip(), why)


def carried_claim(grounds: Grounds) -> Iterator[GroundingFinding]:
    """A value that a thought states first, without a source, and that a later call or the answer uses."""
    episode = grounds.episode
    for thought in (one for one in episode.statements if one.is_thought):
        seen = grounds.seen(thought.turn)
        for claim in claims_of(_without_asking(thought.text)):
            if claim.kind is ClaimKind.QUOTE or seen.says(claim) or _GUESSES.search(thought.text):
                continue
            if (user := _use_of(claim, thought.turn, grounds)) is not None:
                yield GroundingFinding(
                    "carried_claim", thought.turn, claim.text, f"nothing told it before, and {user} rests on it"
                )


_GUESSES = re.compile(r"\b(?:maybe|perhaps|guess|might|try|not sure|whether|check|verify|possibly)\b", re.IGNORECASE)


def _use_of(claim: TextClaim, turn: int, grounds: Grounds) -> str | None:
    """What uses a claim from a turn on, before any result says it."""
    for call in grounds.episode.calls:
        if call.turn < turn or grounds.seen(call.turn).says(claim):
            continue
        if any(plain(claim.text) in plain(value) for value in leaves_of(call.arguments)):
            return f"the call of {call.name} in turn {call.turn}"
    for statement in grounds.told:
        is_used = statement.turn > turn and plain(claim.text) in plain(statement.text)
        if is_used and not grounds.seen(statement.turn).says(claim):
            return "the answer"
    return None


_ROOTS = (unknown_tool, misfit_argument, invented_argument, misspelt_argument)
_ENDS = (invented_number, invented_name, contradicted_result, claimed_action, hidden_failure)


def cascade(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An unsupported call that failed, was not repaired, and ends in a conclusion without ground."""
    ends = [one for find in _ENDS for one in find(grounds)]
    calls = grounds.episode.calls
    for root in sorted((one for find in _ROOTS for one in find(grounds)), key=lambda one: one.turn):
        failed = [(place, call) for place, call in enumerate(calls) if call.turn == root.turn and call.is_empty]
        later = [one for one in ends if one.turn > root.turn]
        if not failed or not later:
            continue
        place, call = failed[0]
        after = calls[place + 1 :]
        if any(other.name == call.name and not other.is_empty for other in after):
            continue
        links = [f"{root.detector} {root.what!r}", f"{call.name} failed"]
        blamed = [one for one in wrong_blame(grounds) if one.turn >= root.turn]
        links += [f"blamed: {blamed[0].what!r}"] if blamed else []
        switched = [other for other in after if other.name not in (call.name, LOGIN, None)]
        links += [f"switched to {switched[0].name}"] if switched else []
        links.append(f"{later[0].detector} {later[0].what!r}")
        yield GroundingFinding("cascade", root.turn, root.what, " -> ".join(links))
        return


@dataclass(frozen=True, slots=True)
class Detector:
    """One check."""

    name: str
    kind: FindingKind
    find: Callable[[Grounds], Iterator[GroundingFinding]]
    needs_item: bool = False
    """True: silent without the item that was played."""

    @property
    def told(self) -> tuple[str, str]:
        """Its kind, and what a finding means in one sentence."""
        return self.kind.value, (self.find.__doc__ or "").strip().partition("\n")[0]


def _table() -> Mapping[str, Detector]:
    rows = {
        FindingKind.SELECTION: (unknown_tool, unneeded_tool, wrong_tool),
        FindingKind.ARGUMENT: (misfit_argument, invented_argument, misspelt_argument),
        FindingKind.RESULT: (invented_number, invented_name, contradicted_result, claimed_action, hidden_failure),
        FindingKind.CITATION: (missing_source, unread_source, unsupported_citation, altered_quote),
        FindingKind.CASCADE: (wrong_blame, carried_claim, cascade),
    }
    by_item = (unneeded_tool, wrong_tool)
    return MappingProxyType(
        {
            find.__name__: Detector(find.__name__, kind, find, find in by_item)
            for kind, of in rows.items()
            for find in of
        }
    )


DETECTORS = _table()


def findings_of(episode: ToolEpisode, item: Item | None = None) -> list[GroundingFinding]:
    """What every detector finds, each thing once, by turn."""
    grounds = Grounds(episode, item)
    found = dict.fromkeys(one for detector in DETECTORS.values() for one in detector.find(grounds))
    return sorted(found, key=lambda one: one.turn)


def admits_failure(episode: ToolEpisode) -> bool:
    """Whether the final answer says that something failed or is not known."""
    final = episode.final
    return final is not None and bool(_ADMITS.search(final.text))
