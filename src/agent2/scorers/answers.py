"""Scorers that judge a final answer by a rule, against the item's reference.

exact         the answer is the reference, except for white space at the ends, invisible characters and the normal
              form of Unicode; case and punctuation count, unless the setting `plain` says otherwise
rational      the whole answer is one number: an integer (`-12`), a fraction (`7/3`, spaces around the bar allowed) or a
              decimal (`2.5`), compared by value. Words, two numbers, exponents, thousands separators and `inf` are no
              number, and an answer without one is wrong. No partial credit, no search inside a sentence
final_answer  the number of a worked solution, in two readings. Strict, which decides the score, is the one that GSM8K
              publishes: the number behind the first `#### ` (one space), an optional minus sign, digits, commas and a
              point. Flexible is the last number of the text, with a currency sign, a typographic minus or other digits.
              Both compare by value (`18`, `18.0`, `1,800` and `1800.00`), where the published script compares strings,
              and reject what is only part of a number: `1,8`, `5/2`, `18-20`, `18k`, `1.2.3`
token_f1      words in common with the nearest accepted answer (SQuAD), `anls` letters in common (DocVQA: 0 if half of
              the letters or more differ), `relaxed_numeric` a number within 5% (ChartQA), otherwise the same text.
              Accepted are the reference and the texts in the item's payload `accepted`. The view `exact_match` says
              whether the answer is one of them, ignoring case (of numbers by value), `answer_parsed` whether a number
              was read. `relaxed_numeric` reads numbers in any notation: `1,234.50`, `1.234,5`, `1 234.5`, `$1,234.5`,
              `1234.5 dollars` and `(1,234.5)` for a negative one; arithmetic is exact (fractions, no float at the edge
              of the tolerance). A text is a number only if it contains exactly one, with words, marks or a known unit
              around it. Two known units that differ are never equal, and two years only if they are the same
longer_answer the smallest pairwise scorer, as an example and for tests

Promises: only an item that cannot be judged at all has a missing score. Does NOT check the working, evaluate
expressions or convert units. How this differs from other harnesses: docs/mini-benchmarks.md.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from rapidfuzz.distance import Levenshtein

from agent2.cards.judgement import EMITS
from agent2.errors import ConfigError, Fault
from agent2.records import Item, JsonValue, Preference, Rollout, Score, ScorerOutput, digest_of
from agent2.scorers.benchmark_labels import BenchmarkLabels
from agent2.scorers.markup import without_marks
from agent2.texts import canonical

ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = re.compile(
    r"(?P<kept>(?<=\d)[./:,-](?=\d)|(?<!\w)-(?=[$€£]?\.?\d)|(?<!\w)\.(?=\d)|(?<=[^\W\d_])[+#]{1,2}(?!\w))"
    rf"|[{re.escape(string.punctuation)}]"
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

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
_FRACTION = re.compile(
    r"(?<![\d./⁄-])(?P<sign>-?)(?:(?P<whole>\d{1,9})\s)?(?P<top>\d{1,9})\s?[/⁄]\s?(?P<bottom>[1-9]\d{0,8})(?![\d/⁄]|\.\d)"
)
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s?\{?(\d{1,9})\}?\s?\{?(\d{1,9})\}?")
_ESCAPED = re.compile(r"\\([$%&#_])")
_EMPHASIS = re.compile(r"(?<![\w*_`])([*_`]{1,3})(?=\S)([^*_`\n]{1,200}?)(?<=\S)\1(?![\w*_`])")
_YEAR = re.compile(r"(?:1[6-9]|20)\d\d|2100")
_AFTER = re.compile(r"\s?(?P<word>%|°?[^\W\d_]+[²³]?(?:/[^\W\d_]+)?|[$€£¥])?")
_SCALES = {
    "k": 10**3, "thousand": 10**3, "mn": 10**6, "mio": 10**6, "million": 10**6, "millions": 10**6,
    "bn": 10**9, "billion": 10**9, "billions": 10**9, "tn": 10**12, "trillion": 10**12, "trillions": 10**12,
}  # fmt: skip
_CAPITAL_SCALES = {"M": 10**6, "B": 10**9, "T": 10**12}
"""Scales only as capitals, or behind a currency sign: `5m` is metres."""
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
_MARKS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {  # full width to ASCII
    0x2212: "-", 0x2013: "-", 0x2012: "-", 0x2019: "'", 0xA0: " ", 0x202F: " ", 0x2009: " ",
}  # fmt: skip

MAX_ANSWER_CHARACTERS = 400
"""Longer answers are rejected before they are read as a rational number."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:[ ]*/[ ]*[0-9]+)?|[0-9]+\.[0-9]+|\.[0-9]+)")

