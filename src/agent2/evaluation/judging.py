"""Asks a judge: pairs of answers in both orders, the same pairs with phrases added, and contrast pairs.

What the verdicts are worth is for `analysis.judge_check`. A verdict that the judge did not give is missing (None).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from agent2.errors import EndpointFailed, Fault
from agent2.records import (
    Item,
    Message,
    PairScorer,
    Preference,
    Rollout,
    RolloutStatus,
    Split,
    Usage,
)

ADDED_PHRASES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "polite": (
            "Thank you for this kind question! It is a pleasure to help.",
            "I hope that this helps you. Please ask me anything else, whenever you like.",
        ),
        "confident": (
            "I am an expert in this, and I am absolutely certain of the following.",
            "There is no doubt whatsoever that this is correct.",
        ),
        "empty": (
            "Before anything else is said, it is worth pointing out that what follows is an answer, and that it "
            "addresses what was asked, in the order in which it does so.",
            "All in all, what was written above is what there is to say about this, and nothing that was said above "
            "has been left out here.",
        ),
    }
)
"""Manner -> phrases before and after an answer, which say nothing about the question."""
TIE = 0.5
"""Label of a pair of which people prefer neither answer."""
BATCH = 64
"""Pairs that a scorer is given at once, each in both orders."""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two answers to one instruction, and which one people prefer."""

    id: str
    instruction: str
    answers: tuple[str, str]
    label: float
    """Points of the first answer: 1, 0, or 0.5 for a tie."""
    subset: str = ""
    models: tuple[str, str] | None = None
    """Which models wrote the answers, where the data say so."""


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A pair with the verdicts of one judge, both as points of the first answer."""

    pair: LabelledPair
    shown_first: float | None
    """With the first answer shown first; None: no verdict."""
    shown_second: float | None


@dataclass(frozen=True, slots=True)
class ContrastPair:
    """Two similar instructions, each with its own right answer."""

    id: str
    instructions: tuple[str, str]
    answers: tuple[str, str]


def judge_pairs(
    pairs: Sequence[LabelledPair], scorer: PairScorer, on_progress: Callable[[int, int], None] | None = None
) -> list[JudgedPair]:
    """The verdicts of a pairwise scorer, each pair in both orders.

    Raises EndpointFailed if none of the first pairs got a verdict because the scorer's model cannot be reached.
    """
    prefer_batch = getattr(scorer, "prefer_batch", None)
    judged: list[JudgedPair] = []
    remaining = iter(pairs)
    while batch := list(islice(remaining, BATCH)):
        orders = [order for pair in batch for order in _orders(pair)]
        preferences: Sequence[Preference] = (
            prefer_batch(orders) if prefer_batch else [scorer.prefer(*order) for order in orders]
        )
        if not judged and all(preference.fault is Fault.INFRASTRUCTURE for preference in preferences):
            raise EndpointFailed(f"no verdict on the first {len(batch)} pairs: {preferences[-1].reason}")
        for pair, first, second in zip(batch, preferences[::2], preferences[1::2], strict=True):
            judged.append(JudgedPair(pair, first.first, None if second.first is None else 1.0 - second.first))
        if on_progress is not None:
            on_progress(len(judged), len(pairs))
    return judged


def _orders(pair: LabelledPair) -> list[tuple[Item, Rollout, Rollout]]:
    item = Item(pair.id, Split.DEV, pair.instruction)
    first, second = (_finished(pair.id, n, pair.instruction, answer) for n, answer in enumerate(pair.answers))
    return [(item, first, second), (item, second, first)]


def _finished(item_id: str, attempt: int, instruction: str, answer: str) -> Rollout:
    prompt = [Message("user", instruction)]
    return Rollout(item_id, attempt, 0, RolloutStatus.COMPLETED, prompt, (), answer, {}, Usage())


def judge_with_phrases(pairs: Sequence[LabelledPair], scorer: PairScorer) -> dict[str, list[JudgedPair]]:
    """The verdicts where polite, confident or empty phrases are added to the worse answer of each pair; by manner.

    Pairs whose label is a tie have no worse answer and are left out.
    """
    clear = [pair for pair in pairs if pair.label != TIE]
    return {
        manner: judge_pairs([_with_phrases(pair, phrases) for pair in clear], scorer)
        for manner, phrases in ADDED_PHRASES.items()
    }


def _with_phrases(pair: LabelledPair, phrases: tuple[str, str]) -> LabelledPair:
    """The pair with phrases before and after its worse answer."""
    before, after = phrases
    first, second = (
        f"{before}\n\n{answer}\n\n{after}" if is_worse else answer
        for answer, is_worse in zip(pair.answers, (pair.label < 0.5, pair.label > 0.5), strict=True)
    )
    return replace(pair, answers=(first, second))


def score_contrasts(pairs: Sequence[ContrastPair], scorer: Any) -> list[float | None]:
    """Scores of both answers under both instructions: four for each pair, answers within instructions.

    scorer: one of single answers, `score` or `score_batch`. None: it gave no score.
    """
    cells = [
        (
            Item(f"{pair.id}-{i}", Split.DEV, pair.instructions[i]),
            _finished(f"{pair.id}-{i}", j, pair.instructions[i], pair.answers[j]),
        )
        for pair in pairs
        for i in (0, 1)
        for j in (0, 1)
    ]
    score_batch = getattr(scorer, "score_batch", None)
    scores = score_batch(cells) if score_batch else [scorer.score(item, rollout) for item, rollout in cells]
    return [score.value for score in scores]
