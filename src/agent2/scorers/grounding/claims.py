"""Checkable claims in a text, and the context that supports a claim.

A claim is a piece of text that can be matched without understanding the sentence: a number, a time, a date, an
identifier, an address, a name, a quotation. `GroundingContext` has all text before some turn (prompt, tool results,
responses of a user) and decides whether a claim is in it, in any notation (`1,200` and `1200`, `3 pm` and `15:00`,
`May 20` and `2024-05-20`), or follows from it by one step of arithmetic (rounding, a count, a sum, a difference, a
product, a quotient).

Does NOT understand sentences, know the world, or translate: a name known from elsewhere was never given.
"""

import json
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np

from agent2.records import JsonValue
from agent2.scorers.grounding.names import is_descriptive, names_of


class ClaimKind(StrEnum):
    """Kinds of text that can be matched."""

    NUMBER = "number"
    TIME = "time"
    DATE = "date"
    IDENTIFIER = "identifier"
    ADDRESS = "address"
    """URL or e-mail address."""
    NAME = "name"
    QUOTE = "quote"


MAX_OPERANDS = 12
"""Where the context has more numbers, arithmetic explains any number; then operands must be in the same message."""
MAX_COMBINED = 200
"""Only the last operands are combined, this many: two of more numbers explain nearly any third."""
HUGE = 1e300
"""Larger numbers have no totals."""
MAX_FACTOR = 10
"""A number of the context may be multiplied by one up to this in the same message ("two passengers")."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"  # noqa: E501
_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"'`)\]]+")
_EMAIL = re.compile(r"(?<![\w.+-])[.+-]*(\w[\w.+-]*@[\w-]+\.[\w.-]*\w)")
"""Begins at the start of its run of characters: trying every position in it would take quadratic time."""
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})(?!\d)")
_MONTH_FIRST = re.compile(rf"\b{_MONTH}\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(\d{{4}}))?", re.IGNORECASE)
_DAY_FIRST = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}(?![a-z])(?:,?\s+(\d{{4}}))?", re.IGNORECASE
)
_TIME = re.compile(
    r"\b(\d{1,2})(?::(\d{2}))?(?::\d{2})?\s*([ap])\.?m\b\.?|\b(\d{1,2}):(\d{2})(?::\d{2})?\b", re.IGNORECASE
)
_DATED = (
    (_ISO_DATE, ClaimKind.DATE),
    (_MONTH_FIRST, ClaimKind.DATE),
    (_DAY_FIRST, ClaimKind.DATE),
    (_TIME, ClaimKind.TIME),
)
_DIGIT = re.compile(r"\d")
_ORDINAL = re.compile(r"\b\d+(?:st|nd|rd|th)\b")
_IDENTIFIER = re.compile(r"#\d+|(?<![\w.#-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w+(?:-\w+)*")
_MEASURE = re.compile(
    r"-?\d[\d.,]*-?(kg|g|mg|lb|km|m|cm|mm|mi|h|hr|hrs|hours?|s|sec|min|mins|ms|x|k|gb|mb|kb|usd|eur|euros?|dollars?|c|f|"
    r"days?|nights?|stars?|way|stop|person|people|pieces?|px|percent)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_NUMBER_WORDS = """two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand"""
_WORDS_OF_NUMBERS = dict(zip(_NUMBER_WORDS.split(), [*range(2, 21), *range(30, 100, 10), 100, 1000], strict=True))
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_WORDS_OF_NUMBERS)})\b", re.IGNORECASE)
_QUOTE = re.compile('["\u201c]([^"\u201c\u201d]{1,2000})["\u201d]')
_LIST_NUMBER = re.compile(r"^[^\S\n]*\d+[.)](?:\s|$)", re.MULTILINE)
_MARKER = re.compile(r"\[\d+\]")
SENTENCE_END = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n*)")
"""What is between two sentences or lines. It begins with white space, so that other positions are skipped quickly."""
_RELATIVE = re.compile(
    r"\b(today|tomorrow|yesterday|tonight|(?:next|last|this|coming|following) (?:day|week|[a-z]+day)|"
    r"(?:day|week)s? (?:after|before|later|earlier)|"
    r"(?:in|by) (?:\w+ ){1,2}(?:days?|weeks?)|weekend)\b|:\d\d\+1\b",
    re.IGNORECASE,
)
NEAR_DAYS = 8
"""Where days are named relative to others ("the day after"), a date this near to one of the context is supported."""


@dataclass(frozen=True, slots=True)
class TextClaim:
    """One piece of a text that can be matched."""

    kind: ClaimKind
    text: str
    opens: bool = False
    """A name of several words at the start of a sentence, where the first word may be capitalised for that reason."""
    code: str = ""
    """The code in brackets behind a name, "LAX" of "Los Angeles (LAX)"."""


def plain(text: object) -> str:
    """Lower case without accents, one blank between words, without punctuation except inside numbers."""
    folded = str(text)
    if not folded.isascii():
        folded = "".join(
            character for character in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(character)
        )
    words = re.findall(r"\d+(?:[.,]\d+)*|[^\W_]+", folded.casefold())
    return f" {' '.join(word.replace(',', '') if word[0].isdigit() else word for word in words)} "


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """A word without the ending of its plural or genitive."""
    word = word.casefold()
    word = word[:-2] if word.endswith(("'s", "\u2019s")) else word
    for ending, instead in (("ies", "y"), ("ses", "s"), ("s", "")):
        if len(word) > len(ending) + 2 and word.endswith(ending) and not word.endswith("ss"):
            return word[: -len(ending)] + instead
    return word


def addresses_of(text: str) -> list[str]:
    """The URLs and e-mail addresses of a text, each once."""
    return list(dict.fromkeys(_without_addresses(_unmarked(text))[0]))


def claims_of(text: str, *, with_names: bool = True) -> list[TextClaim]:
    """Every claim of a text, each once, in order of kinds; quotations are only those of four words or more."""
    text = _unmarked(text)
    claims = [TextClaim(ClaimKind.QUOTE, piece) for piece in _QUOTE.findall(text) if len(piece.split()) >= 4]
    addresses, masked = _without_addresses(text)
    claims += [TextClaim(ClaimKind.ADDRESS, piece) for piece in addresses]
    if _DIGIT.search(masked):  # all of these have one, and each pass over a long text takes time
        masked = _MARKER.sub(" ", _LIST_NUMBER.sub(" ", masked))
        for pattern, kind in _DATED:
            if matches := list(pattern.finditer(masked)):
                claims += [TextClaim(kind, match[0]) for match in matches]
                masked = pattern.sub(" ", masked)
        masked = _ORDINAL.sub(" ", masked)
        identifiers = [piece for piece in _IDENTIFIER.findall(masked) if not _MEASURE.fullmatch(piece)]
        claims += [TextClaim(ClaimKind.IDENTIFIER, piece) for piece in identifiers]
        masked = _IDENTIFIER.sub(lambda match: match[0] if _MEASURE.fullmatch(match[0]) else " ", masked)
        masked = re.sub(r"(\d)-?(?=[A-Za-z])", r"\1 ", masked)
        claims += [TextClaim(ClaimKind.NUMBER, match[0]) for match in _NUMBER.finditer(masked)]
    claims += [TextClaim(ClaimKind.NUMBER, match[0]) for match in _NUMBER_WORD.finditer(masked)]
    if with_names:
        claims += [TextClaim(ClaimKind.NAME, name.text, name.opens, name.code) for name in names_of(masked)]
    return list(dict.fromkeys(claims))


def _unmarked(text: str) -> str:
    return text.replace("\u2212", "-").replace("**", "")


def _without_addresses(text: str) -> tuple[list[str], str]:
    """The addresses of a text, and the text without them."""
    addresses = []
    if "://" in text or "www." in text:
        addresses += [match[0].rstrip(".,;:!?") for match in _URL.finditer(text)]
        text = _URL.sub(" ", text)
    if "@" in text:
        addresses += [match[1] for match in _EMAIL.finditer(text)]
        text = _EMAIL.sub(" ", text)
    return addresses, text


def number_of(text: str) -> float:
    """The value of a number claim."""
    word = _WORDS_OF_NUMBERS.get(text.casefold())
    return float(word) if word is not None else float(text.replace(",", ""))


def _minutes(match: re.Match[str]) -> int:
    if match[3]:
        return (int(match[1]) % 12 + (12 if match[3].casefold() == "p" else 0)) * 60 + int(match[2] or 0)
    return int(match[4]) * 60 + int(match[5])


def _dates(text: str) -> Iterator[tuple[int, int, int | None]]:
    """(month, day, year or None) of each date in a text."""
    for match in _ISO_DATE.finditer(text):
        yield int(match[2]), int(match[3]), int(match[1])
    for match in _MONTH_FIRST.finditer(text):
        yield _MONTHS.index(match[1][:3].casefold()) + 1, int(match[2]), int(match[3]) if match[3] else None
    for match in _DAY_FIRST.finditer(text):
        yield _MONTHS.index(match[2][:3].casefold()) + 1, int(match[1]), int(match[3]) if match[3] else None


def _day_of_year(month: int, day: int) -> int:
    """Approximate; exact enough to compare days of neighbouring weeks."""
    return 31 * (month - 1) + day


@dataclass
class GroundingContext:
    """All text that the model had before some turn, prepared for looking up claims."""

    texts: list[str] = field(default_factory=list)
    plain_text: str = " "
    """All texts as `plain` writes them, one line each."""
    stems: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    counts: set[float] = field(default_factory=set)
    """Lengths of lists, and sums and means of their columns."""
    times: set[int] = field(default_factory=set)
    dates: set[tuple[int, int, int | None]] = field(default_factory=set)

    def add(self, content: JsonValue) -> None:
        """Add a text, or a tool's result."""
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        analysed = _analysed(text)
        self.texts.append(text)
        self.plain_text += analysed.plain_text
        self.stems |= analysed.stems
        self.dates |= analysed.dates
        self.times |= analysed.times
        self.numbers |= analysed.numbers
        self.add_counts(analysed.counts)

    def add_counts(self, counts: Iterable[float]) -> None:
        """Add lengths and totals of lists in the texts."""
        self.counts.update(counts)
        self.__dict__.pop("index", None)  # the cached property; its tables are out of date

    @cached_property
    def index(self) -> "_ContextIndex":
        """Tables that make a look-up among many texts as fast as among few."""
        return _ContextIndex(self)

    def supports(self, claim: TextClaim, beside: Sequence[float] = ()) -> bool:
        """Whether the texts contain a claim, in any notation; beside: supported numbers of the claim's own message."""
        if claim.kind is ClaimKind.NUMBER:
            return self.supports_number(number_of(claim.text), claim.text, beside)
        if claim.kind is ClaimKind.DATE:
            month, day, year = next(iter(_dates(claim.text)))
            if str(day) in self.index.ordinals:
                return True  # "the 6th", of a month that is understood
            span, about = NEAR_DAYS if self.index.speaks_of_days else 0, _day_of_year(month, day)
            return any(
                year is None or context_year is None or year == context_year
                for near in range(about - span, about + span + 1)
                for context_year in self.index.years.get(near, ())
            )
        if claim.kind is ClaimKind.TIME:
            # Twelve hours later, too: "3:00" may mean 15:00.
            match = _TIME.search(claim.text)
            return match is not None and bool({_minutes(match), (_minutes(match) + 720) % 1440} & self.times)
        if claim.kind in (ClaimKind.ADDRESS, ClaimKind.QUOTE):
            return self.has_verbatim(claim.text)
        return self._supports_name(claim)

    def _supports_name(self, claim: TextClaim) -> bool:
        """Whether the texts have a name, or the code that it spells out; words that only describe need no support."""
        if claim.code and plain(claim.code) in self.plain_text:
            return True
        parts = claim.text.split()
        named = " ".join(part for part in parts if not is_descriptive(part)) if len(parts) > 1 else claim.text
        further_words = claim.text.partition(" ")[2] if claim.opens else ""
        return self.has_words(named) or bool(further_words and self.has_words(further_words))

    def has_words(self, text: str) -> bool:
        """Whether the texts contain every word of a text, in any order and inflection of number."""
        words = plain(text).split()
        return all(stem(word) in self.stems for word in words) if words else plain(text) in self.plain_text

    def has_verbatim(self, text: str) -> bool:
        """Whether they contain a text word by word; "..." stands for anything."""
        bare = re.sub(r"^(?:https?://)?(?:www\.)?|/+$", "", text.strip())
        parts = [part for part in re.split(r"\.\.\.|\u2026", bare) if plain(part).strip()]
        return bool(parts) and all(self.has_words(part) and plain(part) in self.plain_text for part in parts)

    def supports_number(self, value: float, text: str = "", beside: Sequence[float] = ()) -> bool:
        """Whether a number is in the texts, or follows from them in one step."""
        if value in self.numbers or value in self.counts:
            return True
        decimals, index = len(text.partition(".")[2]) if "." in text else 0, self.index
        if value in index.rounded(decimals):
            return True
        if 0 < value < 100 and 100 - value in self.numbers and index.has_percent:
            return True
        combined = index.combined(beside)
        if any(value / k in self.numbers or value / k in self.counts for k in combined.factors):
            return True  # k times a price
        if re.fullmatch(r"\d{4,}", text) and index.ends_longer_number(text):
            return True
        return combined.contains(value, decimals)


