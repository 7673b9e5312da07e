"""What all detectors work on (an episode with what was told before each turn), and those of the class result.

The class result compares what is said with what tools returned and calls did.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from agent2.environments.tools.world import LOGIN
from agent2.records import Item, JsonValue
from agent2.scorers.grounding.claims import (
    MOST_OPERANDS,
    SENTENCE_END,
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
    stem,
    word_set,
)


class FindingKind(StrEnum):
    """Where a claim lost its ground."""

    SELECTION = "selection"
    ARGUMENT = "argument"
    RESULT = "result"
    CITATION = "citation"
    GOAL = "goal"
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
        self._figures: dict[int, list[float]] = {}

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
            claims = claims_of(without_asking(statement.text))
            found += [(statement, claim) for claim in unsaid(claims, seen)]
        return tuple(found)

    def figures_said(self, turn: int) -> list[float]:
        """The numbers in what was said before a turn that had been told, or follow."""
        if turn in self._figures:
            return self._figures[turn]
        found: list[float] = []
        for statement in (one for one in self.told if one.turn < turn):
            seen = self.seen(statement.turn)
            claims = [one for one in claims_of(statement.text, with_names=False) if one.kind is ClaimKind.NUMBER]
            without = set(unsaid(claims, seen))
            found += [number_of(one.text) for one in claims if one not in without]
        self._figures[turn] = list(dict.fromkeys(found))[-MOST_OPERANDS:]
        return self._figures[turn]

    @cached_property
    def _calling(self) -> set[int]:
        return {call.turn for call in self.episode.calls}


def unsaid(claims: Sequence[TextClaim], seen: Seen) -> list[TextClaim]:
    """The claims that were not told; a number may follow from told numbers of the same message."""
    numbers = [claim for claim in claims if claim.kind is ClaimKind.NUMBER]
    beside: list[float] = []
    for _ in range(2):  # what follows from a number that follows
        beside = [number_of(one.text) for one in numbers if seen.says(one, beside)]
    return [claim for claim in claims if not seen.says(claim, beside)]


def without_asking(text: str) -> str:
    """A text without its questions and conditions: they claim nothing."""
    parts = SENTENCE_END.split(text)
    kept = [part for part in parts if not part.rstrip(' *")').endswith("?") and not _CONDITION.match(part)]
    return "\n".join(kept)


_CONDITION = re.compile(r"\s*(?:if|in case|should you|suppose|for example|e\.g\.)\b", re.IGNORECASE)


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
    bare = without_asking(text.replace("**", ""))
    return [part for part in re.split(r"(?<=[.!?;])\s+|\n+|, (?:and|but|while) |,? but | while ", bare) if part.strip()]


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
        for sentence in SENTENCE_END.split(without_asking(statement.text.replace("**", ""))):
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
    return re.search(rf"\b{re.escape(word)}\b", seen.index.results) is not None


ADMITS = re.compile(
    r"\b(?:could not|couldn't|cannot|can't|unable|did not|didn't|fail\w*|error|no results?|not found|nothing|unknown|"
    r"unavailable|not available|no information|no data|not able|timed out|time-?out|do not know|don't know|"
    r"don't have|do not have|uncertain|unclear|not sure|sorry|unfortunately|no match\w*|denied|does not|doesn't|"
    r"no record|need more|without a result|incomplete|cut off|was not|wasn't|not given|not say)\b",
    re.IGNORECASE,
)


def hidden_failure(grounds: Grounds) -> Iterator[GroundingFinding]:
    """An answer with values that no tool gave, after a call that failed or came back empty; the failure is not said."""
    final = grounds.episode.final
    if final is None or ADMITS.search(final.text):
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
