"""Rules for final answers: exact text, rational numbers, multiple choice, and the last line of a worked solution.

exact         the answer is the reference, white space at the ends aside; case and punctuation count
rational      the whole answer is one number: an integer (`-12`), a fraction (`7/3`, spaces around the bar allowed) or a
              decimal (`2.5`), compared by value. Words, two numbers, exponents, thousands separators and `inf` are no
              number, and an answer without one is wrong. No partial credit, no search inside a sentence
choice        the letter of an option, read in this order: the whole answer is a letter (`B`, `(b)`, `**B**`, `B.`); the
              first "answer is (B)", the pattern that MMLU-Pro publishes; the first "Answer: B", its second step; a
              letter and the text of its option at the beginning (`B) blue`). Any other letter at the beginning numbers
              a part of the working. Where the letter of a pattern is no option, nothing was chosen. The view
              `flexible_match` also takes the last isolated letter; views for every option show a preference
              for one position. A letter is one only when no word follows it: "the answer is Apples" chooses nothing
final_answer  the number of a worked solution, in two readings. Strict, which decides the score, is the one that GSM8K
              publishes: the number behind the first `#### ` (one space), an optional minus sign, digits, commas and a
              point. Flexible is the last number of the text, with a currency sign, a typographic minus or other digits.
              Both compare by value (`18`, `18.0`, `1,800` and `1800.00`), where the published script compares strings,
              and refuse what is only part of a number: `1,8`, `5/2`, `18-20`, `18k`, `1.2.3`
token_f1      words in common with the nearest accepted answer (SQuAD), `anls` letters in common (DocVQA: 0 from half
              the letters wrong on), `relaxed_numeric` a number within 5% (ChartQA), otherwise the same text. Accepted
              are the reference and the texts in the item's payload `accepted`. The view `exact_match` says whether
              the answer is one of them, case aside (of numbers by value), `answer_parsed` whether a number was read
longer_answer the smallest pairwise scorer, as an example and for tests

Only an item that cannot be judged at all has a missing score. Does NOT check the working, evaluate expressions or
convert units. How this differs from other harnesses: docs/mini-benchmarks.md.

`relaxed_numeric` reads numbers however they are written: `1,234.50`, `1.234,5`, `1 234.5`, `$1,234.5`, `1234.5 dollars`
and `(1,234.5)` for a negative one; arithmetic is exact (fractions, no float at the edge of the tolerance). A text is a
number only if exactly one is in it, with words or a known unit around it. Two known units that differ are never equal.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from string import ascii_lowercase, ascii_uppercase

from rapidfuzz.distance import Levenshtein

from agent2.cards.judgement import EMITS
from agent2.errors import ConfigError, Fault
from agent2.records import Item, Preference, Rollout, Score, ScorerOutput

ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


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


MAX_QUANTITY_CHARACTERS = 200
"""Longer texts are not read as numbers."""
MAX_EXPONENT = 300
_WRITTEN_DIGITS = (
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:[ _']\d{3})+(?:[.,]\d+)?"  # 1,234.5 and 1 234.5
    r"|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}\.\d{3},\d+"  # 1.234.567,8 and 1.234,5
    r"|\d+(?:[.,]\d+)?|[.,]\d+"
)
_QUANTITY = re.compile(
    rf"(?<![^\s$€£¥(=:~≈])(?P<sign>[+-]?)(?P<money>[$€£¥]?)\s?(?P<sign2>[+-]?)(?P<digits>{_WRITTEN_DIGITS})"
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
    if len(text) > MAX_QUANTITY_CHARACTERS:
        return None
    plain = text.translate(_MARKS).strip()
    found = list(_QUANTITY.finditer(plain))
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


class ExactScorer:
    """1.0 if the stripped answer equals the stripped reference, else 0.0 (`exact_match` of task sets)."""

    name = "exact"
    version = "1.0"
    emits = ScorerOutput()

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item has no reference."""
        if item.reference is None:
            return Score(None, f"item {item.id} has no reference to compare with; correct the benchmark", Fault.JUDGE)
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        if rollout.answer.strip() == item.reference.strip():
            return Score(1.0, "the answer is the reference", extracted=rollout.answer.strip())
        reason = f"the answer {brief(rollout.answer)} is not the reference {brief(item.reference)}"
        return Score(0.0, reason, extracted=rollout.answer.strip())


