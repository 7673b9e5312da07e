"""Four disjoint splits for a benchmark whose items are drawn from a generator.

Every candidate has a canonical text (what must not be shared between splits, such as the question without its
wording). A public hash of it puts the candidate into one of three pools: `hidden` (4 of 12), `dev` (1) and `train`
(7, also the only source of pre-training corpora). Hidden splits draw from the hidden pool with seeds keyed by
HMAC(installation secret), and a keyed bit decides between `test_public` and `test_private`. So visible items never
show hidden content, and without the secret one knows the pool and not the choice.

Does NOT keep anybody from practising on the whole space of a generator that is small enough to be covered.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice
from typing import Generic, TypeVar

import numpy as np

from agent2.errors import ConfigError
from agent2.installation import guard_private
from agent2.records import HIDDEN_SPLITS, Split, derive_seed

T = TypeVar("T")


class Pool(StrEnum):
    """The part of all candidates that a split draws from."""

    TRAIN = "train"
    DEV = "dev"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """Where the candidates of one benchmark come from."""

    name: str
    """Of the benchmark; part of every hash."""
    draw: Callable[[np.random.Generator], T]
    canonical: Callable[[T], str]
    """What must not be shared between splits."""
    text: Callable[[T], str]
    """What the model is shown; no split has the same text twice."""
    pools: str = ""
    """Salt of the hash that gives the pool; empty: from the name."""
    max_barren_draws: int = 5_000
    """So many draws in a row without a new candidate mean that the split is used up."""

    def pool_of(self, candidate: T) -> Pool:
        """The pool of a candidate, by a public hash of its canonical text."""
        return pool_of_text(self.canonical(candidate), self.pools or f"{self.name} pools 1")

    def first(self, split: Split, n: int, secret: bytes | None) -> list[T]:
        """The first n candidates of a split, always the same ones for one secret.

        Raises ConfigError if a hidden split is asked for without the secret, or if the split has fewer.
        """
        if split is Split.TEST_PRIVATE and secret:
            guard_private(self.name, n, secret)
        found = list(islice(self.distinct(split, secret), n))
        if len(found) < n:
            raise ConfigError(
                f"{self.name}: {n} items of split {split.value!r} were asked for, there are {len(found)}; ask for fewer"
            )
        return found

    def train_draws(self, rng: np.random.Generator) -> Iterator[T]:
        """Endless candidates of the train pool, with repetition: the source of pre-training corpora."""
        while True:
            candidate = self.draw(rng)
            if self.pool_of(candidate) is Pool.TRAIN:
                yield candidate

    def item_id(self, candidate: T, split: Split, secret: bytes | None) -> str:
        """A stable id; that of a hidden item is keyed, so that a list of ids reveals no items."""
        return keyed_id(self.name, self.text(candidate), split, secret)

    def distinct(self, split: Split, secret: bytes | None) -> Iterator[T]:
        """The candidates of a split in their fixed order, each text once; ends when the split is used up.

        Raises ConfigError if a hidden split is asked for without the secret.
        """
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError(
                f"split {split.value!r} of {self.name} is hidden and needs the installation secret; "
                "only the grader may ask for it"
            )
        seen: set[str] = set()
        barren = 0
        for index in count():
            candidate = self.draw(np.random.default_rng(self._seed(split, index, secret)))
            if not self._belongs(candidate, split, secret) or (text := self.text(candidate)) in seen:
                barren += 1
                if barren >= self.max_barren_draws:
                    return
                continue
            seen.add(text)
            barren = 0
            yield candidate

    def _seed(self, split: Split, index: int, secret: bytes | None) -> int:
        if split in HIDDEN_SPLITS and secret:
            digest = hmac.new(secret, f"{self.name} draw\0{split.value}\0{index}".encode(), hashlib.sha256).digest()
            return int.from_bytes(digest[:16], "big")
        return derive_seed(f"{self.name} draw", split.value, index)

    def _belongs(self, candidate: T, split: Split, secret: bytes | None) -> bool:
        pool = self.pool_of(candidate)
        if split is Split.TRAIN:
            return pool is Pool.TRAIN
        if split is Split.DEV:
            return pool is Pool.DEV
        if pool is not Pool.HIDDEN or not secret:
            return False
        side = hmac.new(secret, f"{self.name} side\0{self.canonical(candidate)}".encode(), hashlib.sha256).digest()
        return (side[0] & 1 == 0) == (split is Split.TEST_PUBLIC)


def pool_of_text(canonical_text: str, salt: str) -> Pool:
    """The pool of a canonical text."""
    digest = hashlib.sha256(f"{salt}\0{canonical_text}".encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 12
    if bucket < 4:
        return Pool.HIDDEN
    return Pool.DEV if bucket == 4 else Pool.TRAIN


def keyed_id(name: str, text: str, split: Split, secret: bytes | None) -> str:
    """An id from a text; keyed for a hidden split."""
    message = f"{name} item\0{text}".encode()
    if split in HIDDEN_SPLITS and secret:
        return f"{name}-{hmac.new(secret, message, hashlib.sha256).hexdigest()[:16]}"
    return f"{name}-{hashlib.sha256(message).hexdigest()[:16]}"
