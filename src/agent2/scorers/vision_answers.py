"""Scorers of questions about pictures, as the benchmarks publish them, with classes for what was misread.

relaxed_accuracy  ChartQA: a number within 5% of the reference, else the same text. The exact layer is a view beside it
mmmu              MMMU: an option's letter or text, or an open answer that holds the reference
mathvista         MathVista: an answer in the form that the question asks for (option, integer, decimal, list)

An item may say which answers a mistake leads to, in its payload `mistakes`: class -> answers. A wrong answer that is
one of them gets that class (`chart_axis_value_misread`), and the views `ocr_error`, `grounding_error` and
`reasoning_error` say of every rollout of such an item whether it has one of their classes. Items without `mistakes`
have no such views: a misreading that nobody looked for is not counted as absent. An answer that two classes lead to
gets neither.

Promises: a verdict depends on the answer's text alone; an answer that cannot be read is wrong, never drawn at random.
Does NOT look at pictures and asks no model. How verdicts agree with other harnesses: docs/vision.md.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from rapidfuzz.distance import Levenshtein

from agent2.errors import ConfigError, Fault
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput
from agent2.scorers.answers import WRONG_OR_NONE, RelaxedNumericScorer, brief, wrong_or_none
from agent2.scorers.choice import chosen_letter

MISTAKES = "mistakes"
"""Payload key: class -> the answers that it leads to."""
KIND_OF_MISTAKE: Mapping[str, str] = {
    "ocr_error": "ocr_error",
    "chart_axis_value_misread": "grounding_error",
    "table_header_binding_error": "grounding_error",
    "geometry_diagram_spatial_relation_error": "grounding_error",
    "visual_grounding_error": "grounding_error",
    "reasoning_error": "reasoning_error",
}
"""Class of a mistake -> the view that counts it."""
MISTAKE_VIEWS = frozenset(KIND_OF_MISTAKE.values())
MAX_CHARACTERS = 20_000
"""Of an answer, from its end."""
MAX_NUMBER_CHARACTERS = 400
"""Longer texts are not read as a number."""

_NUMBER_FORMS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"-?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)
"""Numbers with commas, with exponents, and others: the three forms that MMMU's evaluation looks for."""
_LEADS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
_TRIVIAL = frozenset(":,.!?;'")
_EDGES = ",.!?;:'"
_IN_BRACKETS = re.compile(r"\(([a-zA-Z])\)")
_LAST_NUMBER = re.compile(r"(?<![\w.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w]|[.,]\d)")
_LAST_LIST = re.compile(r"\[[^\[\]]{0,400}\]")
_QUOTED_ANSWER = re.compile(r'The answer is "(.*)"\.')


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What was read from an answer."""

    text: str | None
    """In the form that is compared; None: nothing could be read."""
    is_right: bool
    reason: str
    is_choice: bool = False


class VisionAnswerScorer(ABC):
    """Base of the scorers here: `read` says what an answer is and whether it is right."""

    name: str
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"answer_parsed", *MISTAKE_VIEWS}),
        labels=WRONG_OR_NONE | {"answer_parse_fail", "wrong_choice", *KIND_OF_MISTAKE},
    )

    def read_item(self, reference: str | None, payload: Mapping[str, JsonValue], where: str) -> Mapping[str, JsonValue]:
        """The payload, with `mistakes` left out where it is empty.

        Raises ConfigError for `mistakes` that are no lists of answers of known classes, or that hold a right answer.
        """
        if MISTAKES not in payload:
            return payload
        if not payload[MISTAKES]:
            return {key: value for key, value in payload.items() if key != MISTAKES}
        try:
            classes = _mistakes_in(payload)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}; correct the row") from error
        accepted = [text for text in (reference, *_further(payload)) if text is not None]
        for label, answers in classes.items():
            right = [answer for answer in answers if any(self.is_same(answer, text) for text in accepted)]
            if right:
                raise ConfigError(f"{where}: mistakes: {label} leads to {right[0]!r}, a right answer; correct it")
        return payload

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's reference, options or mistakes are unusable."""
        answer = (rollout.answer or "").strip()
        try:
            mistakes = _mistakes_in(item.payload)
            accepted = _accepted(item)
            reading = ReadAnswer(None, False, "there is no answer")
            if answer:
                reading = self.read(answer[-MAX_CHARACTERS:], accepted, item)
        except ValueError as error:
            return Score(None, f"item {item.id}: {error}; correct the benchmark", Fault.JUDGE)
        views: dict[str, float | None] = {"answer_parsed": float(reading.text is not None)}
        views |= self.further_views(answer[-MAX_CHARACTERS:], accepted)
        label = None if reading.is_right else self._mistake(reading, mistakes)
        if mistakes:
            views |= {view: float(KIND_OF_MISTAKE.get(label or "") == view) for view in sorted(MISTAKE_VIEWS)}
        if reading.is_right:
            return Score(1.0, reading.reason, views=views, extracted=reading.text)
        if label is None:
            label = wrong_or_none(answer)
            if answer and reading.text is None:
                label = "answer_parse_fail"
            elif answer and reading.is_choice:
                label = "wrong_choice"
        return Score(0.0, reading.reason, views=views, labels=(label,), extracted=reading.text)

    def _mistake(self, reading: ReadAnswer, mistakes: Mapping[str, Sequence[str]]) -> str | None:
        text = reading.text
        if text is None:
            return None
        labels = [label for label, answers in mistakes.items() if any(self.is_same(text, wrong) for wrong in answers)]
        return labels[0] if len(labels) == 1 else None

    @abstractmethod
    def read(self, answer: str, accepted: Sequence[str], item: Item) -> ReadAnswer:
        """What a stripped answer that is not empty says. Raises ValueError for an item that cannot be judged."""

    def further_views(self, answer: str, accepted: Sequence[str]) -> dict[str, float | None]:
        """Views beside those of all scorers here."""
        return {}

    def is_same(self, answer: str, text: str) -> bool:
        """Whether an answer as it was read is the one that a text names."""
        return answer.strip().casefold() == text.strip().casefold()


