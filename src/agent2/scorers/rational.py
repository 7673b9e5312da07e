"""Exact equality of rational numbers: 14/6, 7/3 and nothing near it.

The whole answer, white space at its ends aside, must be one number: an integer (`-12`), a fraction
(`7/3`, spaces around the bar allowed) or a decimal (`2.5`), read exactly. Words, two numbers, exponents,
thousands separators and `inf` are no number. An answer that is no number is wrong (0.0, with the reason);
only an item that cannot be judged at all has a missing score.

Does NOT give partial credit (see `agent2.benchmarks.arithmetic.rewards` for a continuous reward) and does
NOT look for a number inside a sentence.
"""

import re
from fractions import Fraction

from agent2.errors import Fault
from agent2.records import Emits, Item, Rollout, Score

MAX_ANSWER_CHARACTERS = 400
"""Longer answers are refused before they are read as a number."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[ ]*/[ ]*[0-9]+)?|[0-9]+\.[0-9]+|\.[0-9]+)")


def parse_rational(text: str) -> Fraction | None:
    """The number that an answer consists of, exactly; None if it is no number or divides by zero."""
    stripped = text.strip()
    if len(stripped) > MAX_ANSWER_CHARACTERS or _NUMBER.fullmatch(stripped) is None:
        return None
    numerator, _, denominator = stripped.replace(" ", "").partition("/")
    if not denominator:
        return Fraction(numerator)
    return Fraction(int(numerator), int(denominator)) if int(denominator) else None


def format_rational(value: Fraction) -> str:
    """The lowest-terms text of a number: `7/3`, `-12`."""
    return str(value)


class RationalScorer:
    """1.0 if the answer equals the item's reference as a rational number, else 0.0."""

    name = "rational"
    version = "1.0"
    emits = Emits()

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's own reference is missing or no number."""
        expected = None if item.reference is None else parse_rational(item.reference)
        if expected is None:
            return Score(
                None,
                f"item {item.id} has no usable reference ({item.reference!r}); correct the benchmark",
                Fault.JUDGE,
            )
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        given = parse_rational(rollout.answer)
        if given is None:
            return Score(0.0, f"the answer {_shorten(rollout.answer)!r} is not one integer, fraction or decimal")
        if given == expected:
            return Score(1.0, f"{format_rational(given)} is the reference", extracted=format_rational(given))
        reason = f"{format_rational(given)} is not the reference {format_rational(expected)}"
        return Score(0.0, reason, extracted=format_rational(given))


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
