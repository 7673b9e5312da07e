"""Retrieval: which rows resemble an item without sharing a run of words with it.

Rows are ranked by BM25 (Robertson & Zaragoza 2009, k1 1.2, b 0.75); the best few are compared with the item by the F1
of their words, and with less weight of pairs of neighbours, weighted by rarity, in the window of the row that fits best
(retrieval overlap as in Deng et al. 2024, arXiv:2311.09783). Words count without their English ending, numbers as
digits. A score of 1 is the item itself, 0 nothing in common.

Does NOT find translations, or paraphrases that share no words.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from scipy import sparse

from agent2.integrity.plain_text import normalized_words
from agent2.integrity.texts import TextUnit

_SMALL_NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
K1 = 1.2
B = 0.75
TOP = 4
"""Rows that are compared with an item."""
MAX_ROWS = 100_000
WINDOW = 2.0
"""Of a long row, a stretch of this many times the item's words is compared."""
PAIR_WEIGHT = 0.3
"""Of a pair of neighbours, beside the weight of a word."""
CHUNK_WORDS = 400
"""Longer units are cut, so that a whole file is not one row."""
_ENDINGS = ("ings", "ing", "edly", "ed", "ies", "es", "ers", "er", "ly", "s")
NUMBERS: MappingProxyType[str, str] = MappingProxyType(
    {word: str(number) for number, word in enumerate(_SMALL_NUMBERS)}
    | {word: str(10 * number) for number, word in enumerate(_TENS, start=2)}
    | {"once": "1", "twice": "2", "double": "2", "thrice": "3", "triple": "3", "dozen": "12", "hundred": "100"}
)
"""Words for numbers, which a paraphrase writes as digits."""
BATCH_ITEMS = 64
"""Items whose scores against all rows are computed at once."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The row that contains most of an item."""

    score: float
    """F1 of rarity-weighted words and pairs, 0 to 1."""
    where: str