def _mistakes_in(payload: Mapping[str, JsonValue]) -> dict[str, list[str]]:
    """Class -> answers. Raises ValueError."""
    mistakes = payload.get(MISTAKES) or {}
    if not isinstance(mistakes, Mapping):
        raise ValueError(f"'{MISTAKES}' has to be a record of class -> list of answers")
    # Where rows of a table have different classes, the others come as null.
    mistakes = {label: answers for label, answers in mistakes.items() if answers is not None}
    unknown = sorted(map(str, mistakes.keys() - KIND_OF_MISTAKE.keys()))
    if unknown:
        raise ValueError(f"'{MISTAKES}' names the class {unknown[0]!r}; the classes are {', '.join(KIND_OF_MISTAKE)}")
    for label, answers in mistakes.items():
        if not isinstance(answers, list | tuple) or not all(isinstance(text, str | int | float) for text in answers):
            raise ValueError(f"'{MISTAKES}': {label} is not a list of answers")
    return {label: [str(answer) for answer in answers] for label, answers in mistakes.items()}


def _further(payload: Mapping[str, JsonValue]) -> list[str]:
    accepted = payload.get("accepted") or []
    return [str(text) for text in accepted] if isinstance(accepted, list | tuple) else []


def _accepted(item: Item) -> list[str]:
    if item.reference is None:
        raise ValueError("there is no reference to compare with")
    return [item.reference, *_further(item.payload)]


def _options(item: Item) -> list[str]:
    options = item.payload.get("options") or item.payload.get("choices") or []
    return [str(option) for option in options] if isinstance(options, list | tuple) else []


# ChartQA


def as_published_number(text: str) -> float | None:
    """A text as ChartQA's evaluation reads it: what `float` takes, and of what ends with % a hundredth."""
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    try:
        return float(text.rstrip("%")) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        return None


def is_relaxed_match(answer: str, reference: str, tolerance: float = 0.05) -> bool:
    """Whether two numbers differ by at most `tolerance` of the reference; other texts (and 0) are equal, case aside.

    Source: Methani et al. 2020 (PlotQA), adopted by ChartQA (Masry et al. 2022, section 5.1), as the published
    evaluations of Pix2Struct and Qwen-VL compute it.
    """
    value, expected = as_published_number(answer), as_published_number(reference)
    if value is not None and expected:
        return abs(value - expected) / abs(expected) <= tolerance
    return answer.lower() == reference.lower()


