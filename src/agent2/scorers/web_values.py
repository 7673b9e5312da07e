"""Values of a recorded web run beside those that a task expects, each compared as its kind: date, price, address.

A task's schema names the kind of a value by `format` or `type`. What two values may differ in:

    string, location-name     case, accents, hyphens, white space, marks at both ends; of locations 20% of the letters
    number, integer, boolean  how it is written: `1,204`, `twenty`, `yes`
    currency                  the sign of the currency; 0.1
    date, month               the form; a date without day, month or year is none
    duration, distance        the unit; 3 minutes or 10%, 10 m or 2%
    coordinates               the form; 0.00001 degrees
    url                       the site's own address, the order of parameters, a slash at the end
    string_list, json         the order of members; white space
    markdown                  white space, the sign of list items

A list in place of one expected value names alternatives, and an expected text `^...$` is a pattern. In an agent's
answer neither is: a list there is a list, and a pattern is a text.
"""

import base64
import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from rapidfuzz import fuzz, utils

from agent2.texts import parse_json

MAX_CHARACTERS = 20_000
"""Of a text that is compared."""
MAX_SHORT = 300
"""Of a number, a date and the like: patterns take quadratic time on long rows of digits."""
PRICE_TOLERANCE = 0.1
DURATION_TOLERANCE = (180.0, 0.10)
"""Seconds, or a share of the longer one, whichever is more."""
DISTANCE_TOLERANCE = (10.0, 0.02)
"""Metres, or a share of the longer one."""
DEGREES_TOLERANCE = 1e-5
LOCATION_SIMILARITY = 80
"""Per cent of rapidfuzz's ratio of sorted words."""

_HYPHENS = "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00ad"
_HYPHEN_AT_LETTER = re.compile(rf"(?<=[a-zA-Z])[{_HYPHENS}]|[{_HYPHENS}](?=[a-zA-Z])")
_SIGNS = {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "−": "-", "—": "--", "•": "*", "×": "x", "ß": "ss"}
_SIGNS |= {"æ": "ae", "Æ": "ae", "œ": "oe", "ø": "o", "Ø": "o", "ł": "l", "đ": "d", "°": "deg"}
_ASCII = {ord(sign): text for sign, text in _SIGNS.items()}
_REMOTE = re.compile(r"(?:ssh://)?([\w.-]+)@[^/:]+(?::\d+(?=/))?[:/]/*(.+)$", re.IGNORECASE)
"""A repository over SSH, in either form."""
_ENDS = "'\"`.,;:!?"
_SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600}
_SECONDS |= {"d": 86400, "day": 86400, "w": 604800, "wk": 604800, "week": 604800}
_METRES = {"m": 1.0, "meter": 1.0, "metre": 1.0, "k": 1e3, "km": 1e3, "kilometer": 1e3, "kilometre": 1e3, "in": 0.0254}
_METRES |= {"mi": 1609.344, "mile": 1609.344, "ft": 0.3048, "foot": 0.3048, "feet": 0.3048, "yd": 0.9144}
_METRES |= {"yard": 0.9144, "cm": 0.01, "centimeter": 0.01, "centimetre": 0.01, "inch": 0.0254, "inche": 0.0254}
_MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTHS = tuple(name[:3] for name in _MONTH_NAMES)
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: n for n, word in enumerate(f"{_ONES} seventeen eighteen nineteen".split())}
_NUMBER_WORDS |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}


@dataclass(frozen=True, slots=True)
class Sites:
    """Where the sites of a task were when a run was recorded: `__GITLAB__` -> its addresses."""

    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """The text with each site's name in place of its address."""
        pairs = [(url.rstrip("/"), name) for name, urls in self.addresses.items() for url in urls if url.strip("/")]
        for url, name in sorted(pairs, key=lambda pair: -len(pair[0])):  # a shop's admin pages are below the shop
            text = re.sub(rf"{re.escape(url)}(?![\w.:-])", name, text, flags=re.IGNORECASE)
        return text


