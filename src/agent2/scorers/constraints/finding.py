"""What a check of one instruction found, and the classes that instructions fall into."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent2.records import JsonValue


class InstructionClass(StrEnum):
    """The four classes in which failures are counted."""

    KEYWORD = "keyword"
    LENGTH = "length"
    FORMAT = "format"
    LANGUAGE = "language"


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one instruction for one text."""

    followed: bool
    seen: str
    """What was found, in words: "7 words, at least 10 asked for"."""
    label: str = ""
    """The badcase class if it was not followed and the class's own is too coarse."""


Arguments = Mapping[str, JsonValue]
Check = Callable[[str, Arguments], Finding]
"""Takes the text and the instruction's arguments by their published names."""

AT_LEAST, LESS_THAN = "at least", "less than"
RELATIONS = (LESS_THAN, AT_LEAST)


def compared(count: int, relation: str, threshold: int, what: str) -> Finding:
    """Whether a count stands in the published relation (`at least`, `less than`) to the number asked for."""
    followed = count >= threshold if relation == AT_LEAST else count < threshold
    return Finding(followed, f"{count} {what}, {relation} {threshold} asked for")


def exactly(count: int, wanted: int, what: str) -> Finding:
    """Whether a count is the number asked for."""
    return Finding(count == wanted, f"{count} {what}, exactly {wanted} asked for")
