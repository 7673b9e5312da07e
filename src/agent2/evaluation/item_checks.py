"""Checks of a benchmark's items that need no model: players that read no question, and whether splits can decide.

A player that reads no question (always the same answer, the first, the last or the longest option, any) must not do
better than chance. Does NOT find every shortcut: a model can learn others from the wording of questions.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from string import ascii_uppercase

from agent2.benchmarks.questions import REFERENCE_CALLS
from agent2.contract.gates import EvidenceNeeds
from agent2.evaluation.engine import score_answers
from agent2.records import Benchmark, Item

MAX_GUESSED = 2_000
"""Items that the players without a question answer; the first of a split are a fair sample of it."""
WINS_BY = 0.15
"""Above chance: a player that reads no question and does so much better shows a fault of the items."""
WINS_TEXT = 0.5
"""The same where answers are texts of many kinds, for which there is no chance."""
MIN_RIGHT = 10
"""Right answers without which nothing is shown."""
P_VALUE = 0.0002
"""One of the five players has luck in 1 of 1,000 benchmarks; whether one does is drawn anew by each installation's
secret."""
POWER = 0.8
"""Chance that a gate passes if nothing changed."""


@dataclass(frozen=True, slots=True)
class Guess:
    """How well a player does that reads no question."""

    player: str
    score: float
    n_items: int
    chance: float | None
    """What blind guessing gets, 0 to 1; None: answers cannot be guessed."""

    @property
    def wins(self) -> bool:
        """Whether it is better than chance by more than luck and a slight imbalance explain."""
        if self.score * self.n_items < MIN_RIGHT:
            return False
        if self.chance is None:
            return self.score > WINS_TEXT
        spread = math.sqrt(self.chance * (1 - self.chance) / self.n_items)
        excess = self.score - self.chance
        return excess > WINS_BY and excess > NormalDist().inv_cdf(1 - P_VALUE) * spread

    def __str__(self) -> str:
        return f"{self.player} {100 * self.score:.0f}%"


def guesses(benchmark: Benchmark, items: Sequence[Item]) -> list[Guess]:
    """The players that read no question, on the first items that have a reference; empty: none has one."""
    questions = [item for item in items if item.reference is not None][:MAX_GUESSED]
    if not questions:
        return []
    references = Counter(item.reference for item in questions)
    commonest = references.most_common(1)[0][0]
    if all(_options(item) for item in questions):
        chance: float | None = sum(1 / len(_options(item)) for item in questions) / len(questions)
        letters = {item.id: ascii_uppercase[: len(_options(item))] for item in questions}
        players: Mapping[str, Mapping[str, str]] = {
            f"always {commonest}": {item.id: commonest or "" for item in questions},
            "the first option": {item.id: "A" for item in questions},
            "the last option": {item.id: letters[item.id][-1] for item in questions},
            "the longest option": {item.id: letters[item.id][_longest(_options(item))] for item in questions},
            "any option": {item.id: letters[item.id][_number(item.id) % len(letters[item.id])] for item in questions},
        }
    else:
        # few different answers are classes, which can be guessed; many are not
        chance = 1 / len(references) if len(references) * 10 <= len(questions) else None
        players = {
            f"always {_brief(commonest)}": {item.id: commonest or "" for item in questions},
            "the answer to another question": {
                item.id: questions[_number(item.id) % len(questions)].reference or "" for item in questions
            },
        }
        if any(REFERENCE_CALLS in item.payload for item in questions):
            players = {**players, "words in place of calls": {item.id: "I cannot do that." for item in questions}}
    n = len(questions)
    return [Guess(name, _mean_score(benchmark, questions, answers), n, chance) for name, answers in players.items()]


def _options(item: Item) -> list[str]:
    options = item.payload.get("options")
    return [str(option) for option in options] if isinstance(options, list) else []


def _longest(options: Sequence[str]) -> int:
    return max(range(len(options)), key=lambda index: (len(options[index]), -index))


def _number(text: str) -> int:
    """A number that is the same in every process, which hash() is not."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _brief(text: str | None) -> str:
    return repr(text if text is None or len(text) <= 20 else f"{text[:20]}...")


def _mean_score(benchmark: Benchmark, items: Sequence[Item], answers: Mapping[str, str]) -> float:
    scores = score_answers(benchmark, [(item, [answers[item.id]]) for item in items])
    values = [score.value for score in scores if score.value is not None]
    return sum(values) / len(values) if values else 0.0


def items_to_decide(margin: float, needs: EvidenceNeeds) -> int:
    """Items with which a regression gate of this margin passes in 4 of 5 evaluations if nothing changed.

    That is, the upper end of the 95% interval of the fall is inside the margin. At least what evidence needs.
    Source: normal approximation of McNemar's test (Connor 1987), at the discordance that `needs` assumes.
    """
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(POWER)
    return max(needs.min_items, math.ceil(z**2 * needs.assumed_discordance / margin**2))


def smallest_difference(n_items: int, needs: EvidenceNeeds) -> float:
    """The true difference of rates that so many items show in 4 of 5 evaluations (p < 0.05), same approximation."""
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(POWER)
    return min(1.0, z * math.sqrt(needs.assumed_discordance / n_items))