class TokenF1Scorer:
    """Token F1 with the nearest accepted answer (`token_f1`); the base of the two others."""

    name = "token_f1"
    version = "1.0"
    emits = ScorerOutput(views=frozenset({"exact_match", "answer_parsed"}))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item has no reference, or `accepted` is no list of texts."""
        more = item.payload.get("accepted") or []
        if item.reference is None or not isinstance(more, list) or not all(isinstance(text, str) for text in more):
            return Score(
                None,
                f"item {item.id} needs a reference, and `accepted` as a list of texts if any; correct the benchmark",
                Fault.JUDGE,
            )
        answer, known = rollout.answer, [item.reference, *map(str, more)]
        if answer is None:
            return Score(0.0, "there is no answer", views={"exact_match": 0.0, "answer_parsed": 0.0})
        value, nearest = max((self.likeness(answer, text), -number) for number, text in enumerate(known))
        views = {
            "exact_match": float(any(self.is_same(answer, text) for text in known)),
            "answer_parsed": float(self.is_read(answer, known)),
        }
        reason = f"the answer {brief(answer)} scores {value:.2f} against {brief(known[-nearest])}"
        return Score(value, reason, extracted=answer.strip(), views=views)

    def likeness(self, answer: str, reference: str) -> float:
        """From 0 to 1."""
        return token_f1(answer, reference)

    def is_same(self, answer: str, reference: str) -> bool:
        """Whether the two count as equal."""
        return plain_words(answer) == plain_words(reference)

    def is_read(self, answer: str, known: Sequence[str]) -> bool:
        """Whether the answer has the form that is asked for; any text has."""
        return True


class AnlsScorer(TokenF1Scorer):
    """Normalised Levenshtein similarity; its mean is ANLS.

    Source: Biten et al. 2019 (ST-VQA; the metric of DocVQA), as generally known; not checked against the paper.
    """

    name = "anls"

    def likeness(self, answer: str, reference: str) -> float:
        """From 0 to 1; 0 where half of the letters or more differ."""
        return answer_similarity(answer, reference)

    def is_same(self, answer: str, reference: str) -> bool:
        """Whether no letter differs."""
        return answer_similarity(answer, reference) == 1.0


class RelaxedNumericScorer(TokenF1Scorer):
    """1 if a number is within `tolerance` of the reference's, or the texts are the same; the exact layer is a view.

    Source: ChartQA's relaxed accuracy, 5% (Masry et al. 2022), as generally known; not checked against the paper.
    Does NOT protect from what a 5% tolerance lets through: years, counts, identifiers.
    """

    name = "relaxed_numeric"

    def __init__(self, tolerance: float = 0.05) -> None:
        """tolerance: share of the reference, from 0 to below 1."""
        if not 0.0 <= tolerance < 1.0:
            raise ConfigError(f"tolerance={tolerance} must be a share of the reference from 0 to below 1, such as 0.05")
        self._tolerance = tolerance
        self.version = "1.0" if tolerance == 0.05 else f"1.0-{tolerance:g}"

    def likeness(self, answer: str, reference: str) -> float:
        """0 or 1."""
        return float(self._within(answer, reference, self._tolerance))

    def is_same(self, answer: str, reference: str) -> bool:
        """By value, or as text without case and outer white space."""
        return self._within(answer, reference, 0.0)

    def is_read(self, answer: str, known: Sequence[str]) -> bool:
        """Whether one number was found, where one is asked for."""
        return parse_quantity(answer) is not None or all(parse_quantity(text) is None for text in known)

    def _within(self, answer: str, reference: str, tolerance: float) -> bool:
        said, asked = parse_quantity(answer), parse_quantity(reference)
        is_near = said is not None and asked is not None and same_number(said, asked, tolerance)
        return is_near or answer.strip().casefold() == reference.strip().casefold()


def brief(text: str, length: int = 60) -> str:
    """A text as quoted in a reason: its repr, shortened."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")


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
    emits = ScorerOutput()

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


MAX_CHARACTERS = 100_000
MAX_OPTION = 2_000
"""Characters of an option's text that are compared."""
_OPEN, _CLOSE = r"[(\[{*_`$\\\s\"']*", r"(?![\w+#]|[-'’]\w)"
_WHOLE = re.compile(rf"{_OPEN}(?P<letter>[A-Za-z])[)\]}}*_`$\\\"'.:\s]*$")
_WITH_TEXT = re.compile(rf"{_OPEN}(?P<letter>[A-Za-z])[)\]}}*_`]*[).:]?[*_`]*\s+(?P<text>\S.*)", re.DOTALL)
_ANSWER_IS = re.compile(rf"answer is:?{_OPEN}(?:(?:option|choice)\s{_OPEN})?(?P<letter>[A-Z]){_CLOSE}")
_ANSWER_COLON = re.compile(rf"answer\*{{0,2}}\s*:{_OPEN}(?P<letter>[A-Za-z]){_CLOSE}", re.IGNORECASE)
_ALONE = re.compile(rf"(?<![\w'’-])(?P<letter>[A-Z]){_CLOSE}")


@dataclass(frozen=True, slots=True)
class Choice:
    """The letter that was read, upper case; None if there is none among the options."""

    letter: str | None
    reason: str