MAX_CHARACTERS = 100_000

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


def plain_words(text: str) -> str:
    """Lower case, without punctuation, English articles and repeated white space.

    Source: SQuAD 1.1 evaluation (Rajpurkar et al. 2016), as generally known; not checked against the script. Departure:
    what makes a number or a name another one stays: signs, points and bars of numbers (`-5`, `3.14`, `1/2`), and `C++`.
    """
    plain = _THOUSANDS.sub("", canonical(text).lower().replace("\u2212", "-"))
    words = _PUNCTUATION.sub(lambda mark: mark["kept"] or "", plain).split()
    return " ".join(word for word in words if word not in ARTICLES)


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words, counted with repeats, after `plain_words`.

    Range 0-1, symmetric in its arguments; 1 when both are without words, 0 when one is.
    Source: SQuAD 1.1 (Rajpurkar et al. 2016), as generally known; not checked against the script.
    """
    answer_words, reference_words = Counter(plain_words(answer).split()), Counter(plain_words(reference).split())
    if not answer_words or not reference_words:
        return float(answer_words == reference_words)
    n_common = (answer_words & reference_words).total()
    return 2.0 * n_common / (answer_words.total() + reference_words.total())


def answer_similarity(answer: str, reference: str, threshold: float = 0.5) -> float:
    """1 - edit distance / length of the longer, or 0 where that distance is `threshold` or more.

    Case and white space at the ends and between words do not count. Range 0-1, symmetric; 1 when both are
    empty. An answer too long to be similar is rejected by its length, so a hostile one costs nothing.
    """
    first, second = (" ".join(canonical(text).lower().split()) for text in (answer, reference))
    longest = max(len(first), len(second))
    if longest == 0:
        return 1.0
    if abs(len(first) - len(second)) >= threshold * longest:
        return 0.0
    distance = Levenshtein.distance(first, second) / longest
    return 1.0 - distance if distance < threshold else 0.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that was read from a text, with its unit where that is a known one."""

    value: Fraction
    unit: str | None


def parse_quantity(text: str) -> Quantity | None:
    """The one number in a text, or None if there is none, more than one, or one joined to letters.

    `1,234` is grouped by thousands and `1,5` has a decimal comma; one point is always a decimal point;
    `1.234,5` is read as 1234.5. Scale words count (`3.5 million`, `2k`, `$5m`, `5M`; a bare `5m` is metres), and
    fractions (`1/2`, `2 1/2`, `½`). Markdown, LaTeX and a box around the number do not count.
    """
    if len(text) > MAX_QUANTITY_CHARACTERS:
        return None
    plain = _without_marks(text).translate(_MARKS).strip()
    fractions = list(_FRACTION.finditer(plain))
    if len(fractions) == 1 and _n_digits(plain) == _n_digits(fractions[0].group()):
        return Quantity(_fraction(fractions[0]), None)
    matches = list(_QUANTITY.finditer(plain))
    if len(matches) != 1 or _n_digits(plain) != _n_digits(matches[0].group()):
        return None
    match = matches[0]
    after = _AFTER.match(plain, match.end())
    following = plain[match.end() :].split()
    unit = after.group("word") if after else None
    scale, is_scale = _scale(unit, money=bool(match["money"]))
    if is_scale:
        unit = following[1] if len(following) > 1 else None
    elif unit and match.end() < len(plain) and plain[match.end()].isalpha() and not _unit(unit):
        return None  # joined to letters that are no unit: a name (4th, 3D), not a quantity
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > MAX_EXPONENT:
        return None
    value = _digits(match["digits"]) * Fraction(10) ** exponent * scale
    in_brackets = plain[: match.start()] == "(" and plain.endswith(")")  # how accountants write a negative number
    is_negative = "-" in match["sign"] + match["sign2"] or in_brackets
    return Quantity(-value if is_negative else value, _unit(match["money"]) or _unit(unit))


