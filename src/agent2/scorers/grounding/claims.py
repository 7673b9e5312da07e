"""Checkable claims in a text, tool episodes as grounding checks read them, and the context that supports a claim.

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

from agent2.environments.tools import parse_message
from agent2.records import JsonValue, Rollout


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


def word_set(text: str) -> frozenset[str]:
    """The words of a text; makes constants of word lists, and so stands before them."""
    return frozenset(text.split())


MAX_OPERANDS = 12
"""Where the context has more numbers, arithmetic explains any number; then operands must be in the same message."""
MAX_COMBINED = 200
"""Only the last operands are combined, this many: two of more numbers explain nearly any third."""
HUGE = 1e300
"""Larger numbers have no totals."""
MAX_FACTOR = 10
"""A number of the context may be multiplied by one up to this in the same message ("two passengers")."""
ANSWERING = frozenset({"answer", "final_answer", "finish", "respond", "reply", "submit_answer"})
"""Tools whose arguments are the final answer."""
SAYING = frozenset({"say", "ask_user", "message_user", "reply_to_user", "tell"})
"""Tools whose argument is a message to a user, and whose result is the user's reply."""
THINKING = frozenset({"think", "plan", "scratchpad"})
"""Tools that only take the model's own thoughts."""
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
_LABEL = re.compile(r"^[^\S\n]*(?:(?:[-*\u2022]|\d+[.)])[^\S\n]*)?\**[A-Z][\w /()-]{0,40}\**:\**", re.MULTILINE)
_LIST_NUMBER = re.compile(r"^[^\S\n]*\d+[.)](?:\s|$)", re.MULTILINE)
_MARKER = re.compile(r"\[\d+\]")
_TOKEN = re.compile(r"[^\W\d_][\w'\u2019-]*")
_SENTENCE = re.compile(r"(?<=[.!?])[\"\u201d*)]*\s+|\n+")
SENTENCE_END = re.compile(r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)\n*)")
"""What is between two sentences or lines. It begins with white space, so that other positions are skipped quickly."""
_FOLLOWS_A_NAME = re.compile(
    r"\s+(?:is|was|has|had|are|were|will|does|founded|said|says|lives|works|costs?|and|or)\b|'s\b|,"
)
_NO_NAMES = word_set(
    """
    i a an the this that these those it its he she they we you your my our their his her there here yes no not
    none ok okay and or but if when where who what which why how so then thus also as at by for from in into of
    on to with after before all any both each every some one done note please sorry thanks thank however
    therefore because since let sure great unfortunately currently unknown answer total result results api apis
    url urls id ids json http https sql usd eur pdf csv html faq mr mrs ms dr n/a na tbd hello hi regarding
    based according source sources reference references am pm am. pm. found nothing only both neither nobody
    everything could would can may i'm i've i'll it's that's there's here's don't can't couldn't let's you're
    yours he's she's we're they're is was are were has had will do does did booked ordered cancelled canceled
    updated refunded sent created deleted moved
    """
)
_RELATIVE = re.compile(
    r"\b(today|tomorrow|yesterday|tonight|(?:next|last|this|coming|following) (?:day|week|[a-z]+day)|"
    r"(?:day|week)s? (?:after|before|later|earlier)|"
    r"(?:in|by) (?:\w+ ){1,2}(?:days?|weeks?)|weekend)\b|:\d\d\+1\b",
    re.IGNORECASE,
)
NEAR_DAYS = 8
"""Where days are named relative to others ("the day after"), a date this near to one of the context is supported."""
_NOTHING = frozenset({"", "none", "null", "[]", "{}", "no results", "no result", "not found", "0 results", "n/a"})
_BRACKET_CALL = re.compile(r"(\w{1,40})\[(.*)\]")
_SOURCE_KEYS = frozenset({"pages", "sources", "citations", "urls", "references"})


@dataclass(frozen=True, slots=True)
class TextClaim:
    """One piece of a text that can be matched."""

    kind: ClaimKind
    text: str
    opens: bool = False
    """A name of several words at the start of a sentence, where the first word may be capitalised for that reason."""


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
        claims += [TextClaim(ClaimKind.NAME, *piece) for piece in _names(_LABEL.sub(" ", masked))]
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


