"""The letter of a multiple-choice answer, and whether it is the right one.

Read in this order: the whole answer is a letter (`B`, `(b)`, `**B**`, `B.`, `B) blue`); the first "answer is (B)", the
pattern that MMLU-Pro publishes; the first "Answer: B", its second step. Where none of these is there, no answer was
given and the score is 0.0; the view `flexible_match` also takes the last letter that stands alone. A letter is only a
letter when no word goes on behind it: "the answer is Apples" chooses nothing.

Views for every option say what was chosen, so that a liking for one position shows in their means beside the
accuracy. Does NOT look for the text of an option without its letter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from agent2.errors import Fault
from agent2.records import Emits, Item, Rollout, Score
from agent2.scorers.exact import brief

MAX_CHARACTERS = 100_000
_OPEN, _CLOSE = r"[(\[{*_`$\\\s\"']*", r"(?![\w+#]|[-'’]\w)"
_WHOLE = re.compile(rf"{_OPEN}(?P<letter>[A-Za-z])(?:[)\]}}*_`$\\\"'.:\s]*$|[).:]\s+\S.*$)", re.DOTALL)
_ANSWER_IS = re.compile(rf"answer is:?{_OPEN}(?:(?:option|choice)\s{_OPEN})?(?P<letter>[A-Z]){_CLOSE}")
_ANSWER_COLON = re.compile(rf"answer\*{{0,2}}\s*:{_OPEN}(?P<letter>[A-Za-z]){_CLOSE}", re.IGNORECASE)
_ALONE = re.compile(rf"(?<![\w'’-])(?P<letter>[A-Z]){_CLOSE}")


@dataclass(frozen=True, slots=True)
class Choice:
    """The letter that was read, upper case; None if there is none among the options."""

    letter: str | None
    reason: str


def chosen_letter(text: str, n_options: int) -> Choice:
    """The choice of an answer.

    n_options: 2 to 26; letters beyond are not options.
    Source: extraction of MMLU-Pro (Wang et al. 2024, arXiv:2406.01574); departures in the module's text.
    """
    options = ascii_uppercase[:n_options]
    text = text[-MAX_CHARACTERS:]
    whole = _WHOLE.match(text)
    if whole and whole["letter"].upper() in options:
        return Choice(whole["letter"].upper(), "the answer is a letter")
    for match in _ANSWER_IS.finditer(text):
        if match["letter"] in options:
            return Choice(match["letter"], "read after 'answer is'")
    for match in _ANSWER_COLON.finditer(text):
        if match["letter"].upper() in options:
            return Choice(match["letter"].upper(), "read after 'Answer:'")
    return Choice(None, f"no letter from A to {options[-1]} in {brief(text, 40)}")


def last_letter(text: str, n_options: int) -> str | None:
    """The last capital letter that stands alone and names an option; None if there is none."""
    options = ascii_uppercase[:n_options]
    found = [match["letter"] for match in _ALONE.finditer(text[-MAX_CHARACTERS:]) if match["letter"] in options]
    return found[-1] if found else None


class ChoiceScorer:
    """1.0 if the chosen letter is the reference.

    The item's payload tells the number of `options`. Views: `answer_parsed`, `flexible_match`, and `chose_a`,
    `chose_b` ... one of which is 1. Labels: `mmlu_answer_parse_fail` or `mmlu_wrong_choice`.
    """

    name = "choice"
    version = "1.0"
    emits = Emits(
        views=frozenset({"answer_parsed", "flexible_match", *(f"chose_{letter}" for letter in ascii_lowercase)}),
        labels=frozenset({"mmlu_answer_parse_fail", "mmlu_wrong_choice"}),
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's reference or options are unusable."""
        n_options = _n_options(item.payload)
        expected = (item.reference or "").strip().upper()
        if n_options is None or len(expected) != 1 or expected not in ascii_uppercase[:n_options]:
            return Score(
                None,
                f"item {item.id}: reference {item.reference!r} names none of {n_options} options; correct it",
                Fault.JUDGE,
            )
        text = rollout.answer or ""
        choice = chosen_letter(text, n_options)
        flexible = choice.letter or last_letter(text, n_options)
        views: dict[str, float | None] = {
            "answer_parsed": float(choice.letter is not None),
            "flexible_match": float(flexible == expected),
        }
        for letter in ascii_uppercase[:n_options]:
            views[f"chose_{letter.lower()}"] = float(choice.letter == letter)
        if choice.letter == expected:
            return Score(1.0, f"{expected} is the reference", views=views)
        if choice.letter is None:
            return Score(0.0, choice.reason, views=views, labels=("mmlu_answer_parse_fail",))
        reason = f"{choice.letter} is not the reference {expected}"
        return Score(0.0, reason, views=views, labels=("mmlu_wrong_choice",))


def _n_options(payload: Mapping[str, object]) -> int | None:
    options = payload.get("options")
    number = len(options) if isinstance(options, list | tuple) else None
    return number if number is not None and 2 <= number <= len(ascii_uppercase) else None
