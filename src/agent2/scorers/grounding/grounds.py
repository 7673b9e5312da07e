"""An episode with what was told before each of its turns, and the form of a finding: what all detectors work on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from agent2.records import Item
from agent2.scorers.grounding.claims import (
    MOST_OPERANDS,
    ClaimKind,
    Seen,
    Statement,
    TextClaim,
    ToolEpisode,
    claims_of,
    number_of,
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
        found: list[float] = []
        for statement in (one for one in self.told if one.turn < turn):
            seen = self.seen(statement.turn)
            claims = [one for one in claims_of(statement.text, with_names=False) if one.kind is ClaimKind.NUMBER]
            without = unsaid(claims, seen)
            found += [number_of(one.text) for one in claims if one not in without]
        return list(dict.fromkeys(found))[-MOST_OPERANDS:]

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
    parts = re.split(r"(?<=[.!?])\s+|\n+", text)
    kept = [part for part in parts if not part.rstrip(' *")').endswith("?") and not _CONDITION.match(part)]
    return "\n".join(kept)


_CONDITION = re.compile(r"\s*(?:if|in case|should you|suppose|for example|e\.g\.)\b", re.IGNORECASE)