def _names(text: str) -> Iterator[tuple[str, bool]]:
    """Runs of capitalised words, and whether each opens a sentence; single ones there only where a verb follows."""
    whole_text = text.strip(' .*"')
    for sentence in _SENTENCE.split(text):
        tokens = list(_TOKEN.finditer(sentence))
        start = 0
        while start < len(tokens):
            end = start + 1
            if _is_capitalised(tokens[start]):
                while (
                    end < len(tokens)
                    and _is_capitalised(tokens[end])
                    and sentence[tokens[end - 1].end() : tokens[end].start()] == " "
                ):
                    end += 1
                name = tokens[start:end]
                while name and name[0][0].casefold() in _NO_NAMES:
                    name = name[1:]
                while name and name[-1][0].casefold() in _NO_NAMES:
                    name = name[:-1]
                is_code = len(name) == 1 and re.fullmatch(r"[A-Z]{2,4}|[A-Z-]{5,}", name[0][0]) is not None
                if name and not is_code:
                    is_first = name[0].start() == tokens[0].start()
                    if len(name) > 1 or not is_first or _FOLLOWS_A_NAME.match(sentence, name[0].end()):
                        yield re.sub(r"['\u2019]s$", "", sentence[name[0].start() : name[-1].end()]), is_first
                    elif whole_text == name[0][0]:  # the text is this name alone, as an answer may be
                        yield name[0][0], False
            start = end


def _is_capitalised(token: re.Match[str]) -> bool:
    return token[0][0].isupper()


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
        further_words = claim.text.partition(" ")[2] if claim.opens else ""
        return self.has_words(claim.text) or bool(further_words and self.has_words(further_words))

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
        counts=set(_totals(data_of(text))) | ({float(len(lines))} if len(lines) > 1 else set()),
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


def _totals(data: JsonValue) -> Iterator[float]:
    """Lengths of lists in some data, and sum and mean of the numbers under each key of their entries."""
    if isinstance(data, Mapping):
        for value in data.values():
            yield from _totals(value)
    elif isinstance(data, list):
        yield float(len(data))
        columns: dict[str, list[float]] = {}
        for entry in data:
            for path, value in _figures(entry, ""):
                columns.setdefault(path, []).append(value)
            yield from _totals(entry)
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


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One tool call of an episode and its result."""

    turn: int
    name: str | None
    """None: the message was not a readable call."""
    arguments: Mapping[str, JsonValue]
    result: JsonValue
    error: str | None
    detail: str = ""
    injected: bool = False
    changed: bool | None = None
    """Whether it changed the world; None: not recorded."""

    @property
    def is_empty(self) -> bool:
        """Whether the call returned nothing: an error, or a result without content."""
        if self.error is not None and self.result is None:
            return True
        text = str(data_of(self.result)).strip().casefold()
        return text in _NOTHING or text.startswith(("no results", "not found", "no match"))


@dataclass(frozen=True, slots=True)
class Statement:
    """Text that the model wrote besides calls."""

    turn: int
    text: str
    is_thought: bool = False
    """True: written beside a call; False: a message to the user, or the final answer."""


@dataclass(frozen=True, slots=True)
class ToolEpisode:
    """A rollout as grounding checks read it."""

    opening: str
    calls: tuple[RecordedCall, ...]
    statements: tuple[Statement, ...]
    responses: tuple[tuple[int, str], ...] = ()
    """(turn, text) of what followed messages without a call, such as a user's responses."""
    citations: tuple[Mapping[str, JsonValue], ...] = ()
    """{page, exists, opened} of the final answer, where the world records them."""
    values: tuple[str, ...] = ()
    """The answers that the citations support."""

    def context_before(self, turn: int) -> GroundingContext:
        """All text that the model had before a turn."""
        context = GroundingContext()
        context.add(self.opening)
        for call in self.calls:
            if call.turn < turn:
                context.add("" if call.result is None else call.result)
                context.add(_without_echo(call))
                if call.name and call.error != "unknown_tool":
                    context.add(call.name.replace("_", " "))
        for reply_turn, text in self.responses:
            if reply_turn < turn:
                context.add(text)
        by_tool: dict[str | None, list[JsonValue]] = {}
        for call in self.calls:
            if call.turn < turn and call.error is None:
                by_tool.setdefault(call.name, []).append(data_of(call.result))
        for results in by_tool.values():
            context.add_counts(_totals(results) if len(results) > 1 else ())
        return context

    @property
    def final(self) -> Statement | None:
        """The last statement that is not a thought."""
        messages = [statement for statement in self.statements if not statement.is_thought]
        return messages[-1] if messages else None


def _without_echo(call: RecordedCall) -> str:
    """The text of an error without the call's own arguments: an invented value is not supported by being repeated."""
    text = call.detail
    for value in leaves_of(call.arguments):
        text = text.replace(str(value), " ") if str(value).strip() else text
    return text


