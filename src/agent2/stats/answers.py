"""Final answers: words and letters in common, numbers however they are written, accuracy under circular shifts.

The scorers `exact`, `token_f1`, `anls` and `relaxed_numeric` (`agent2.scorers.answers`) use these on each answer.

How a number is written does not matter: `1,234.50`, `1.234,5`, `1 234.5`, `$1,234.5`, `1234.5 dollars` and `(1,234.5)`
for a negative one are read; arithmetic is exact (fractions, no float at the edge of the tolerance). A text is a number
only if exactly one is in it, with words or a known unit around it. Two known units that differ are never equal, and
units are not converted.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from rapidfuzz.distance import Levenshtein

from agent2.errors import NotEnoughData
from agent2.stats.estimates import UNIT, Estimate, measure

ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def stripped(text: str) -> str:
    """The text without white space at its ends: the plainest reading of "the same answer"."""
    return text.strip()


def plain_words(text: str) -> str:
    """Lower case, without punctuation, English articles and repeated white space.

    Source: SQuAD 1.1 evaluation (Rajpurkar et al. 2016), as generally known; not checked against the script.
    """
    words = text.lower().translate(_NO_PUNCTUATION).split()
    return " ".join(word for word in words if word not in ARTICLES)


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words, counted with repeats, after `plain_words`.

    Range 0-1, symmetric in its arguments; 1 when both are without words, 0 when one is.
    Source: SQuAD 1.1 (Rajpurkar et al. 2016), as generally known; not checked against the script.
    """
    left, right = Counter(plain_words(answer).split()), Counter(plain_words(reference).split())
    if not left or not right:
        return float(left == right)
    return 2.0 * (left & right).total() / (left.total() + right.total())


def circular_accuracy(correct_IS: Sequence[Sequence[float | None]]) -> Estimate:
    """Share of multiple-choice items that are right under every circular shift of their options.

    correct_IS: items x shifts, 0 or 1; an item has as many shifts as options. One wrong shift makes the item
    wrong whatever else is missing; an item with a missing shift and no wrong one is missing. Raises ValueError
    for other verdicts, NotEnoughData for an item without shifts or when all are missing.
    Source: MMBench (Liu et al. 2023), as generally known; not checked against the paper.
    """
    values: list[float | None] = []
    for number, row in enumerate(correct_IS):
        shifts = np.asarray(cast(ArrayLike, row), dtype=np.float64)
        if shifts.size == 0:
            raise NotEnoughData(f"item {number} has no shifts; circular accuracy needs one for each option")
        if not bool(np.all(np.isnan(shifts) | (shifts == 0.0) | (shifts == 1.0))):
            raise ValueError(f"item {number}: verdicts of shifts must be 0, 1 or missing")
        values.append(0.0 if bool((shifts == 0.0).any()) else None if bool(np.isnan(shifts).any()) else 1.0)
    return measure(values, "circular accuracy", UNIT)


def answer_similarity(answer: str, reference: str, threshold: float = 0.5) -> float:
    """1 - edit distance / length of the longer, or 0 where that distance is `threshold` or more.

    Case and white space at the ends and between words do not count. Range 0-1, symmetric; 1 when both are
    empty. An answer too long to be similar is refused by its length, so a hostile one costs nothing.
    """
    left, right = (" ".join(unicodedata.normalize("NFC", text).lower().split()) for text in (answer, reference))
    longest = max(len(left), len(right))
    if longest == 0:
        return 1.0
    if abs(len(left) - len(right)) >= threshold * longest:
        return 0.0
    distance = Levenshtein.distance(left, right) / longest
    return 1.0 - distance if distance < threshold else 0.0