@dataclass(frozen=True, slots=True)
class Address:
    """A URL as it is compared."""

    base: str
    """Without parameters; of a pattern, the pattern."""
    query: Mapping[str, tuple[str, ...]]
    is_pattern: bool = False

    def has_base_of(self, address: "Address") -> bool:
        """Whether an address is at this place, whatever its parameters."""
        if self.is_pattern:
            return re.match(self.base, address.base[:MAX_CHARACTERS]) is not None
        return self.base.casefold() == address.base.casefold()

    def is_met_by(self, address: "Address", schema: Mapping[str, Any]) -> bool:
        """The same with parameters; an empty one is as good as none."""
        if not self.has_base_of(address):
            return False
        kinds = schema.get("properties", {})
        for name in {*self.query, *address.query}:
            expected, actual = (list(filter(None, query.get(name, ()))) for query in (self.query, address.query))
            if len(expected) == 1 and is_pattern(expected[0]):
                if re.match(expected[0], " ".join(actual)[:MAX_CHARACTERS]) is None:
                    return False
            elif not is_same([*expected], [*actual], kinds.get(name) or {"type": "array"}, Sites()):
                return False
        return True


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Which parameters of a URL count."""

    ignored: frozenset[str] = frozenset()
    ignored_patterns: tuple[str, ...] = ()
    decodes_base64: bool = False
    """Parameters may stand in the path as base64."""

    def read(
        self, text: str, sites: Sites, query: Mapping[str, Sequence[Any]] | None = None, *, is_expected: bool = False
    ) -> Address:
        """A URL; an expected one may be a pattern. query: counts in place of its own parameters.

        Raises ValueError, and re.error for a wrong pattern.
        """
        text = text.strip()
        if is_expected and is_pattern(text):
            re.compile(text)
            return Address(text, self._counted(query or {}), is_pattern=True)
        if remote := _REMOTE.match(text):
            return Address(f"{remote[1]}@ssh:{remote[2].rstrip('/')}".lower(), {})
        parts = urlsplit(sites.named(text))
        segments, written = parts.path.split("/"), [parts.query]
        if self.decodes_base64:
            decoded = [_query_in(segment) for segment in segments]
            segments = [segment for segment, inside in zip(segments, decoded, strict=True) if inside is None]
            written = [*filter(None, decoded), parts.query]
        host = parts.netloc.lower().removesuffix({"http": ":80", "https": ":443"}.get(parts.scheme, " "))
        base = unquote("/".join(segments)).rstrip("/") + (f"#{parts.fragment}" if parts.fragment else "")
        if not host and not base:
            raise ValueError(f"{text!r} is no URL")
        written_query = parse_qs("&".join(filter(None, written)), keep_blank_values=True)
        return Address(
            f"{parts.scheme}://{host}{base}" if host else base, self._counted(written_query if query is None else query)
        )

    def _counted(self, query: Mapping[str, Sequence[Any]]) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(sorted("" if value is None else str(value).strip().lower() for value in values))
            for name, values in query.items()
            if name not in self.ignored
            and not any(re.search(pattern, name, re.IGNORECASE) for pattern in self.ignored_patterns)
        }


def is_pattern(value: object) -> bool:
    """Whether an expected value is a pattern."""
    return isinstance(value, str) and len(value) > 1 and value.startswith("^") and value.endswith("$")


def is_same(expected: Any, actual: Any, schema: Mapping[str, Any], sites: Sites, *, is_ordered: bool = False) -> bool:
    """Whether a value is the expected one. Raises ValueError for an expected value that is not of its own kind."""
    name = str(schema.get("format") or schema.get("type") or "string")
    if expected is None or actual is None:
        return expected is actual
    if name == "array" or (isinstance(expected, list) and len(expected) == 1):
        return _is_same_list(expected, _parsed(actual), schema.get("items") or {}, sites, is_ordered)
    if isinstance(expected, dict) and name != "coordinates":
        members, kinds = _parsed(actual), schema.get("properties") or {}
        return (
            isinstance(members, dict)
            and members.keys() == expected.keys()
            and all(
                is_same(expected[key], members[key], kinds.get(key) or {}, sites, is_ordered=is_ordered)
                for key in expected
            )
        )
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"values of the kind {name!r} are not compared here")
    alternatives = [
        kind.parse_pattern(value) if is_pattern(value) and kind.parse_pattern else kind.parse(value)
        for value in (expected if isinstance(expected, list) else [expected])
    ]
    if isinstance(actual, str) and len(actual) > kind.longest:
        return False
    try:
        value = kind.parse(sites.named(actual) if isinstance(actual, str) and "http" in actual else actual)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False
    return any(kind.is_same(alternative, value) for alternative in alternatives)


def _is_same_list(expected: Any, actual: Any, items: Mapping[str, Any], sites: Sites, is_ordered: bool) -> bool:
    """Whether two lists have the same members, in any order unless that counts."""
    if not isinstance(expected, list) or not isinstance(actual, list) or len(expected) != len(actual):
        return False
    remaining = list(actual)
    for value in expected:
        candidates = range(1 if is_ordered else len(remaining))
        place = next((k for k in candidates if is_same(value, remaining[k], items, sites, is_ordered=is_ordered)), None)
        if place is None:
            return False
        remaining.pop(place)
    return True


def _parsed(value: Any) -> Any:
    """A list or an object that is written as JSON in a text."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return parse_json(value)
        except (ValueError, RecursionError):
            return value
    return value