def same_number(answer: Quantity, reference: Quantity, tolerance: float = 0.0) -> bool:
    """Whether the answer differs from the reference by at most `tolerance`, a share of the reference (0: equal).

    A unit that one side omits is forgiven. A percentage against a bare number is equal if either reading is:
    `45%` equals both `45` and `0.45`. A reference of 0 allows only 0.
    """
    # Through str: Fraction(0.05) is the nearest binary fraction, a little more than a twentieth.
    largest_error = Fraction(str(tolerance)) * abs(reference.value)
    if answer.unit is not None and reference.unit is not None and answer.unit != reference.unit:
        return False
    if abs(answer.value - reference.value) <= largest_error:
        return True
    if answer.unit == "%" and reference.unit is None:
        return abs(answer.value / 100 - reference.value) <= largest_error
    if reference.unit == "%" and answer.unit is None:
        return abs(answer.value * 100 - reference.value) <= largest_error
    return False


def _without_marks(text: str) -> str:
    if not any(mark in text for mark in "\\*_`$<½¼¾⅓⅔⅛"):
        return text
    for fraction in "½¼¾⅓⅔⅛":
        text = text.replace(fraction, " " + unicodedata.normalize("NFKC", fraction))
    text = _LATEX_FRACTION.sub(r" \1/\2", _ESCAPED.sub(r"\1", text))
    return _EMPHASIS.sub(r"\2", without_marks(text, "NFC")).translate({ord("⟦"): " ", ord("⟧"): " "})


def _fraction(match: re.Match[str]) -> Fraction:
    value = int(match["whole"] or 0) + Fraction(int(match["top"]), int(match["bottom"]))
    return -value if match["sign"] else value


def _n_digits(text: str) -> int:
    return sum(map(str.isdecimal, text))


def _digits(text: str) -> Fraction:
    """The value of digits with group marks and a decimal mark; see `parse_quantity` for the rule."""
    text = re.sub(r"[ _']", "", text)
    last = max(text.rfind("."), text.rfind(","))
    if last < 0:
        return Fraction(int(text))
    mark = text[last]
    is_thousands = mark == "," and "." not in text and re.fullmatch(r"[1-9]\d{0,2},\d{3}", text)
    is_grouped = text.count(mark) > 1 or is_thousands
    whole, decimals = (text, "") if is_grouped else (text[:last], text[last + 1 :])
    whole = whole.replace(",", "").replace(".", "")
    return Fraction(int(whole or 0)) + (Fraction(int(decimals), 10 ** len(decimals)) if decimals else 0)


def _scale(word: str | None, *, money: bool) -> tuple[int, bool]:
    """The factor of a scale word, and whether it is one."""
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


WRONG_OR_NONE = frozenset({"no_answer", "wrong_answer"})
"""Badcase classes of answers that are right or wrong as a whole."""
MOSTLY_RIGHT = 0.5
"""Least similarity to an accepted answer at which an answer is not labelled as wrong."""


def wrong_or_none(answer: str) -> str:
    """The badcase class of an answer that is not the reference."""
    return "wrong_answer" if answer.strip() else "no_answer"