MAX_CHARACTERS = 200
"""Longer texts are not read as numbers."""
MAX_EXPONENT = 300
_DIGITS = (
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:[ _']\d{3})+(?:[.,]\d+)?"  # 1,234.5 and 1 234.5
    r"|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}\.\d{3},\d+"  # 1.234.567,8 and 1.234,5
    r"|\d+(?:[.,]\d+)?|[.,]\d+"
)
_NUMBER = re.compile(
    rf"(?<![^\s$€£¥(=:~≈])(?P<sign>[+-]?)(?P<money>[$€£¥]?)\s?(?P<sign2>[+-]?)(?P<digits>{_DIGITS})"
    r"(?:e(?P<exponent>[+-]?\d{1,3}))?(?![\d.,:/-]?\d)",
    re.IGNORECASE,
)
_AFTER = re.compile(r"\s?(?P<word>%|°?[^\W\d_]+[²³]?(?:/[^\W\d_]+)?|[$€£¥])?")
_SCALES = {
    "k": 10**3, "thousand": 10**3, "mn": 10**6, "mio": 10**6, "million": 10**6, "millions": 10**6,
    "bn": 10**9, "billion": 10**9, "billions": 10**9, "tn": 10**12, "trillion": 10**12, "trillions": 10**12,
}  # fmt: skip
_CAPITAL_SCALES = {"M": 10**6, "B": 10**9, "T": 10**12}
_UNIT_NAMES = {
    "%": "% percent pct percentage",
    "$": "$ usd dollar dollars",
    "€": "€ eur euro euros",
    "£": "£ gbp pound pounds",
    "¥": "¥ jpy yen",
    "km": "km kilometer kilometers kilometre kilometres",
    "m": "m meter meters metre metres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "kg": "kg kilogram kilograms",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "t": "t ton tons tonne tonnes",
    "l": "l liter liters litre litres",
    "ml": "ml milliliter milliliters millilitre millilitres",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "°c": "°c celsius",
    "°f": "°f fahrenheit",
    "m²": "m² sqm",
    "km²": "km²",
    "m³": "m³",
    "km/h": "km/h kmh kph",
    "m/s": "m/s",
}
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that was read from a text, with its unit where that is a known one."""

    value: Fraction
    unit: str | None


def parse_quantity(text: str) -> Quantity | None:
    """The one number in a text, or None if there is none, more than one, or one glued to letters.

    `1,234` is grouped by thousands and `1,5` has a decimal comma; one point is always a decimal point;
    `1.234,5` is read as 1234.5. Scale words count (`3.5 million`, `2k`, `$5m`, `5M`; a bare `5m` is metres).
    """
    if len(text) > MAX_CHARACTERS:
        return None
    plain = text.translate(_MARKS).strip()
    found = list(_NUMBER.finditer(plain))
    if len(found) != 1 or _n_digits(plain) != _n_digits(found[0].group()):
        return None
    match = found[0]
    after = _AFTER.match(plain, match.end())
    words = plain[match.end() :].split()
    glued_or_next = after.group("word") if after else None
    scale, used = _scale(glued_or_next, money=bool(match["money"]))
    if used:
        glued_or_next = words[1] if len(words) > 1 else None
    elif glued_or_next and match.end() < len(plain) and plain[match.end()].isalpha() and not _unit(glued_or_next):
        return None  # glued to letters that are no unit: a name (4th, 3D), not a quantity
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    value = _digits(match["digits"]) * Fraction(10) ** exponent * scale
    in_brackets = plain[: match.start()] == "(" and plain.endswith(")")
    negative = "-" in match["sign"] + match["sign2"] or in_brackets
    return Quantity(-value if negative else value, _unit(match["money"]) or _unit(glued_or_next))


def same_number(answer: Quantity, reference: Quantity, tolerance: float = 0.0) -> bool:
    """Whether the answer lies within `tolerance`, a share of the reference, of it (0: is equal to it).

    A unit left out on one side is forgiven. A percentage against a bare number is equal if either reading is:
    `45%` equals both `45` and `0.45`. A reference of 0 allows 0 only.
    """
    room = Fraction(str(tolerance)) * abs(reference.value)
    if answer.unit is not None and reference.unit is not None and answer.unit != reference.unit:
        return False
    if abs(answer.value - reference.value) <= room:
        return True
    if answer.unit == "%" and reference.unit is None:
        return abs(answer.value / 100 - reference.value) <= room
    if reference.unit == "%" and answer.unit is None:
        return abs(answer.value * 100 - reference.value) <= room
    return False


_MARKS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {  # full width to ASCII
    0x2212: "-", 0x2013: "-", 0x2012: "-", 0x2019: "'", 0xA0: " ", 0x202F: " ", 0x2009: " ",
}  # fmt: skip


def _n_digits(text: str) -> int:
    return sum(map(str.isdecimal, text))


def _digits(text: str) -> Fraction:
    """Reads digits with group marks and a decimal mark; see `parse_quantity` for the rule."""
    text = re.sub(r"[ _']", "", text)
    last = max(text.rfind("."), text.rfind(","))
    if last < 0:
        return Fraction(int(text))
    mark = text[last]
    other = "," if mark == "." else "."
    grouped = text.count(mark) > 1 or (mark == "," and other not in text and re.fullmatch(r"[1-9]\d{0,2},\d{3}", text))
    whole, part = (text, "") if grouped else (text[:last], text[last + 1 :])
    whole = whole.replace(",", "").replace(".", "")
    return Fraction(int(whole or 0)) + (Fraction(int(part), 10 ** len(part)) if part else 0)


def _scale(word: str | None, *, money: bool) -> tuple[int, bool]:
    if word is None:
        return 1, False
    if word in _CAPITAL_SCALES:
        return _CAPITAL_SCALES[word], True
    if money and word.upper() in _CAPITAL_SCALES:
        return _CAPITAL_SCALES[word.upper()], True
    return (_SCALES[word.lower()], True) if word.lower() in _SCALES else (1, False)


def _unit(word: str | None) -> str | None:
    if not word or (len(word) == 1 and word.isupper() and word != "L"):
        return None  # 5G is not a weight and 3D no duration
    return _UNITS.get(word.lower())
