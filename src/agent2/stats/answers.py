"""Metrics of final answers: accuracy, exact match, token F1, circular accuracy, ANLS.

Promises: each value is a mean over items with its interval; None is an answer or verdict that could not be had
(lost to a fault): left out, counted, never zero. An empty answer is an answer, and a wrong one. Numbers are in
`numeric`, preferences in `preferences`.
"""

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from agent2.errors import NotEnoughData
from agent2.stats.measure import UNIT, Measure, Values, measure

References: TypeAlias = Sequence[str | Sequence[str]]
"""For each item the reference answer, or all that are accepted; the best one counts."""
ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def accuracy(correct: Values) -> Measure:
    """Share of items answered correctly.

    correct: one verdict for each item, 0 or 1 (a part of 1 where items are graded in parts), None where
    missing. Range 0-1. Raises ValueError outside it, NotEnoughData if nothing is there.
    """
    return measure(correct, "accuracy", UNIT)


def stripped(text: str) -> str:
    """The text without white space at its ends: the plainest reading of "the same answer"."""
    return text.strip()


def plain_words(text: str) -> str:
    """Lower case, without punctuation, English articles and repeated white space.

    Source: SQuAD 1.1 evaluation (Rajpurkar et al. 2016), as generally known; not checked against the script.
    """
    words = text.lower().translate(_NO_PUNCTUATION).split()
    return " ".join(word for word in words if word not in ARTICLES)


def exact_match(
    answers: Sequence[str | None], references: References, normalise: Callable[[str], str] = stripped
) -> Measure:
    """Share of answers equal to a reference after `normalise` (stripped white space, or `plain_words`)."""
    return _best_reference(
        answers, references, lambda answer, reference: float(normalise(answer) == normalise(reference)), "exact match"
    )


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words, counted with repeats, after `plain_words`.

    Range 0-1, symmetric in its arguments; 1 when both are without words, 0 when one is.
    Source: SQuAD 1.1 (Rajpurkar et al. 2016), as generally known; not checked against the script.
    """
    left, right = Counter(plain_words(answer).split()), Counter(plain_words(reference).split())
    if not left or not right:
        return float(left == right)
    return 2.0 * (left & right).total() / (left.total() + right.total())


def f1(answers: Sequence[str | None], references: References) -> Measure:
    """Mean token F1 with the best reference of each item; see `token_f1`."""
    return _best_reference(answers, references, token_f1, "F1")


def circular_accuracy(correct_IS: Sequence[Sequence[float | None]]) -> Measure:
    """Share of multiple-choice items that are right under every circular shift of their options.

    correct_IS: items x shifts, 0 or 1; an item has as many shifts as options. One wrong shift makes the item
    wrong whatever else is missing; an item with a missing shift and no wrong one is missing. Raises ValueError
    for other verdicts, NotEnoughData for an item without shifts or when all are missing.
    Source: MMBench (Liu et al. 2023), as generally known; not checked against the paper.
    """
    values: list[float | None] = []
    for number, row in enumerate(correct_IS):
        shifts = np.asarray(cast(ArrayLike, row), dtype=np.float64)
        if shifts.size == 0:
            raise NotEnoughData(f"item {number} has no shifts; circular accuracy needs one for each option")
        if not bool(np.all(np.isnan(shifts) | (shifts == 0.0) | (shifts == 1.0))):
            raise ValueError(f"item {number}: verdicts of shifts must be 0, 1 or missing")
        values.append(0.0 if bool((shifts == 0.0).any()) else None if bool(np.isnan(shifts).any()) else 1.0)
    return measure(values, "circular accuracy", UNIT)


def edit_distance(left: str, right: str) -> int:
    """Fewest insertions, deletions and substitutions of characters between the two (Levenshtein 1966)."""
    if len(left) < len(right):
        left, right = right, left
    above = list(range(len(right) + 1))
    for row, character in enumerate(left, start=1):
        diagonal, above[0] = above[0], row
        for column, other in enumerate(right, start=1):
            cost = diagonal if character == other else 1 + min(diagonal, above[column], above[column - 1])
            diagonal, above[column] = above[column], cost
    return above[-1]


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
    distance = edit_distance(left, right) / longest
    return 1.0 - distance if distance < threshold else 0.0


def anls(answers: Sequence[str | None], references: References, threshold: float = 0.5) -> Measure:
    """Average normalised Levenshtein similarity: the mean of `answer_similarity` with the best reference.

    Source: Biten et al. 2019 (ST-VQA; the metric of DocVQA), as generally known; not checked against the paper.
    """
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold={threshold} must be above 0 and at most 1; the published one is 0.5")
    return _best_reference(
        answers, references, lambda answer, reference: answer_similarity(answer, reference, threshold), "ANLS"
    )


def accepted(reference: str | Sequence[str], number: int) -> list[str]:
    """All accepted answers to one item. Raises NotEnoughData if there are none."""
    found = [reference] if isinstance(reference, str) else list(reference)
    if not found:
        raise NotEnoughData(f"item {number} has no reference answer, so nothing could match it")
    return found


def paired_with_references(answers: Sequence[str | None], references: References) -> list[tuple[str | None, list[str]]]:
    """Each answer with its accepted ones. Raises ValueError if the lengths differ."""
    if isinstance(answers, str) or isinstance(references, str):
        raise ValueError("answers and references must be sequences with one entry for each item, not one text")
    if len(answers) != len(references):
        raise ValueError(f"{len(answers)} answers for {len(references)} references; pair them by item id first")
    return [
        (answer, accepted(reference, number))
        for number, (answer, reference) in enumerate(zip(answers, references, strict=True))
    ]


def _best_reference(
    answers: Sequence[str | None], references: References, similarity: Callable[[str, str], float], what: str
) -> Measure:
    values = [
        None if answer is None else max(similarity(answer, reference) for reference in known)
        for answer, known in paired_with_references(answers, references)
    ]
    return measure(values, what, UNIT)
