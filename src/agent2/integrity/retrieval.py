"""Paraphrased and partial leaks: the nearest training rows to each item, and how much of the item they hold.

Rows are ranked by BM25 (Robertson & Zaragoza 2009, k1 1.2, b 0.75); the best few are compared with the item by the F1
of their words and word pairs, weighted by rarity, in the window of the row that fits best (retrieval overlap as in
Deng et al. 2024, arXiv:2311.09783). A score of 1 is the item itself, 0 nothing in common.

A score says little alone: items of one kind resemble each other. `leaks` compares with items that nobody was asked.
Does NOT find translations, or paraphrases that share no words.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from agent2.integrity.ngrams import words_of
from agent2.integrity.texts import Unit

K1 = 1.2
B = 0.75
TOP = 4
"""Rows that are compared with an item."""
MAX_ROWS = 100_000
WINDOW = 2.0
"""Of a long row, a stretch of this many times the item's words is compared."""
CHUNK_WORDS = 400
"""Longer units are cut, so that a whole file is not one row."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The row that holds most of an item."""

    score: float
    """F1 of rarity-weighted words and pairs, 0 to 1."""
    where: str


class Retrieval:
    """Rows that may have been trained on, searched by items."""

    def __init__(self, items: Sequence[str]) -> None:
        """items: texts of everything that will be asked for; other words are not kept."""
        self._items = [words_of(text) for text in items]
        self._terms = {word: index for index, word in enumerate(sorted({w for words in self._items for w in words}))}
        self._rows: list[tuple[str, list[bytes]]] = []
        self._counts: list[Counter[int]] = []
        self.n_left_out = 0
        """Rows beyond `MAX_ROWS`."""

    def add(self, unit: Unit) -> None:
        """Take in one unit."""
        words = words_of(unit.text)
        for start in range(0, len(words), CHUNK_WORDS):
            chunk = words[start : start + CHUNK_WORDS]
            counts = Counter(self._terms[word] for word in chunk if word in self._terms)
            if not counts:
                continue
            if len(self._rows) >= MAX_ROWS:
                self.n_left_out += 1
                continue
            self._rows.append((unit.where, chunk))
            self._counts.append(counts)

    def nearest(self) -> list[Nearest]:
        """For each item, in order, the row that holds most of it."""
        if not self._rows:
            return [Nearest(0.0, "") for _ in self._items]
        matrix, rarity = self._weights()
        found = []
        for start in range(0, len(self._items), 64):
            batch = self._items[start : start + 64]
            scores_IR = self._asked(batch) @ matrix
            for row, words in enumerate(batch):
                found.append(self._best(words, np.asarray(scores_IR[[row]].todense()).ravel(), rarity))
        return found

    def _best(self, words: list[bytes], scores_R: np.ndarray, rarity: np.ndarray) -> Nearest:
        alike = np.flatnonzero(scores_R)
        best = Nearest(0.0, "")
        for row in alike[np.argsort(-scores_R[alike], kind="stable")[:TOP]].tolist():
            where, chunk = self._rows[row]
            score = self._overlap(words, chunk, rarity)
            if score > best.score:
                best = Nearest(score, where)
        return best

    def _overlap(self, words: list[bytes], chunk: list[bytes], rarity: np.ndarray) -> float:
        wanted = self._features(words, rarity)
        size = max(int(WINDOW * len(words)), 8)
        best = 0.0
        for start in range(0, max(len(chunk) - size, 0) + 1, max(size // 4, 1)):
            own = self._features(chunk[start : start + size], rarity)
            shared = sum(min(weight, own[feature]) for feature, weight in wanted.items() if feature in own)
            total = sum(wanted.values()) + min(sum(own.values()), 2 * sum(wanted.values()))
            best = max(best, 2 * shared / total if total else 0.0)
        return best

    def _features(self, words: Sequence[bytes], rarity: np.ndarray) -> dict[object, float]:
        """Words and pairs with their weights; a word that no item has weighs as the rarest one."""
        weights: dict[object, float] = {}
        unknown = float(rarity.max(initial=1.0))
        single = [float(rarity[self._terms[word]]) if word in self._terms else unknown for word in words]
        for word, weight in zip(words, single, strict=True):
            weights[word] = weights.get(word, 0.0) + weight
        for left, right, one, other in zip(words, words[1:], single, single[1:], strict=False):
            weights[left, right] = weights.get((left, right), 0.0) + (one + other) / 2
        return weights

    def _weights(self) -> tuple[sparse.csr_matrix, np.ndarray]:
        """BM25 weights, terms x rows, and the rarity (idf) of each term."""
        n_rows, n_terms = len(self._rows), len(self._terms)
        lengths_R = np.array([len(chunk) for _, chunk in self._rows], dtype=float)
        rows = np.repeat(np.arange(n_rows), [len(counts) for counts in self._counts])
        terms = np.fromiter((term for counts in self._counts for term in counts), dtype=np.int64)
        frequency = np.fromiter((n for counts in self._counts for n in counts.values()), dtype=float)
        seen_in = np.bincount(terms, minlength=n_terms)
        rarity = np.log1p((n_rows - seen_in + 0.5) / (seen_in + 0.5))
        norm = K1 * (1 - B + B * lengths_R[rows] / lengths_R.mean())
        weight = rarity[terms] * frequency * (K1 + 1) / (frequency + norm)
        return sparse.csr_matrix((weight, (terms, rows)), shape=(n_terms, n_rows)), rarity

    def _asked(self, batch: Iterable[list[bytes]]) -> sparse.csr_matrix:
        lists = [sorted({self._terms[word] for word in words}) for words in batch]
        rows = np.repeat(np.arange(len(lists)), [len(terms) for terms in lists])
        columns = np.fromiter((term for terms in lists for term in terms), dtype=np.int64)
        return sparse.csr_matrix((np.ones(len(columns)), (rows, columns)), shape=(len(lists), len(self._terms)))