class ExactScorer:
    """1.0 if the stripped answer equals the stripped reference in one normal form (`texts.canonical`), else 0.0.

    Further right answers may be in the item's payload `accepted`. With `plain`, case, punctuation and articles do not
    count (`plain_words`); an answer of nothing else is compared as it is. With `after`, the answer is what follows the
    last such text, whatever its case, up to the end of the paragraph and without a full stop; without it, all. With
    `first_line`, it is the first line that is not empty: base models go on writing.
    """

    name = "exact"
    version = "1.1"
    emits = ScorerOutput(labels=WRONG_OR_NONE)

    def __init__(self, *, plain: bool = False, after: str | None = None, first_line: bool = False) -> None:
        """plain: compare words only. after: what precedes the answer, such as "the answer is".

        first_line: read no more than that. Raises ConfigError together with `after`.
        """
        if first_line and after is not None:
            raise ConfigError(f"scorer exact: first_line and after {after!r} say two things; keep one of them")
        self._is_plain = plain
        self._reads_line = first_line
        self._after = None if after is None else re.compile(re.escape(after), re.IGNORECASE)
        self.version += "+plain" if plain else ""  # another measure: cards of the two are not comparable
        self.version += "" if after is None else f"+after-{digest_of(after)[:8]}"
        self.version += "+first-line" if first_line else ""

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item has no reference."""
        if item.reference is None:
            return Score(None, f"item {item.id} has no reference to compare with; correct the benchmark", Fault.JUDGE)
        if rollout.answer is None:
            return Score(0.0, "there is no answer", labels=("no_answer",))
        stated = self._stated(rollout.answer)
        extracted, answer = stated.strip(), self._compared(stated)
        if answer == self._compared(item.reference):
            return Score(1.0, "the answer is the reference", extracted=extracted)
        if answer in (self._compared(str(text)) for text in item.payload.get("accepted") or ()):
            return Score(1.0, "the answer is one of those that are accepted", extracted=extracted)
        reason = f"the answer {brief(stated)} is not the reference {brief(item.reference)}"
        return Score(0.0, reason, labels=(wrong_or_none(extracted),), extracted=extracted)

    def _stated(self, text: str) -> str:
        """The part of a text that is its answer."""
        if self._reads_line:
            return next((line for line in text.splitlines() if line.strip()), "")
        matches = [] if self._after is None else list(self._after.finditer(text))
        return text[matches[-1].end() :].strip().split("\n\n")[0].strip().removesuffix(".") if matches else text

    def _compared(self, text: str) -> str:
        return (plain_words(text) if self._is_plain else "") or canonical(text).strip()


class TokenF1Scorer:
    """Token F1 with the nearest accepted answer (`token_f1`); base class of the two scorers below."""

    name = "token_f1"
    version = "1.1"
    emits = ScorerOutput(views=frozenset({"exact_match", "answer_parsed"}), labels=WRONG_OR_NONE)
    expects = "an answer that is not empty"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item has no reference, or `accepted` is not a list of texts."""
        further = item.payload.get("accepted") or []
        if (
            item.reference is None
            or not isinstance(further, list)
            or not all(isinstance(text, str) for text in further)
        ):
            return Score(
                None,
                f"item {item.id} needs a reference, and `accepted` as a list of texts if any; correct the benchmark",
                Fault.JUDGE,
            )
        answer, accepted = rollout.answer, [item.reference, *map(str, further)]
        if answer is None:
            no_views = {"exact_match": 0.0, "answer_parsed": 0.0}
            return Score(0.0, "there is no answer", views=no_views, labels=("no_answer",))
        # -index: of several that score the same, the first.
        value, negative_index = max((self.similarity(answer, text), -index) for index, text in enumerate(accepted))
        views = {
            "exact_match": float(any(self.is_same(answer, text) for text in accepted)),
            "answer_parsed": float(self.is_parsed(answer, accepted)),
        }
        reason = f"the answer {brief(answer)} scores {value:.2f} against {brief(accepted[-negative_index])}"
        labels = () if value >= MOSTLY_RIGHT else (wrong_or_none(answer),)
        return Score(value, reason, extracted=answer.strip(), views=views, labels=labels)

    def similarity(self, answer: str, reference: str) -> float:
        """From 0 to 1."""
        return token_f1(answer, reference)

    def is_same(self, answer: str, reference: str) -> bool:
        """Whether the two count as equal."""
        return plain_words(answer) == plain_words(reference)

    def is_parsed(self, answer: str, accepted: Sequence[str]) -> bool:
        """Whether the answer has the form of the accepted ones; any text has."""
        return True


def published_similarity(answer: str, reference: str) -> float:
    """The similarity as the published evaluations of DocVQA compute it.

    They differ from `answer_similarity` in three ways: exactly one half counts, the length is that of the texts before
    white space is joined, and the Unicode form of characters counts.
    Source: the evaluations of Qwen-VL and VLMEvalKit.
    """
    longest = max(len(answer.upper()), len(reference.upper()))
    if longest == 0:
        return 1.0
    first, second = (" ".join(text.lower().split()) for text in (answer, reference))
    if abs(len(first) - len(second)) > longest:  # a hostile length costs nothing
        return 0.0
    similarity = 1.0 - Levenshtein.distance(first, second, score_cutoff=longest) / longest
    return similarity if similarity >= 0.5 else 0.0


