"""A preference model for a judge that can be asked only a few hundred times: Bradley-Terry over features of texts.

A verdict says whether a reply is better than its item's reference. The model explains it by the difference between the
features of both: what a text begins and ends with, how its lines are marked and which common words it has, each in
general and in the contexts of the item (fields of its payload with few values, and pairs of them); and how far its rare
words differ from those of the reference, which is what a false or missing fact looks like. Weights are found by ridge
logistic regression (Newton's method); ties count half.

Promises: a verdict for any text, from 0 to 1, and the same one always. Does NOT read what a text means: a reply that
states a falsehood in the reference's own words is right to it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from agent2.errors import ConfigError
from agent2.records import Item, Rollout, Score, ScorerOutput

MAX_FIELD_VALUES = 12
"""A field of the payload with more values is no context."""
COMMON_SHARE = 0.2
"""Of references; a word in fewer of them is content, in more of them style."""
LEAST_SHARE = 0.03
"""Of replies; a beginning, an ending or a mark that is rarer is not told apart from others."""
CONTENT_PRIOR = -3.0
"""Weight of each difference in content before any verdict. Training finds what a model of few verdicts has never seen
to be bad, so such differences are bad unless the verdicts say otherwise."""
RIDGE = 1.0
N_STEPS = 25
CONTENT = ("missing", "extra", "repeated")
MAX_CHARS = 4_000
"""Read of a text."""
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_MARK = re.compile(r"\s*(\W+|\d+\W)\s")

Context = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoughtVerdict:
    """What the judge said about a reply to an item: 1 better than the reference, 0 worse, 0.5 as good."""

    item: Item
    reply: str
    value: float


class ContentWords:
    """What texts say, as far as rare words tell: those of a reply against those of the reference."""

    def __init__(self, items: Sequence[Item]) -> None:
        """items: visible ones; what is common among their references is style."""
        counts = Counter(word for item in items for word in set(_words(item.reference or "")))
        self.common = {word for word, count in counts.items() if count >= COMMON_SHARE * len(items)}

    def differences(self, reply: str, reference: str) -> dict[str, float]:
        """Rare words of the reference that are missing, rare words beyond it, and repeated sentences."""
        content = {word for word in _words(reply) if word not in self.common}
        expected = {word for word in _words(reference) if word not in self.common}
        sentences = [tuple(letters) for part in _SENTENCE.findall(reply[:MAX_CHARS]) if (letters := _letters(part))]
        return {
            "missing": float(len(expected - content)),
            "extra": float(len(content - expected)),
            "repeated": float(len(sentences) - len(set(sentences))),
        }


class PreferenceModel:
    """Predicts the judge's verdicts; `agent2.records.Scorer` by its form, so that recipes use it as a reward."""

    name = "preference_model"
    version = "1.0"
    emits = ScorerOutput()

    def __init__(self, verdicts: Sequence[BoughtVerdict], items: Sequence[Item]) -> None:
        """verdicts: what was bought. items: visible ones, for what is common among references and contexts.

        Raises ConfigError without a verdict.
        """
        if not verdicts:
            raise ConfigError("no verdict was given, so no preference can be learned; raise budget.judgements")
        self._content = ContentWords(items)
        texts = [text for verdict in verdicts for text in (verdict.reply, verdict.item.reference or "")]
        shapes = Counter(shape for text in texts for shape in _shapes(text))
        self._known = {shape for shape, count in shapes.items() if count >= LEAST_SHARE * len(texts)}
        values_of: dict[str, set[str]] = {}
        for item in items:
            for field, value in item.payload.items():
                if isinstance(value, str):
                    values_of.setdefault(field, set()).add(value)
        self._fields = sorted(field for field, values in values_of.items() if 1 < len(values) <= MAX_FIELD_VALUES)
        self._columns: dict[tuple[Context, str], int] = {}
        for feature in CONTENT:  # also one that no reply that was asked about differs in
            self._columns[(), feature] = len(self._columns)
        rows = [self._differences(verdict.item, verdict.reply) for verdict in verdicts]
        for row in rows:
            for column in row:
                self._columns.setdefault(column, len(self._columns))
        design = np.array([self._dense(row) for row in rows])
        prior = np.array([CONTENT_PRIOR if feature in CONTENT else 0.0 for _, feature in self._columns])
        self._weights = fit_logistic(design, np.array([verdict.value for verdict in verdicts]), RIDGE, prior)

    def probability(self, item: Item, reply: str) -> float:
        """That the judge prefers the reply to the reference."""
        row = self._differences(item, reply)
        margin = sum(value * self._weights[self._columns[key]] for key, value in row.items() if key in self._columns)
        return float(1.0 / (1.0 + np.exp(-margin)))

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The predicted verdict."""
        return Score(self.probability(item, rollout.answer or ""), "predicted by the preference model")

    def _features(self, text: str, reference: str) -> dict[str, float]:
        features = {f"word {word}": 1.0 for word in set(_words(text)) & self._content.common}
        features |= {shape: 1.0 for shape in _shapes(text) if shape in self._known}
        return features | self._content.differences(text, reference)

    def _differences(self, item: Item, reply: str) -> dict[tuple[Context, str], float]:
        """Features of the reply minus those of the reference, in every context of the item; zeros are left out."""
        reference = item.reference or ""
        ours, theirs = self._features(reply, reference), self._features(reference, reference)
        values = [f"{field}={item.payload.get(field)}" for field in self._fields]
        contexts: list[Context] = [(), *((value,) for value in values), *combinations(values, 2)]
        row: dict[tuple[Context, str], float] = {}
        for feature in {*ours, *theirs}:
            difference = ours.get(feature, 0.0) - theirs.get(feature, 0.0)
            if difference:
                # what a text says is judged alike everywhere; how it says it may not be
                everywhere = feature in CONTENT
                row |= {(context, feature): difference for context in (contexts[:1] if everywhere else contexts)}
        return row

    def _dense(self, row: Mapping[tuple[Context, str], float]) -> NDArray[np.float64]:
        dense = np.zeros(len(self._columns))
        for column, value in row.items():
            dense[self._columns[column]] = value
        return dense


def fit_logistic(
    design_VC: NDArray[np.float64], verdicts_V: NDArray[np.float64], ridge: float, prior_C: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights that make verdicts (0 to 1) most likely; prior_C: their means before, of precision `ridge`."""
    weights = np.zeros(design_VC.shape[1])
    for _ in range(N_STEPS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(design_VC @ weights, -30, 30)))
        curvature = np.maximum(chances * (1.0 - chances), 1e-3)
        gradient = design_VC.T @ (verdicts_V - chances) - ridge * (weights - prior_C)
        # more columns than verdicts: the matrix of the verdicts is the smaller one (Woodbury)
        scaled = design_VC / ridge
        inner = np.diag(1.0 / curvature) + scaled @ design_VC.T
        step = gradient / ridge - scaled.T @ np.linalg.solve(inner, scaled @ gradient)
        weights += step
        if np.max(np.abs(step)) < 1e-6:
            break
    return weights


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text[:MAX_CHARS])]


def _letters(text: str) -> list[str]:
    """Words without numbers, such as those of a list."""
    return [word for word in _words(text) if not word.isdigit()]


def _shapes(text: str) -> set[str]:
    """What a text begins and ends with, and how its lines are marked."""
    text = text[:MAX_CHARS].strip()
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip()]
    marks = {"".join("1" if c.isdigit() else c for c in m[1]).strip() for m in map(_MARK.match, text.split("\n")) if m}
    shapes = {f"mark {mark[:8]}" for mark in marks} or {"no mark"}
    if sentences:
        shapes |= {f"first {sentences[0][:60]}", f"last {sentences[-1][:60]}"}
    return shapes