@lru_cache(maxsize=1024)
def _analysed(text: str) -> GroundingContext:
    """The context of one text; cached, so never to be changed."""
    loose = text.replace("_", " ")
    numbers = {number_of(number) for number in re.findall(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", loose)}
    numbers |= {abs(number) for number in numbers}
    numbers |= {float(_WORDS_OF_NUMBERS[number.casefold()]) for number in _NUMBER_WORD.findall(loose)}
    lines = [line for line in text.splitlines() if line.strip()]
    return GroundingContext(
        plain_text=plain(text) + "\n",
        stems={stem(word) for word in plain(text).split()},
        numbers=numbers,
        counts=set(totals(data_of(text))) | ({float(len(lines))} if len(lines) > 1 else set()),
        times={_minutes(match) for match in _TIME.finditer(loose)},
        dates=set(_dates(loose)),
    )


class _ContextIndex:
    """Tables of a context, each made at its first use."""

    def __init__(self, context: GroundingContext) -> None:
        self._context = context
        self._rounded: dict[int, set[float]] = {}
        self._combined: tuple[Sequence[float], _Combinations] | None = None

    @cached_property
    def ordinals(self) -> set[str]:
        """The days that are written as "6th"."""
        return {day for text in self._context.texts for day in re.findall(r"\b(\d+)(?:st|nd|rd|th)\b", text)}

    @cached_property
    def speaks_of_days(self) -> bool:
        """Whether days are named relative to others."""
        return _RELATIVE.search(" ".join(self._context.texts)) is not None

    @cached_property
    def years(self) -> dict[int, set[int | None]]:
        """Day of the year -> years of the dates on it."""
        years: dict[int, set[int | None]] = {}
        for month, day, year in self._context.dates:
            years.setdefault(_day_of_year(month, day), set()).add(year)
        return years

    @cached_property
    def has_percent(self) -> bool:
        """Whether some text has a percentage."""
        return any("%" in text for text in self._context.texts)

    @cached_property
    def digits(self) -> str:
        """All digits in a row."""
        return re.sub(r"\D", "", " ".join(self._context.texts))

    @cached_property
    def results(self) -> str:
        """All texts but the opening, in lower case."""
        return "\n".join(self._context.texts[1:]).casefold()

    @cached_property
    def vocabulary(self) -> dict[int, list[str]]:
        """Length -> the words of that length."""
        by_length: dict[int, list[str]] = {}
        for word in dict.fromkeys(self._context.plain_text.split()):
            by_length.setdefault(len(word), []).append(word)
        return by_length

    @cached_property
    def _reversed_runs(self) -> list[str]:
        return sorted({run[::-1] for text in self._context.texts for run in re.findall(r"\d+", text)})

    def ends_longer_number(self, digits: str) -> bool:
        """Whether these are the last digits of a longer number."""
        # Reversed, the longer numbers with this ending follow it in sorted order.
        runs, ending = self._reversed_runs, digits[::-1]
        index = bisect_left(runs, ending)
        index += index < len(runs) and runs[index] == ending
        return index < len(runs) and runs[index].startswith(ending)

    def rounded(self, decimals: int) -> set[float]:
        """Fractions of the context, rounded, and those below 1 as rounded percentages."""
        if decimals not in self._rounded:
            context = self._context
            fractions = {
                number
                for number in context.numbers | context.counts
                if math.isfinite(number) and not number.is_integer()
            }
            percent = {100 * number for number in context.numbers if 0 < number < 1}
            self._rounded[decimals] = {round(number, decimals) for number in fractions | percent}
        return self._rounded[decimals]

    def combined(self, beside: Sequence[float]) -> "_Combinations":
        """What follows in one step, with these numbers of the same message."""
        # Cached for the list itself, not its content: a caller passes one list for all claims of a message.
        if self._combined is None or self._combined[0] is not beside:
            context = self._context
            operands = context.numbers | context.counts if len(context.numbers) <= MAX_OPERANDS else set()
            self._combined = beside, _Combinations([*sorted(operands), *beside], beside)
        return self._combined[1]


class _Combinations:
    """Sums, differences, products and quotients of any two of some numbers."""

    def __init__(self, operands: Sequence[float], beside: Sequence[float]) -> None:
        self.factors = {k for k in beside if 2 <= k <= MAX_FACTOR and k == int(k)}
        distinct = list(dict.fromkeys(operand for operand in operands if math.isfinite(operand)))[-MAX_COMBINED:]
        first, second = (axis.ravel() for axis in np.meshgrid(distinct, distinct, indexing="ij"))
        with np.errstate(all="ignore"):
            results = np.concatenate([first + second, first - second, first * second, first / second])
            shares = np.where((results >= 0) & (results <= 1), 100 * results, np.nan)
        pairs = np.tile(np.stack([first, second]), 8)
        values = np.concatenate([results, shares])
        is_finite = np.isfinite(values)
        order = np.argsort(values[is_finite], kind="stable")
        self._values, self._pairs = values[is_finite][order], pairs[:, is_finite][:, order]

    def contains(self, value: float, decimals: int) -> bool:
        """Whether some result that is not made of the value itself rounds to the value."""
        margin = 0.5 * 10.0**-decimals * (1 + 1e-6)
        start, end = np.searchsorted(self._values, (value - margin, value + margin), "left")
        return any(
            abs(round(float(self._values[index]), decimals) - value) < 1e-9 and value not in self._pairs[:, index]
            for index in range(start, end)
        )


def data_of(result: JsonValue) -> JsonValue:
    """A result as data where its text is JSON."""
    if isinstance(result, str) and result.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(result)
        except (ValueError, RecursionError):
            return result
    return result


def totals(data: JsonValue) -> Iterator[float]:
    """Lengths of lists in some data, and sum and mean of the numbers under each key of their entries."""
    if isinstance(data, Mapping):
        for value in data.values():
            yield from totals(value)
    elif isinstance(data, list):
        yield float(len(data))
        columns: dict[str, list[float]] = {}
        for entry in data:
            for path, value in _figures(entry, ""):
                columns.setdefault(path, []).append(value)
            yield from totals(entry)
        for column in columns.values():
            yield sum(column)
            yield sum(column) / len(column)


def _figures(entry: JsonValue, path: str) -> Iterator[tuple[str, float]]:
    """The numbers of an entry with the keys that lead to them; lists in it have totals of their own."""
    if isinstance(entry, Mapping):
        for key, value in entry.items():
            yield from _figures(value, f"{path}.{key}")
    elif isinstance(entry, int | float) and not isinstance(entry, bool) and abs(entry) < HUGE:
        yield path, float(entry)