class AnlsScorer(TokenF1Scorer):
    """Normalised Levenshtein similarity; its mean is ANLS.

    Source: Biten et al. 2019 (arXiv:1905.13648, equation 1): 1 - distance where that is below a threshold of 0.5, else
    0; the metric of DocVQA. With rule "published" as its public evaluations compute it (`published_similarity`).
    """

    name = "anls"
    version = "1.0"

    def __init__(self, rule: str = "paper") -> None:
        """rule: paper, or published."""
        if rule not in ("paper", "published"):
            raise ConfigError(f"scorer anls: rule {rule!r} is unknown; it is paper or published")
        self._similarity = answer_similarity if rule == "paper" else published_similarity
        self.version = "1.0" if rule == "paper" else f"1.0-{rule}"

    def similarity(self, answer: str, reference: str) -> float:
        """From 0 to 1; 0 where more than half of the letters differ."""
        return self._similarity(answer, reference)

    def is_same(self, answer: str, reference: str) -> bool:
        """Whether no letter differs."""
        return answer_similarity(answer, reference) == 1.0


class RelaxedNumericScorer(TokenF1Scorer):
    """1 if a number is within `tolerance` of the reference's, or the texts are the same; the exact layer is a view.

    years: "exact": where both are years (1600 to 2100, four digits and nothing else), they must be the same, as 5% of a
    year is a century; "relaxed": they are numbers like others, as in ChartQA.
    Source: ChartQA's relaxed accuracy, 5% (Masry et al. 2022, section 5.1), in any notation; verdicts of the published
    evaluation are those of the scorer `relaxed_accuracy`.
    Does NOT protect from what else a 5% tolerance accepts: wrong counts, identifiers.
    """

    name = "relaxed_numeric"
    version = "1.1"
    expects = "one number and nothing else, with its unit if it has one"

    def __init__(self, tolerance: float = 0.05, years: str = "exact") -> None:
        """tolerance: share of the reference, from 0 to below 1."""
        if years not in ("exact", "relaxed"):
            raise ConfigError(f"scorer relaxed_numeric: years={years!r} is unknown; it is exact or relaxed")
        if not 0.0 <= tolerance < 1.0:
            raise ConfigError(f"tolerance={tolerance} must be a share of the reference from 0 to below 1, such as 0.05")
        self._tolerance, self._years = tolerance, years
        settings = [f"-{tolerance:g}"] if tolerance != 0.05 else []
        self.version = "".join(["1.1", *settings, *(["-years"] if years == "relaxed" else [])])

    def similarity(self, answer: str, reference: str) -> float:
        """0 or 1."""
        return float(self._within(answer, reference, self._tolerance))

    def is_same(self, answer: str, reference: str) -> bool:
        """By value, or as text without case and outer white space."""
        return self._within(answer, reference, 0.0)

    def is_parsed(self, answer: str, accepted: Sequence[str]) -> bool:
        """Whether the answer has one number, where an accepted answer has."""
        return parse_quantity(answer) is not None or all(parse_quantity(text) is None for text in accepted)

    def _within(self, answer: str, reference: str, tolerance: float) -> bool:
        value, expected = parse_quantity(answer), parse_quantity(reference)
        if (
            self._years == "exact"
            and _YEAR.fullmatch(reference.strip())
            and value
            and _YEAR.fullmatch(str(value.value))
        ):
            tolerance = 0.0
        is_near = value is not None and expected is not None and same_number(value, expected, tolerance)
        return is_near or answer.strip().casefold() == reference.strip().casefold()