def leaves_of(value: JsonValue) -> Iterator[JsonValue]:
    """The texts, numbers and booleans in some data."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves_of(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves_of(inner)
    elif value is not None:
        yield value


def read_episode(rollout: Rollout) -> ToolEpisode | None:
    """A rollout as an episode with tools; None for one without tools (no calls recorded, and none in its messages).

    Calls are those that the world recorded in `state["tool_calls"]`; without them, those that can be read from the
    messages, each with the reply as its result.
    """
    recorded = rollout.state.get("tool_calls")
    calls = _calls_in_records(recorded) if isinstance(recorded, list) else _calls_in_messages(rollout)
    if calls is None:
        return None
    final = rollout.state.get("final")
    final = final if isinstance(final, Mapping) else {}
    thinking = [call for call in calls if call.name in THINKING]
    saying = [call for call in calls if call.name in SAYING and call.error is None]
    calls = [call for call in calls if call.name not in THINKING and call not in saying]
    answering = [call for call in calls if call.name in ANSWERING and call.error is None]
    calling = {call.turn for call in (*calls, *thinking, *saying)}
    statements: list[Statement] = []
    responses: list[tuple[int, str]] = []
    for call in saying:
        statements += [Statement(call.turn, str(argument)) for argument in leaves_of(call.arguments)]
        responses.append((call.turn, str(call.result or "")))
    for call in thinking:
        statements += [Statement(call.turn, str(argument), is_thought=True) for argument in leaves_of(call.arguments)]
    for number, turn in enumerate(rollout.turns):
        text = _text_beside_calls(turn.action) if number in calling else turn.action.strip()
        if text:
            statements.append(Statement(number, text, is_thought=number in calling))
        if number not in calling and turn.observation:
            responses.append((number, turn.observation))
    last = max([len(rollout.turns) - 1, *calling], default=0)
    if answering:
        values = "; ".join(str(value) for key, value in answering[-1].arguments.items() if key not in _SOURCE_KEYS)
        statements.append(Statement(answering[-1].turn, values))
    elif rollout.answer and rollout.answer.strip() not in {turn.action.strip() for turn in rollout.turns}:
        statements.append(Statement(last + (last in calling), rollout.answer.strip()))
    return ToolEpisode(
        opening="\n".join(message.text for message in rollout.prompt),
        calls=tuple(call for call in calls if call.name not in ANSWERING or call.error is not None),
        statements=tuple(sorted(statements, key=lambda statement: statement.turn)),
        responses=tuple(responses),
        citations=tuple(citation for citation in final.get("citations", ()) if isinstance(citation, Mapping)),
        values=tuple(str(value) for value in final.get("values", ())),
    )


def _calls_in_records(records: Iterable[JsonValue]) -> list[RecordedCall]:
    return [
        RecordedCall(
            int(record.get("turn", index)),
            record.get("name"),
            record.get("arguments") or {},
            record.get("result"),
            record.get("error"),
            str(record.get("detail") or ""),
            bool(record.get("injected")),
            record.get("changed"),
        )
        for index, record in enumerate(records)
        if isinstance(record, Mapping)
    ]


def _calls_in_messages(rollout: Rollout) -> list[RecordedCall] | None:
    """The calls in the messages of a rollout; None if there is none."""
    calls = []
    for number, turn in enumerate(rollout.turns):
        for name, arguments in _calls_in(turn.action):
            reply = turn.observation
            data = data_of(reply) if reply else None
            error = data.get("error") if isinstance(data, Mapping) and data.get("error") else None
            if error is None and reply and reply.lstrip().casefold().startswith("error"):
                error = reply.strip()
            result = data.get("result", data) if isinstance(data, Mapping) and error is None else reply
            kind = None if error is None else str(error).partition(":")[0].strip()
            calls.append(
                RecordedCall(number, name, arguments, result if error is None else None, kind, str(error or ""))
            )
    return calls or None


def _calls_in(action: str) -> list[tuple[str, Mapping[str, JsonValue]]]:
    text = action.strip()
    if imported := [call for line in text.splitlines() if (call := _imported(line)) is not None]:
        return imported
    if text.startswith(("{", "[")):
        return [(call.name, call.arguments) for call in parse_message(text).calls]
    match = _BRACKET_CALL.fullmatch(text.rpartition("\n")[2].strip())
    return [] if match is None else [(match[1], {"argument": match[2].strip()} if match[2].strip() else {})]


def _imported(line: str) -> tuple[str, Mapping[str, JsonValue]] | None:
    """A call as imported cards write it, on a line after the text of its message."""
    if not line.startswith("{"):
        return None
    call = data_of(line)
    if not isinstance(call, Mapping) or not isinstance(call.get("tool"), str):
        return None
    arguments = call.get("arguments")
    return call["tool"], arguments if isinstance(arguments, Mapping) else {}


def _text_beside_calls(action: str) -> str:
    """The text of a message without its call."""
    text = action.strip()
    lines = text.splitlines()
    if any(_imported(line) is not None for line in lines):
        return "\n".join(line for line in lines if _imported(line) is None).strip()
    return "" if text.startswith(("{", "[")) else text.rpartition("\n")[0].strip()