def plain_text(value: Any) -> str:
    """A text without what does not count; a number as it is printed. Raises ValueError for a list or an object."""
    if isinstance(value, list | dict):
        raise ValueError(f"{value!r} is no single value")
    if not isinstance(value, str):
        return str(value).lower() if value else ""
    text = unicodedata.normalize("NFKC", value.translate(dict.fromkeys(map(ord, "™®℠©"))))
    text = _HYPHEN_AT_LETTER.sub(" ", text).translate(_ASCII)
    text = "".join(
        " " if letter in "\t\n\r" else letter for letter in text if letter in "\t\n\r" or letter.isprintable()
    )
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return " ".join(text.split()).casefold()


def _same_text(expected: Any, actual: str) -> bool:
    if isinstance(expected, re.Pattern):
        return expected.fullmatch(actual[:MAX_CHARACTERS]) is not None
    return bool(expected == actual or expected.strip(_ENDS) == actual.strip(_ENDS))


def _same_place(expected: str, actual: str) -> bool:
    if not expected or not actual:
        return expected == actual
    return round(fuzz.token_sort_ratio(expected, actual, processor=utils.default_process)) >= LOCATION_SIMILARITY


def _number(value: Any) -> float:
    text = plain_text(value) if isinstance(value, str) else value
    if isinstance(text, str):
        written = text.replace(",", "").replace(" ", "")
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", written):
            return float(written)
        return float(_number_in_words(text))
    return float(text)


def _number_in_words(text: str) -> int:
    total, part, parts = 0, 0, [word for word in re.findall(r"[a-z]+", text) if word != "and"]
    if not parts or re.search(r"\d", text):
        raise ValueError(f"{text!r} is no number")
    for word in parts:
        if word in _NUMBER_WORDS:
            part += _NUMBER_WORDS[word]
        elif word == "hundred":
            part = max(part, 1) * _SCALES[word]
        elif word in _SCALES:
            total, part = total + max(part, 1) * _SCALES[word], 0
        else:
            raise ValueError(f"{text!r} is no number")
    return total + part