class RelaxedAccuracyScorer(VisionAnswerScorer):
    """1 if the answer is a relaxed match of an accepted one (`is_relaxed_match`).

    Views: `exact_match` (equal by value, in any notation, or the same text), `relaxed_numeric` (within the tolerance in
    any notation: units, commas, currencies, as the scorer of that name; two years only if they are the same).
    """

    name = "relaxed_accuracy"
    emits = VisionAnswerScorer.emits | ScorerOutput(views=frozenset({"exact_match", "relaxed_numeric"}))
    expects = "a number as digits, or one word, and nothing else"

    def __init__(self, tolerance: float = 0.05, after: str | None = None) -> None:
        """tolerance: share of the reference, from 0 to below 1. after: what precedes the answer."""
        if not 0.0 <= tolerance < 1.0:
            raise ConfigError(f"scorer relaxed_accuracy: tolerance is {tolerance}; it is a share from 0 to below 1")
        if after is not None and not after.strip():
            raise ConfigError("scorer relaxed_accuracy: 'after' is empty; give the text that precedes an answer")
        self._tolerance, self._after = tolerance, after
        self._any_notation = RelaxedNumericScorer(tolerance)
        self.version = "1.0" + (f"-{tolerance:g}" if tolerance != 0.05 else "") + (f"+after-{after}" if after else "")

    def read(self, answer: str, accepted: Sequence[str], item: Item) -> ReadAnswer:
        """The stated answer, compared with each accepted one."""
        stated = self._stated(answer)
        for text in accepted:
            if is_relaxed_match(stated, text.strip(), self._tolerance):
                return ReadAnswer(stated, True, f"{brief(stated)} is within the tolerance of {brief(text)}")
        if not stated:
            return ReadAnswer(None, False, "there is no answer behind the marker")
        return ReadAnswer(stated, False, f"{brief(stated)} is no relaxed match of {brief(accepted[0])}")

    def further_views(self, answer: str, accepted: Sequence[str]) -> dict[str, float | None]:
        """The exact layer, and the relaxed one in any notation."""
        stated = self._stated(answer)
        return {
            "exact_match": float(bool(stated) and any(self.is_same(stated, text) for text in accepted)),
            "relaxed_numeric": max(self._any_notation.similarity(stated, text) for text in accepted) if stated else 0.0,
        }

    def is_same(self, answer: str, text: str) -> bool:
        """By value in any notation, or as text."""
        return self._any_notation.is_same(answer, text)

    def _stated(self, answer: str) -> str:
        if self._after is None:
            return answer
        place = answer.casefold().rfind(self._after.casefold())
        return answer if place < 0 else answer[place + len(self._after) :].strip()


# MMMU


def mmmu_letter(answer: str, options: Sequence[str]) -> str | None:
    """The letter that MMMU's evaluation reads; None where it would draw one at random.

    In order: letters in brackets; letters before a blank; letters before a full stop; in answers of more than five
    words, texts of options. Of several, the one that comes last. As published, a letter may be the end of a word
    ("DNA " is an A); of several letters before a full stop, which the published search for the last one does not find,
    the first option counts.
    Source: Yue et al. 2023 (arXiv:2311.16502), evaluation of the release.
    """
    text = answer
    for edge in _EDGES:
        text = text.strip(edge)
    text = f" {text} "
    letters = ascii_uppercase[: len(options)]
    for form in ("({})", "{} ", "{}."):
        candidates = [letter for letter in letters if form.format(letter) in text]
        if candidates:
            sought = "({})" if form == "({})" else " {} "
            return max(candidates, key=lambda letter: (text.rfind(sought.format(letter)), -letters.index(letter)))
    if len(text.split()) > 5:
        lower = text.lower()
        named = [letter for letter, option in zip(letters, options, strict=True) if option.lower() in lower]
        if named:
            by_letter = dict(zip(letters, options, strict=True))
            return max(named, key=lambda letter: (lower.rfind(by_letter[letter].lower()), -letters.index(letter)))
    return None


def mmmu_forms(text: str) -> list[str | float]:
    """The forms in which MMMU compares a text: a number rounded to two decimals, else lower case.

    A single letter has a blank before or behind it, so that it isn't found within words.
    """
    plain = text.strip()
    if len(plain) <= MAX_NUMBER_CHARACTERS:
        try:
            return [round(float(plain.replace(",", "")), 2)]
        except ValueError:
            pass
    plain = plain.lower()
    return [f" {plain}", f"{plain} "] if len(plain) == 1 else [plain]


