"""Rules for short answers: exact text, rational numbers, multiple choice.

The plainest rule: the answer is the reference, white space at the ends aside.

Does NOT forgive case, punctuation or another way of writing a number; see `final_answer` and `rational` for those.

Exact equality of rational numbers: 14/6, 7/3 and nothing near it.

The whole answer, white space at its ends aside, must be one number: an integer (`-12`), a fraction
(`7/3`, spaces around the bar allowed) or a decimal (`2.5`), read exactly. Words, two numbers, exponents,
thousands separators and `inf` are no number. An answer that is no number is wrong (0.0, with the reason);
only an item that cannot be judged at all has a missing score.

Does NOT give partial credit (see `agent2.benchmarks.arithmetic.rewards` for a continuous reward) and does
NOT look for a number inside a sentence.

The letter of a multiple-choice answer, and whether it is the right one.

Read in this order: the whole answer is a letter (`B`, `(b)`, `**B**`, `B.`); the first "answer is (B)", the pattern
that MMLU-Pro publishes; the first "Answer: B", its second step; a letter and the text of its option at the beginning
(`B) blue`). Any other letter at the beginning numbers a part of the working ("(a) The ratio is ..."). The first letter
of a pattern decides: where it is no option, nothing was chosen. Without any of these no answer was given and the score
is 0.0; the view `flexible_match` also takes the last letter that stands alone. A letter is only a letter when no word
goes on behind it: "the answer is Apples" chooses nothing.

Views for every option say what was chosen, so that a liking for one position shows in their means beside the
accuracy. Does NOT look for the text of an option without its letter.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from string import ascii_lowercase, ascii_uppercase

from agent2.errors import Fault
from agent2.records import Emits, Item, Rollout, Score
from agent2.stats.answers import stripped


class ExactScorer:
    """1.0 if the stripped answer equals the stripped reference, else 0.0 (`exact_match` of task sets)."""

    name = "exact"
    version = "1.0"
    emits = Emits()

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item has no reference."""
        if item.reference is None:
            return Score(None, f"item {item.id} has no reference to compare with; correct the benchmark", Fault.JUDGE)
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        if stripped(rollout.answer) == stripped(item.reference):
            return Score(1.0, "the answer is the reference", extracted=stripped(rollout.answer))
        reason = f"the answer {brief(rollout.answer)} is not the reference {brief(item.reference)}"
        return Score(0.0, reason, extracted=stripped(rollout.answer))


def brief(text: str, length: int = 60) -> str:
    """A text as it may stand in a reason: its repr, cut short."""
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
    """The last capital letter that stands alone and names an option; None if there is none."""
    options = ascii_uppercase[:n_options]
    found = [match["letter"] for match in _ALONE.finditer(text[-MAX_CHARACTERS:]) if match["letter"] in options]
    return found[-1] if found else None


class ChoiceScorer:
    """1.0 if the chosen letter is the reference.

    The item's payload tells the `options`. Views: `answer_parsed`, `flexible_match`, and `chose_a`,
    `chose_b` ... one of which is 1. Labels: `mmlu_answer_parse_fail` or `mmlu_wrong_choice`.
    """

    name = "choice"
    version = "1.1"
    emits = Emits(
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