def chosen_letter(text: str, options: Sequence[str]) -> Choice:
    """The choice of an answer.

    options: 1 to 26 texts; letters beyond are not options.
    Source: extraction of MMLU-Pro (Wang et al. 2024, arXiv:2406.01574); departures in the module's text.
    """
    letters = ascii_uppercase[: len(options)]
    text = text[-MAX_CHARACTERS:]
    whole = _WHOLE.match(text)
    if whole and whole["letter"].upper() in letters:
        return Choice(whole["letter"].upper(), "the answer is a letter")
    for pattern, told in ((_ANSWER_IS, "'answer is'"), (_ANSWER_COLON, "'Answer:'")):
        stated = pattern.search(text)
        if stated is not None:
            letter = stated["letter"].upper()
            if letter not in letters:
                return Choice(None, f"{letter}, read after {told}, is none of the options A to {letters[-1]}")
            return Choice(letter, f"read after {told}")
    begun = _WITH_TEXT.match(text)
    if begun and begun["letter"].upper() in letters:
        option = _plain(options[ascii_uppercase.index(begun["letter"].upper())])
        if option and re.match(rf"{re.escape(option)}(?!\w)", _plain(begun["text"])):
            return Choice(begun["letter"].upper(), "a letter and the text of its option")
    return Choice(None, f"no letter from A to {letters[-1]} in {brief(text, 40)}")


def _plain(text: str) -> str:
    return " ".join(text[:MAX_OPTION].casefold().split())


def last_letter(text: str, n_options: int) -> str | None:
    """The last isolated capital letter that names an option; None if there is none."""
    options = ascii_uppercase[:n_options]
    found = [match["letter"] for match in _ALONE.finditer(text[-MAX_CHARACTERS:]) if match["letter"] in options]
    return found[-1] if found else None


class ChoiceScorer:
    """1.0 if the chosen letter is the reference.

    The item's payload has the `options`. Views: `answer_parsed`, `flexible_match`, and `chose_a`,
    `chose_b` ... one of which is 1. Labels: `mmlu_answer_parse_fail` or `mmlu_wrong_choice`.
    """

    name = "choice"
    version = "1.1"
    emits = ScorerOutput(
        views=frozenset({"answer_parsed", "flexible_match", *(f"chose_{letter}" for letter in ascii_lowercase)}),
        labels=frozenset({"mmlu_answer_parse_fail", "mmlu_wrong_choice"}),
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's reference or options are unusable."""
        options = _options(item.payload)
        n_options = None if options is None else len(options)
        expected = (item.reference or "").strip().upper()
        if options is None or n_options is None or len(expected) != 1 or expected not in ascii_uppercase[:n_options]:
            return Score(
                None,
                f"item {item.id}: reference {item.reference!r} names none of {n_options} options; correct it",
                Fault.JUDGE,
            )
        text = rollout.answer or ""
        choice = chosen_letter(text, options)
        flexible = choice.letter or last_letter(text, n_options)
        views: dict[str, float | None] = {
            "answer_parsed": float(choice.letter is not None),
            "flexible_match": float(flexible == expected),
        }
        for letter in ascii_uppercase[:n_options]:
            views[f"chose_{letter.lower()}"] = float(choice.letter == letter)
        if choice.letter == expected:
            return Score(1.0, f"{expected} is the reference", views=views, extracted=expected)
        if choice.letter is None:
            return Score(0.0, choice.reason, views=views, labels=("mmlu_answer_parse_fail",))
        reason = f"{choice.letter} is not the reference {expected}"
        return Score(0.0, reason, views=views, labels=("mmlu_wrong_choice",), extracted=choice.letter)


def _options(payload: Mapping[str, object]) -> list[str] | None:
    options = payload.get("options")
    found = list(map(str, options)) if isinstance(options, list | tuple) else []
    return found if 1 <= len(found) <= len(ascii_uppercase) else None  # MMLU-Pro has five questions with one


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
    """The number behind the first marker, if it is one whole number.

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
    emits = ScorerOutput(
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


class LongerAnswerScorer:
    """Prefers the answer with more characters; answers whose lengths differ by at most `margin` are a tie."""

    name = "longer_answer"
    version = "1.0"
    emits = EMITS

    def __init__(self, margin: int = 0) -> None:
        """margin: in characters."""
        self._margin = margin

    def prefer(self, item: Item, first: Rollout, second: Rollout) -> Preference:
        """The verdict; there always is one."""
        n_first, n_second = len(_text(first)), len(_text(second))
        points = 0.5 if abs(n_first - n_second) <= self._margin else float(n_first > n_second)
        return Preference(points, f"{n_first} and {n_second} characters")


def _text(rollout: Rollout) -> str:
    return rollout.answer if rollout.answer is not None else "".join(turn.action for turn in rollout.turns)