def _boolean(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return bool(value)
    word = plain_text(value)
    if word in ("true", "yes", "y", "1", "t", "on"):
        return True
    if word in ("false", "no", "n", "0", "f", "off"):
        return False
    raise ValueError(f"{value!r} is neither yes nor no")


def _price(value: Any) -> float:
    text = plain_text(value) if isinstance(value, str) else str(value)
    amounts = re.findall(r"\d[\d.,]*", text)
    if len(amounts) != 1 or isinstance(value, bool | list | dict):
        raise ValueError(f"{value!r} is no price, or several")
    digits, sign = amounts[0].rstrip(".,"), -1 if text.startswith("-") else 1
    point = max(digits.rfind("."), digits.rfind(","))
    separator = digits[point] if point >= 0 else ""
    is_grouped = separator and (digits.count(separator) > 1 or (separator == "," and len(digits) - point == 4))
    whole, cents = (digits, "") if point < 0 or is_grouped else (digits[:point], digits[point + 1 :])
    return sign * float(f"{re.sub('[.,]', '', whole)}.{cents or 0}")


def _date(value: Any) -> tuple[int, int, int]:
    text = plain_text(value) if isinstance(value, str) else ""
    if len(re.findall(r"(?<!\d)\d{4}(?!\d)", text)) > 1:
        raise ValueError(f"{value!r} is more than one date")
    if match := re.search(r"(?<!\d)(\d{4})[-/. ](\d{1,2})[-/. ](\d{1,2})(?!\d)", text):
        year, month, day = map(int, match.groups())
    elif match := re.search(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4}|\d{2})(?!\d)", text):
        month, day, year = map(int, match.groups())
        month, day = (day, month) if month > 12 else (month, day)
    else:
        names = (word[:3] for word in re.findall(r"[a-z]{3,}", text))
        month = next((_MONTHS.index(name) + 1 for name in names if name in _MONTHS), 0)
        days = re.search(r"(?<![\d:])(\d{1,2})(?:st|nd|rd|th)?(?![\d:])", text)
        years = re.search(r"(?<!\d)\d{4}(?!\d)", text)
        day, year = int(days[1]) if days else 0, int(years[0]) if years else 0
    year += 2000 if 0 < year < 100 else 0
    if not (year and 1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"{value!r} is no date")
    return year, month, day


def _month(value: Any) -> int:
    text = plain_text(value).rstrip(".")
    is_name = any(len(text) >= 3 and name.startswith(text) for name in (*_MONTH_NAMES, "sept"))
    number = _MONTHS.index(text[:3]) + 1 if is_name else int(text) if text.isdecimal() else 0
    if not 1 <= number <= 12:
        raise ValueError(f"{value!r} is no month")
    return number


def _seconds(value: Any) -> float:
    text = re.sub(r"(\d+):(\d+)\s*hours?", r"\1h\2m", plain_text(value))
    if re.fullmatch(r"\d+:\d{2}(:\d{2}(\.\d+)?)?", text):
        total = 0.0
        for part in text.split(":"):
            total = 60 * total + float(part)
        return total
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text)
    left_over = re.sub(r"(\d+(?:\.\d+)?)\s*([a-z]+)|\band\b|[\s,]", "", text)
    if not parts or left_over or any(_unit(unit, _SECONDS) is None for _, unit in parts if unit != "and"):
        raise ValueError(f"{value!r} is no duration with a unit")
    return sum(float(number) * (_unit(unit, _SECONDS) or 0.0) for number, unit in parts)


def _metres(value: Any) -> float:
    match = re.fullmatch(r"([\d.,]+)\s*([a-z]+)\.?", plain_text(value))
    unit = _unit(match[2], _METRES) if match else None
    if match is None or unit is None:
        raise ValueError(f"{value!r} is no distance with a unit")
    return float(match[1].replace(",", "")) * unit


def _unit(word: str, units: Mapping[str, float]) -> float | None:
    return units.get(word, units.get(word.removesuffix("s")))