class Retrieval:
    """Rows that may have been trained on, searched by items."""

    def __init__(self, items: Sequence[str]) -> None:
        """items: texts of all items that will be searched for; rows without any of their words are not indexed."""
        self._items = [terms_of(text) for text in items]
        vocabulary = sorted({term for terms in self._items for term in terms})
        self._ids = {term: index for index, term in enumerate(vocabulary)}
        self._rows: list[tuple[str, list[str]]] = []
        self._counts: list[Counter[int]] = []
        self._n_rows_with: Counter[str] = Counter()
        self.n_left_out = 0
        """Rows beyond `MAX_ROWS`."""

    def add(self, unit: TextUnit) -> None:
        """Index one unit."""
        terms = terms_of(unit.text) if self._items else []
        for start in range(0, len(terms), CHUNK_WORDS):
            chunk = terms[start : start + CHUNK_WORDS]
            counts = Counter(self._ids[term] for term in chunk if term in self._ids)
            if not counts:
                continue
            if len(self._rows) >= MAX_ROWS:
                self.n_left_out += 1
                continue
            self._rows.append((unit.where, chunk))
            self._counts.append(counts)
            self._n_rows_with.update(set(chunk))

    def nearest(self) -> list[Nearest]:
        """For each item, in order, the row that contains most of it."""
        return [next(iter(rows), Nearest(0.0, "")) for rows in self.similar()]

    def similar(self) -> list[list[Nearest]]:
        """For each item, in order, the `TOP` rows that BM25 ranks highest, the one that contains most of it first."""
        if not self._rows:
            return [[] for _ in self._items]
        matrix_TR = self._weights()
        similar = []
        for start in range(0, len(self._items), BATCH_ITEMS):
            batch = self._items[start : start + BATCH_ITEMS]
            scores_IR = self._term_matrix(batch) @ matrix_TR
            for index, terms in enumerate(batch):
                similar.append(self._best_rows(terms, np.asarray(scores_IR[[index]].todense()).ravel()))
        return similar

    def _best_rows(self, terms: list[str], scores_R: np.ndarray) -> list[Nearest]:
        candidates = np.flatnonzero(scores_R)
        best = candidates[np.argsort(-scores_R[candidates], kind="stable")[:TOP]].tolist()
        scores = [Nearest(self._overlap(terms, self._rows[row][1]), self._rows[row][0]) for row in best]
        return sorted(scores, key=lambda near: -near.score)

    def _overlap(self, terms: list[str], chunk: list[str]) -> float:
        """F1 of the distinct words and pairs of neighbours, in the window of the row that fits best."""
        item_weights = self._features(terms)
        item_total = math.fsum(item_weights.values())
        size = max(int(WINDOW * len(terms)), 8)
        best = 0.0
        for start in range(0, max(len(chunk) - size, 0) + 1, max(size // 4, 1)):
            weights = self._features(chunk[start : start + size])
            shared = math.fsum(weight for feature, weight in item_weights.items() if feature in weights)
            total = item_total + min(math.fsum(weights.values()), 2 * item_total)
            best = max(best, 2 * shared / total if total else 0.0)
        return best

    def _features(self, terms: Sequence[str]) -> dict[object, float]:
        """Words and pairs of neighbours with their weights; a paraphrase keeps few of the pairs."""
        rarities = {term: self._rarity(term) for term in terms}
        weights: dict[object, float] = {}
        weights.update(rarities)
        weights.update({(a, b): PAIR_WEIGHT * (rarities[a] + rarities[b]) / 2 for a, b in pairwise(terms)})
        return weights

    def _rarity(self, term: str) -> float:
        """BM25's idf; a term that no row has weighs as one that a single row has."""
        n_rows_with = max(self._n_rows_with[term], 1)
        return math.log1p((len(self._rows) - n_rows_with + 0.5) / (n_rows_with + 0.5))

    def _weights(self) -> sparse.csr_matrix:
        """BM25 weights, terms x rows."""
        n_rows, n_terms = len(self._rows), len(self._ids)
        lengths_R = np.array([len(chunk) for _, chunk in self._rows], dtype=float)
        rows = np.repeat(np.arange(n_rows), [len(counts) for counts in self._counts])
        terms = np.fromiter((term for counts in self._counts for term in counts), dtype=np.int64)
        frequencies = np.fromiter((n for counts in self._counts for n in counts.values()), dtype=float)
        rarity_T = np.array([self._rarity(term) for term in self._ids])
        norms = K1 * (1 - B + B * lengths_R[rows] / lengths_R.mean())
        weights = rarity_T[terms] * frequencies * (K1 + 1) / (frequencies + norms)
        return sparse.csr_matrix((weights, (terms, rows)), shape=(n_terms, n_rows))

    def _term_matrix(self, batch: Iterable[list[str]]) -> sparse.csr_matrix:
        """1 for each distinct term of each item: items x terms."""
        id_lists = [sorted({self._ids[term] for term in terms}) for terms in batch]
        rows = np.repeat(np.arange(len(id_lists)), [len(ids) for ids in id_lists])
        columns = np.fromiter((term for ids in id_lists for term in ids), dtype=np.int64)
        return sparse.csr_matrix((np.ones(len(columns)), (rows, columns)), shape=(len(id_lists), len(self._ids)))


def terms_of(text: str) -> list[str]:
    """The words of a text as retrieval compares them."""
    return [_term(word) for word in normalized_words(text)]


@lru_cache(maxsize=1 << 18)
def _term(word: bytes) -> str:
    """A word without its English ending, or its number: what a paraphrase keeps of it."""
    term = word.decode()
    if term in NUMBERS:
        return NUMBERS[term]
    if len(term) < 4 or not term.isalpha():
        return term
    ending = next((end for end in _ENDINGS if term.endswith(end) and len(term) - len(end) >= 3), "")
    stem = term.removesuffix(ending) if not term.endswith("ss") else term
    if len(stem) > 3 and stem[-1] == stem[-2]:
        stem = stem[:-1]
    return stem.rstrip("eiy") if len(stem) > 3 else stem