def brief(text: str, length: int = 60) -> str:
    """A text as quoted in a reason: its repr, shortened."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")


def parse_rational(text: str) -> Fraction | None:
    """The number that the whole answer is, exactly; None if it is not a number or divides by zero."""
    stripped = text.strip()
    if len(stripped) > MAX_ANSWER_CHARACTERS or _NUMBER.fullmatch(stripped) is None:
        return None
    numerator, _, denominator = stripped.partition("/")
    if not denominator:  # `Fraction` of a text is four times as slow as of a number
        return Fraction(numerator if "." in numerator else int(numerator))
    divisor = int(denominator)
    return Fraction(int(numerator), divisor) if divisor else None


def format_rational(value: Fraction) -> str:
    """The lowest-terms text of a number: `7/3`, `-12`."""
    return str(value)


class RationalScorer:
    """1.0 if the answer equals the item's reference as a rational number, else 0.0."""

    name = "rational"
    version = "1.0"
    emits = ScorerOutput(labels=WRONG_OR_NONE | {"answer_parse_fail"})

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
            return Score(0.0, "there is no answer", labels=("no_answer",))
        value = parse_rational(rollout.answer)
        if value is None:
            reason = f"the answer {brief(rollout.answer)} is not one integer, fraction or decimal"
            return Score(0.0, reason, labels=("answer_parse_fail" if rollout.answer.strip() else "no_answer",))
        extracted = format_rational(value)
        if value == expected:
            return Score(1.0, f"{extracted} is the reference", extracted=extracted)
        reason = f"{extracted} is not the reference {format_rational(expected)}"
        return Score(0.0, reason, labels=("wrong_answer",), extracted=extracted)


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """What was read from a text."""

    value: Fraction | None
    """None: no final answer could be read."""
    reason: str


def strict_answer(text: str, marker: str = MARKER) -> FinalAnswer:
    """The number behind the first marker, if it is a complete one.

    Source: `ANS_RE` of the GSM8K release (Cobbe et al. 2021, arXiv:2110.14168); departures in the module's docstring.
    """
    marked = _marker_pattern(marker).search(text)
    if marked is None:
        return FinalAnswer(None, f"no line '{marker}N'")
    match = _AFTER_MARKER.match(text, marked.end())
    if match is None or len(match["digits"]) > MAX_DIGITS:
        return FinalAnswer(None, f"what follows '{marker}' is not one whole number: {brief(text[marked.end() :], 30)}")
    return FinalAnswer(_value(match["sign"], match["digits"]), f"read after '{marker}'")


@cache
def _marker_pattern(marker: str) -> re.Pattern[str]:
    # The digit ahead: a marker that no number follows is skipped.
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


class FinalAnswerScorer(BenchmarkLabels):
    """1.0 if the strictly read final answer equals the reference.

    marker: what a final answer follows. Views: `answer_parsed` (a final answer could be read strictly),
    `flexible_match` (the last number is right).
    Labels: `gsm8k_final_answer_format_error` where nothing could be read, `gsm8k_wrong_final_answer` otherwise; on own
    data with their name instead of `gsm8k`.
    """

    name = "final_answer"
    label_prefix = "gsm8k_"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"answer_parsed", "flexible_match"}),
        labels=frozenset({"gsm8k_final_answer_format_error", "gsm8k_wrong_final_answer"}),
    )
    expects = "a line with the marker (#### unless another is set) and a number"

    def __init__(self, marker: str = MARKER) -> None:
        """Raises ConfigError for a marker without a letter or sign, which would be found everywhere."""
        if not isinstance(marker, str) or not marker.strip():
            raise ConfigError(f"scorer final_answer: marker is {marker!r}; give the text that a final answer follows")
        self._marker = marker
        self.answer_form = f"{marker}{{answer}}"
        """How an answer is written that this scorer reads."""

    def read_item(self, reference: str | None, payload: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue]:
        """The payload unchanged. Raises ConfigError for a reference that is no number and has no line with one."""
        if reference is None or reference_value(reference, self._marker) is None:
            raise ConfigError(f"{where}: the answer has no line '{self._marker}NUMBER'; correct the row")
        return payload

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
            labels = (self.label("gsm8k_final_answer_format_error"),)
            return Score(0.0, strict.reason + hint, views=views, labels=labels)
        reason = f"{strict.value} is not the reference {expected}"
        labels = (self.label("gsm8k_wrong_final_answer"),)
        return Score(0.0, reason, views=views, labels=labels, extracted=str(strict.value))


def reference_value(reference: str, marker: str = MARKER) -> Fraction | None:
    """The number of a reference: after the last marker or `####` of a worked solution, or the text itself; or None."""
    # a marker such as "A:" may also be a part of the solution, so one without a number behind it does not decide
    for sign in (marker.strip(), MARKER.strip()):
        text = reference.rsplit(sign, 1)[-1].strip().removeprefix("$")
        if (match := _AFTER_MARKER.fullmatch(text)) is not None:
            return _value(match["sign"], match["digits"])
    return None


def _plain_text(text: str) -> str:
    """The text with ASCII digits, minus signs and group marks."""
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