def _position(value: Any) -> tuple[float, float]:
    """Latitude and longitude."""
    if isinstance(value, dict):
        names = {key.lower(): number for key, number in value.items()}
        value = [
            next((number for key, number in names.items() if key.startswith(starts)), None)
            for starts in (("lat",), ("lon", "lng"))
        ]
    if isinstance(value, str):
        match = re.findall(r"([-+]?\d+(?:\.\d+)?)\s*(?:°|deg)?\s*([nsew]?)", plain_text(value))
        value = [-float(number) if side in ("s", "w") else float(number) for number, side in match]
    if not isinstance(value, list) or len(value) != 2 or any(isinstance(part, bool | None) for part in value):
        raise ValueError(f"{value!r} is no pair of coordinates")
    latitude, longitude = map(float, value)
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):
        raise ValueError(f"{value!r} is no place on earth")
    return latitude, longitude


def _members(value: Any) -> list[str]:
    members = sorted(filter(None, (part.strip() for part in plain_text(value).split(","))))
    if not members:
        raise ValueError(f"{value!r} names nothing")
    return members


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no JSON text")
    return json.loads(plain_text(value))


def _markdown(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    lines = [line.rstrip() for line in value.strip().replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    text = re.sub(r"^[ \t]*[*+-][ \t]+", "- ", text, flags=re.MULTILINE)
    text = re.sub(r"^(#{1,6})[ \t]+", r"\1 ", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\[\]]+)\]", lambda link: f"[{' '.join(link[1].split())}]", text)


def _query_in(segment: str) -> str | None:
    """The parameters that a segment of a path holds as base64; None: it holds none."""
    if re.fullmatch(r"[\w-]{4,}={0,2}", segment, re.ASCII) is None:
        return None
    try:
        text = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)).decode("utf-8")
    except ValueError:
        return None
    return unquote(text).strip().lstrip("?&") if "=" in text else None


def _near(absolute: float, share: float = 0.0) -> Callable[[float, float], bool]:
    def is_near(first: float, second: float) -> bool:
        return math.isfinite(second) and abs(first - second) <= max(absolute, share * max(first, second)) + 1e-9

    return is_near


class ValueKind(NamedTuple):
    """How values of one kind are read and compared."""

    parse: Callable[[Any], Any]
    """Raises ValueError for what is not of the kind."""
    is_same: Callable[[Any, Any], bool] = lambda first, second: bool(first == second)
    parse_pattern: Callable[[str], Any] | None = None
    """None: its values are never patterns."""
    longest: int = MAX_SHORT
    """Characters of an answer that can be right."""


def _url(value: Any) -> Address:
    return AddressRules().read(value if isinstance(value, str) else "", Sites())


def _url_pattern(text: str) -> Address:
    return AddressRules().read(text, Sites(), is_expected=True)


KINDS: Mapping[str, ValueKind] = {
    "string": ValueKind(plain_text, _same_text, lambda text: re.compile(text, re.IGNORECASE), MAX_CHARACTERS),
    "location-name": ValueKind(plain_text, _same_place, longest=MAX_CHARACTERS),
    "number": ValueKind(_number),
    "integer": ValueKind(_number),
    "boolean": ValueKind(_boolean),
    "currency": ValueKind(_price, _near(PRICE_TOLERANCE)),
    "date": ValueKind(_date),
    "month": ValueKind(_month),
    "duration": ValueKind(_seconds, _near(*DURATION_TOLERANCE)),
    "distance": ValueKind(_metres, _near(*DISTANCE_TOLERANCE)),
    "coordinates": ValueKind(_position, lambda first, second: all(map(_near(DEGREES_TOLERANCE), first, second))),
    "url": ValueKind(_url, lambda first, second: first.is_met_by(second, {}), _url_pattern, MAX_CHARACTERS),
    "string_list": ValueKind(_members, longest=MAX_CHARACTERS),
    "json": ValueKind(_json, longest=MAX_CHARACTERS),
    "markdown": ValueKind(_markdown, longest=MAX_CHARACTERS),
}