def mmmu_open_answers(answer: str) -> list[str | float]:
    """What MMMU's evaluation takes for the answers of an open response, in its forms.

    Of each line the shortest text behind a word that leads to an answer ("is", "so", "therefore"; in the last line "="
    as well), or all of the response where no line has one; and every number in these.
    Source: Yue et al. 2023, evaluation of the release; it means to cut at sentences as well, and cuts at lines only,
    because the text is in lower case by then.
    """
    response = answer.strip().strip(".").lower()
    lines = response.split("\n")
    keys = []
    for number, line in enumerate(lines):
        leads = (*_LEADS, "=") if number == len(lines) - 1 else _LEADS
        tails = [line.rpartition(lead)[2].strip() for lead in leads if lead in line]
        shortest = ""
        for tail in tails:  # an empty tail counts as the shortest until another follows, as published
            if not shortest or len(tail) < len(shortest):
                shortest = tail
        if shortest and shortest not in _TRIVIAL:
            keys.append(shortest)
    keys = keys or [response]
    numbers = [number for key in keys for form in _NUMBER_FORMS for number in form.findall(key)]
    return [form for text in (*keys, *numbers) for form in mmmu_forms(text)]


def is_open_match(answer: str, accepted: Sequence[str]) -> bool:
    """Whether an open response has an accepted answer: a text within one of its texts, or an equal number."""
    expected = [form for text in accepted for form in mmmu_forms(text)]
    for form in mmmu_open_answers(answer):
        if isinstance(form, str):
            if any(isinstance(text, str) and text in form for text in expected):
                return True
        elif form in expected:
            return True
    return False


class MmmuScorer(VisionAnswerScorer):
    """1 if the letter that was read is the reference, or the open answer has an accepted one (MMMU).

    An item with `options` in its payload is multiple choice, unless its `question_type` is `open`. Departure: an answer
    in which no option can be read is wrong, where the published evaluation draws an option at random.
    """

    name = "mmmu"
    expects = "the letter of an option, or an answer in a few words"

    def read(self, answer: str, accepted: Sequence[str], item: Item) -> ReadAnswer:
        """A letter, or what an open answer says."""
        options = _options(item)
        if not options or item.payload.get("question_type") == "open":
            is_right = is_open_match(answer, accepted)
            verb = "has" if is_right else "does not have"
            return ReadAnswer(answer, is_right, f"{brief(answer)} {verb} the reference {brief(accepted[0])}")
        letters = ascii_uppercase[: len(options)]
        if len(options) > len(ascii_uppercase) or len(accepted[0]) != 1 or accepted[0] not in letters:
            raise ValueError(f"reference {accepted[0]!r} names none of {len(options)} options")
        letter = mmmu_letter(answer, options)
        if letter is None:
            return ReadAnswer(None, False, f"no option can be read in {brief(answer, 40)}", is_choice=True)
        is_right = letter == accepted[0]
        reason = f"{letter} is {'' if is_right else 'not '}the reference{'' if is_right else f' {accepted[0]}'}"
        return ReadAnswer(letter, is_right, reason, is_choice=True)

    def is_same(self, answer: str, text: str) -> bool:
        """Of one letter the same letter, else as an open answer matches."""
        return answer == text if len(answer) == 1 else is_open_match(answer, [text])


# MathVista


QUESTION_TYPE, ANSWER_TYPE, PRECISION = "question_type", "answer_type", "precision"


def mathvista_form(extracted: str, options: Sequence[str], answer_type: str, precision: int) -> str | None:
    """An extracted answer in MathVista's form: an option's text, a whole number, a rounded number, or a list as text.

    options: empty unless the question is multiple choice. None: it has no such form. A letter in brackets or alone
    names an option, and any other text the option that differs in the fewest letters. Departure: more than half of the
    letters have to be those of that option, so that "I cannot see it" chooses none.
    Source: Lu et al. 2024 (arXiv:2310.02255), evaluation of the release.
    """
    text = extracted.strip()
    if options:
        in_brackets = _IN_BRACKETS.findall(text)
        text = in_brackets[0].upper() if in_brackets else text
        if len(text) == 1 and text in ascii_uppercase[: len(options)]:
            return options[ascii_uppercase.index(text)]
        nearest = min(options, key=lambda option: Levenshtein.distance(text, option))
        longest = max(len(text), len(nearest))
        return nearest if 2 * Levenshtein.distance(text, nearest) < longest or text == nearest else None
    if answer_type not in ("integer", "float"):
        return text or None
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    try:
        number = float(text)
        return str(int(number)) if answer_type == "integer" else str(round(number, precision))
    except (ValueError, OverflowError):
        return None


