"""Final answers of worked solutions, in two readings: strict (`#### 18`) and flexible (the last number).

The strict reading is the one GSM8K publishes: the number that follows the first `#### ` (one space), an optional
minus sign, digits, commas and a point. It decides the score, so full marks need a final answer that can be read
(format and answer are told apart by the views). The flexible reading takes the last number of the text, with a
currency sign, a typographic minus or other digits of the world's scripts.

Both compare numbers by value (`18`, `18.0`, `1,800` and `1800.00`), where the published script compares strings, and
refuse what is only part of a number: `1,8`, `5/2`, `18-20`, `18k`, `1.2.3`. Does NOT check the working, evaluate
expressions or convert units. How this differs from other harnesses: docs/mini-benchmarks.md.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from agent2.errors import ConfigError, Fault
from agent2.records import Emits, Item, Rollout, Score
from agent2.scorers.answers import brief

MAX_CHARACTERS = 100_000
"""The flexible reading looks at so many characters from the end."""
MAX_DIGITS = 300

MARKER = "#### "
"""Of the GSM8K release."""
_DIGITS = r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
_GOES_ON = (
    r"(?![0-9_]|[.,]+[0-9]"  # a malformed number: 1,8 or 1.2.3
    r"|\.?[kKMBT](?![A-Za-z])|\.?[eE][+-]?[0-9]|\s(?:dozen|hundred|thousand|million|billion|trillion)"  # a scale
    r"|[¼-¾⅐-⅞]|\s?[/^]\s?[0-9]|[-–][0-9])"  # a fraction, a power or a range
)
_AFTER_MARKER = re.compile(rf"(?P<sign>-?){_DIGITS}{_GOES_ON}")
_ANYWHERE = re.compile(rf"(?<![0-9A-Za-z_.,])(?P<sign>-?[$€£]?-?){_DIGITS}{_GOES_ON}")
_LOOK_ALIKES: dict[int, str] = {
    **dict.fromkeys((0x2212, 0x2010, 0x2011, 0xFE63, 0xFF0D), "-"),
    **dict.fromkeys((0xA0, 0x202F, 0x2009, 0x2007), ","),
    **{ord("¼"): ".25", ord("½"): ".5", ord("¾"): ".75"},
}
"""Minus signs, spaces that group digits (one that groups nothing does no harm), and fractions behind a number."""


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """What was read from a text."""

    value: Fraction | None
    """None: no final answer could be read."""
    reason: str


def strict_answer(text: str, marker: str = MARKER) -> FinalAnswer:
    """The number behind the first marker, if one whole number stands there.

    Source: `ANS_RE` of the GSM8K release (Cobbe et al. 2021, arXiv:2110.14168); departures in the module's text.
    """
    found = _marker_pattern(marker).search(text)
    if found is None:
        return FinalAnswer(None, f"no line '{marker}N'")
    match = _AFTER_MARKER.match(text, found.end())
    if match is None or len(match["digits"]) > MAX_DIGITS:
        return FinalAnswer(None, f"what follows '{marker}' is not one whole number: {brief(text[found.end() :], 30)}")
    return FinalAnswer(_value(match["sign"], match["digits"]), f"read after '{marker}'")


@cache
def _marker_pattern(marker: str) -> re.Pattern[str]:
    return re.compile(re.escape(marker) + r"(?=-?[0-9.,]*[0-9])")


def flexible_answer(text: str) -> FinalAnswer:
    """The last number of the text."""
    plain = _plain_text(text[-MAX_CHARACTERS:])
    last = None
    for match in _ANYWHERE.finditer(plain):
        last = match
    if last is None or len(last["digits"]) > MAX_DIGITS:
        return FinalAnswer(None, "no number anywhere")
    return FinalAnswer(_value(last["sign"], last["digits"]), "the last number of the answer")


def final_answer_line(value: Fraction | int) -> str:
    """The line that the strict reading asks for."""
    return f"#### {value}"


class FinalAnswerScorer:
    """1.0 if the strictly read final answer equals the reference.

    marker: what a final answer follows. Views: `answer_parsed` (a final answer could be read strictly),
    `flexible_match` (the last number is right).
    Labels: `gsm8k_final_answer_format_error` where nothing could be read, `gsm8k_wrong_final_answer` otherwise.
    """

    name = "final_answer"
    version = "1.0"
    emits = Emits(
        views=frozenset({"answer_parsed", "flexible_match"}),
        labels=frozenset({"gsm8k_final_answer_format_error", "gsm8k_wrong_final_answer"}),
    )

    def __init__(self, marker: str = MARKER) -> None:
        """Raises ConfigError for a marker without a letter or sign, which would be found everywhere."""
        if not isinstance(marker, str) or not marker.strip():
            raise ConfigError(f"scorer final_answer: marker is {marker!r}; give the text that a final answer follows")
        self._marker = marker

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's reference is missing or no number."""
        expected = None if item.reference is None else reference_value(item.reference, self._marker)
        if expected is None:
            return Score(
                None, f"item {item.id} has no usable reference ({item.reference!r}); correct the benchmark", Fault.JUDGE
            )
        text = rollout.answer or ""
        strict, flexible = strict_answer(text, self._marker), flexible_answer(text)
        views = {
            "answer_parsed": float(strict.value is not None),
            "flexible_match": float(flexible.value == expected),
        }
        if strict.value == expected:
            return Score(1.0, f"{strict.value} is the reference", views=views, extracted=str(strict.value))
        if strict.value is None:
            hint = "; the last number would have been right" if views["flexible_match"] else ""
            return Score(0.0, strict.reason + hint, views=views, labels=("gsm8k_final_answer_format_error",))
        reason = f"{strict.value} is not the reference {expected}"
        labels = ("gsm8k_wrong_final_answer",)
        return Score(0.0, reason, views=views, labels=labels, extracted=str(strict.value))


def reference_value(reference: str, marker: str = MARKER) -> Fraction | None:
    """The number of a reference: after the last marker or `####` of a worked solution, or the text itself; or None."""
    sign = marker.strip() if marker.strip() in reference else MARKER.strip()
    text = reference.rsplit(sign, 1)[-1].strip().removeprefix("$")
    match = _AFTER_MARKER.fullmatch(text)
    return None if match is None else _value(match["sign"], match["digits"])


def _plain_text(text: str) -> str:
    """With ASCII digits, minus signs and group marks."""
    if text.isascii():
        return text
    return "".join(_ascii_digit(character) for character in text.translate(_LOOK_ALIKES))


def _ascii_digit(character: str) -> str:
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)


def _value(sign: str, digits: str) -> Fraction:
    value = Fraction(digits.replace(",", ""))
    return -value if "-" in sign else value
