"""Numeric answers in two layers: exactly the number, and near enough (relaxed).

Promises: how a number is written does not matter: `1,234.50`, `1.234,5`, `1 234.5`, `$1,234.5`, `1234.5 dollars`
and `(1,234.5)` for a negative one are read; arithmetic is exact (fractions, no float at the edge of the
tolerance); the layers are reported apart. A text is a number only if exactly one stands in it, with words or a
known unit around it; anything else is compared as text. Two known units that differ are never equal, and units
are not converted. Does NOT protect from what a 5% tolerance lets through: years, counts, identifiers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from agent2.stats.answers import References, paired_with_references
from agent2.stats.measure import UNIT, Measure, measure

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


@dataclass(frozen=True, slots=True)
class NumericAccuracy:
    """The two layers of numeric scoring; the gap between them is rounding and misreading, not format."""

    exact: Measure
    relaxed: Measure
    n_text: int
    """Items compared as text, because the reference is not one number."""
    n_unreadable: int
    """Answers that are not one number where the reference is: wrong in both layers."""
    tolerance: float

    def __str__(self) -> str:
        return (
            f"exact {self.exact}; relaxed to {self.tolerance:.0%} {self.relaxed}; "
            f"{self.n_unreadable} unreadable, {self.n_text} compared as text"
        )


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


def numeric_accuracy(answers: Sequence[str | None], references: References, tolerance: float = 0.05) -> NumericAccuracy:
    """Exact and relaxed accuracy of short answers that are mostly numbers.

    answers: one text for each item, None where missing. references: see `answers.References`; an item is right
    if any of its references is matched. tolerance: share of the reference that the relaxed layer forgives. A
    reference that is not a number is compared as text, without case and outer white space, in both layers.
    Range 0-1, relaxed >= exact. Raises ValueError for a tolerance outside 0-1.
    Source: ChartQA's relaxed accuracy, 5% (Masry et al. 2022), as generally known; not checked against the paper.
    """
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance={tolerance} must be a share of the reference from 0 to below 1, for example 0.05")
    exact: list[float | None] = []
    relaxed: list[float | None] = []
    n_text = n_unreadable = 0
    for answer, known in paired_with_references(answers, references):
        quantities = [quantity for quantity in map(parse_quantity, known) if quantity is not None]
        n_text += not quantities
        if answer is None:
            exact.append(None)
            relaxed.append(None)
            continue
        number = parse_quantity(answer) if quantities else None
        n_unreadable += bool(quantities) and number is None
        as_text = any(answer.strip().casefold() == text.strip().casefold() for text in known)
        exact.append(float(as_text or (number is not None and any(same_number(number, q) for q in quantities))))
        near = number is not None and any(same_number(number, q, tolerance) for q in quantities)
        relaxed.append(float(as_text or near))
    return NumericAccuracy(
        measure(exact, "exact numeric accuracy", UNIT),
        measure(relaxed, "relaxed numeric accuracy", UNIT),
        n_text,
        n_unreadable,
        tolerance,
    )


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