class MathVistaScorer(VisionAnswerScorer):
    """1 if the answer, in the form that its question asks for, is the reference's text (MathVista).

    An item's payload holds `question_type` (multi_choice or free_form), `answer_type` (integer, float, text, list),
    `precision` (decimals of a float) and, of choices, `options` or `choices`; its reference is the right option's
    letter or text, or the answer's text. The published evaluation has a model extract the answer from a response; here
    rules do: a whole response that is an option or a number, what stands in quotes behind "The answer is", else the
    stated option, the last number, or the last list. With rule "extracted" the answer is taken as a model's extraction
    already.
    """

    name = "mathvista"
    expects = "the letter of an option, or a number or list at the end"

    def __init__(self, rule: str = "stated") -> None:
        """rule: stated, or extracted."""
        if rule not in ("stated", "extracted"):
            raise ConfigError(f"scorer mathvista: rule {rule!r} is unknown; it is stated or extracted")
        self._rule = rule
        self.version = "1.0" if rule == "stated" else f"1.0-{rule}"

    def read(self, answer: str, accepted: Sequence[str], item: Item) -> ReadAnswer:
        """The answer in its form."""
        options = _options(item) if item.payload.get(QUESTION_TYPE) == "multi_choice" else []
        if item.payload.get(QUESTION_TYPE) == "multi_choice" and not options:
            raise ValueError("a multiple-choice question without 'options'")
        kind, precision = str(item.payload.get(ANSWER_TYPE) or "text"), _precision(item)
        # of the form of numbers, so that "1.0" and "1" are the same decimal
        right = [_reference_form(text, options, kind, precision) for text in accepted]
        extracted = answer if self._rule == "extracted" else _extracted(answer, options, kind)
        text = None if extracted is None else mathvista_form(extracted, options, kind, precision)
        if text is None:
            form = "option" if options else kind
            return ReadAnswer(None, False, f"no {form} can be read in {brief(answer, 40)}", is_choice=bool(options))
        is_right = text in right
        reason = f"{brief(text)} is {'' if is_right else 'not '}the reference"
        return ReadAnswer(text, is_right, reason if is_right else f"{reason} {brief(right[0])}", bool(options))


def _reference_form(text: str, options: Sequence[str], kind: str, precision: int) -> str:
    if not options:
        return mathvista_form(text, (), kind, precision) or text
    if text in options:
        return text
    if len(text) == 1 and text in ascii_uppercase[: len(options)]:
        return options[ascii_uppercase.index(text)]
    raise ValueError(f"reference {text!r} names none of {len(options)} options")


def _precision(item: Item) -> int:
    stated = item.payload.get(PRECISION)
    if stated is None or (isinstance(stated, float) and math.isnan(stated)):  # a gap in a table
        return 0
    if isinstance(stated, bool) or stated not in range(21):
        raise ValueError(f"'{PRECISION}' is {stated!r}; it is a number of decimals")
    return int(stated)


def _extracted(answer: str, options: Sequence[str], kind: str) -> str | None:
    """The part of a response that answers; None: there is none."""
    if answer in options:
        return answer
    quoted = _QUOTED_ANSWER.search(answer)
    if options:
        return quoted[1] if quoted else chosen_letter(answer, options).letter or _short(answer, options)
    if kind in ("integer", "float"):
        if len(answer) <= MAX_NUMBER_CHARACTERS and _is_number(answer):
            return answer
        numbers = _LAST_NUMBER.findall(quoted[1] if quoted else answer)
        return numbers[-1].replace(",", "") if numbers else None
    if quoted:
        return quoted[1]
    if kind == "list":
        lists = _LAST_LIST.findall(answer)
        return lists[-1] if lists else None
    return answer


def _short(answer: str, options: Sequence[str]) -> str | None:
    """An answer that may be an option with a slip: no longer than twice the longest one."""
    return answer if len(answer) <= 2 * max(map(len, options)) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
