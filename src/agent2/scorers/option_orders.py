"""The scorer `option_orders`: right only if the right option is chosen under every circular shift (MMBench).

It judges the episodes of the world `option_orders`. Two rules read an answer:

last     the default: as the scorer `choice` reads it
mmbench  as MMBench's evaluation without a model: one letter that stands alone among the last four words, else the text
         of exactly one option in an answer that is not much longer than the options

Departure: an answer that neither rule reads is wrong, where the published evaluation asks a model, which may draw one.
"""

from collections.abc import Sequence
from string import ascii_uppercase

from agent2.environments.option_orders import OPTIONS, ORDER_ANSWERS, letter_at, shifted
from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, Score, ScorerOutput
from agent2.scorers.answers import brief
from agent2.scorers.choice import MAX_CHARACTERS, chosen_letter

RULES = ("last", "mmbench")
_MARKS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_NONE_OF_THEM = "Z"
"""The letter by which MMBench says that no option was chosen."""


def mmbench_letter(answer: str, options: Sequence[str]) -> str | None:
    """The letter that MMBench's evaluation reads without a model; None: it would ask one, or none is chosen.

    Source: MMBench (Liu et al. 2023, arXiv:2307.06281, section 4.2), exact matching of VLMEvalKit.
    """
    letters = ascii_uppercase[: len(options)]
    tokens = answer.translate(_MARKS).split()
    alone = [letter for letter in letters if letter in tokens]
    if len(alone) == 1 and tokens.index(alone[0]) > len(tokens) - 5:
        return alone[0]
    if not alone and _NONE_OF_THEM in tokens:
        return None
    if len(answer) > 2 * sum(map(len, options)):
        return None
    lower = answer.lower()
    named = [letter for letter, option in zip(letters, options, strict=False) if option.lower() in lower]
    return named[0] if len(named) == 1 else None


class OptionOrdersScorer:
    """1.0 if every order of the options has the right answer.

    Views: `first_order` (right as the file has the options, which is accuracy without shifts), `orders_right` (share of
    the orders), `answer_parsed` (an option could be read in every order), `same_option` (the same option in every
    order, right or wrong). Labels: `order_dependent_choice` where some orders are right, else `wrong_choice`, or
    `answer_parse_fail` where no order could be read.
    """

    name = "option_orders"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"first_order", "orders_right", "answer_parsed", "same_option"}),
        labels=frozenset({"order_dependent_choice", "wrong_choice", "answer_parse_fail"}),
    )
    needs_state = frozenset({ORDER_ANSWERS})
    expects = "the letter of an option, as in 'The answer is (C)'"

    def __init__(self, rule: str = "last") -> None:
        """Raises ConfigError for a rule that does not exist."""
        if rule not in RULES:
            raise ConfigError(f"scorer option_orders: rule {rule!r} is unknown; it is one of {', '.join(RULES)}")
        self._rule = rule
        self.version = "1.0" if rule == "last" else f"1.0-{rule}"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's options or reference, or the state, are unusable."""
        options = [str(option) for option in item.payload.get(OPTIONS) or ()]
        answers = rollout.state.get(ORDER_ANSWERS)
        expected = (item.reference or "").strip().upper()
        if not 2 <= len(options) <= len(ascii_uppercase) or expected not in list(ascii_uppercase[: len(options)]):
            reason = f"item {item.id}: reference {item.reference!r} names none of {len(options)} options; correct it"
            return Score(None, reason, Fault.JUDGE)
        if not isinstance(answers, list | tuple):
            reason = f"item {item.id} was not played in the world option_orders; write environment: option_orders"
            return Score(None, reason, Fault.JUDGE)
        n = len(options)
        # An order that was not answered before the episode ended is not right.
        texts = [str(answer) for answer in answers[:n]] + [""] * (n - len(answers))
        letters = [self._letter(text, shifted(options, shift)) for shift, text in enumerate(texts)]
        right = [letter_at(expected, shift, n) for shift in range(n)]
        is_right = [letter == right_letter for letter, right_letter in zip(letters, right, strict=True)]
        places = {
            None if letter is None else (ascii_uppercase.index(letter) + shift) % n
            for shift, letter in enumerate(letters)
        }
        views: dict[str, float | None] = {
            "first_order": float(is_right[0]),
            "orders_right": sum(is_right) / n,
            "answer_parsed": float(None not in letters),
            "same_option": float(len(places) == 1 and None not in places),
        }
        if all(is_right):
            return Score(1.0, f"{expected} in all {n} orders", views=views, extracted=expected)
        wrong = is_right.index(False)
        chosen = letters[wrong] or f"nothing that can be read ({brief(texts[wrong], 30)})"
        label = "wrong_choice" if any(letters) else "answer_parse_fail"
        label = "order_dependent_choice" if any(is_right) else label
        reason = f"{sum(is_right)} of {n} orders right; order {wrong + 1}: {chosen}, right is {right[wrong]}"
        extracted = None
        if letters[0] is not None:
            extracted = letters[0]
        return Score(0.0, reason, views=views, labels=(label,), extracted=extracted)

    def _letter(self, text: str, options: Sequence[str]) -> str | None:
        if self._rule == "mmbench":
            return mmbench_letter(text[-MAX_CHARACTERS:], options)
        return chosen_letter(text, options).letter
