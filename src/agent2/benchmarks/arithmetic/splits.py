"""Who may see which expression.

Every canonical expression falls into one of three pools by a public hash: `hidden` (4 of 12), `dev` (1)
and `train` (7, also the only source of the pre-training corpus). So nothing visible ever shows a hidden
expression, and a list of all visible items says nothing about which ones are asked.

Hidden items are drawn from the hidden pool with a stream of seeds keyed by HMAC(installation secret), and
a keyed bit of each expression decides between `test_public` and `test_private`. Without the secret one
knows the pool, not the choice; at the difficulty of the arena's task the pool holds about five times as
many expressions as the two hidden splits use.

Does NOT keep an agent from practising on the whole space of expressions: with operands up to 99 it is
small enough to be covered, which would be learning arithmetic by exhaustion, not knowing the test.
"""

import hashlib
import hmac
from collections.abc import Iterator
from enum import StrEnum
from itertools import count

from agent2.benchmarks.arithmetic.expressions import Difficulty, Expression, canonical, generate
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, Split, derive_seed

POOL_VERSION = "arithmetic-pools-1"
_MAX_BARREN_DRAWS = 20_000
"""So many draws without a new expression mean that the split is used up."""


class Pool(StrEnum):
    """The part of all expressions that a split draws from."""

    TRAIN = "train"
    DEV = "dev"
    HIDDEN = "hidden"


def pool_of(canonical_text: str) -> Pool:
    """The pool of an expression, by a public hash of its canonical text."""
    digest = hashlib.sha256(f"{POOL_VERSION}\0{canonical_text}".encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 12
    if bucket < 4:
        return Pool.HIDDEN
    return Pool.DEV if bucket == 4 else Pool.TRAIN


def distinct_expressions(split: Split, difficulty: Difficulty, secret: bytes | None) -> Iterator[Expression]:
    """The expressions of a split in their fixed order, each canonical text once.

    Ends when the split is used up. Raises ConfigError if a hidden split is asked for without the secret.
    """
    if split in HIDDEN_SPLITS and not secret:
        raise ConfigError(
            f"split {split.value!r} of arithmetic is hidden and needs the installation secret; "
            "only the grader may ask for it"
        )
    seen: set[str] = set()
    barren = 0
    for seed in _seeds(split, secret):
        expression = generate(seed, difficulty)
        text = canonical(expression)
        if text in seen or not _belongs(text, split, secret):
            barren += 1
            if barren >= _MAX_BARREN_DRAWS:
                return
            continue
        seen.add(text)
        barren = 0
        yield expression


def item_id(canonical_text: str, split: Split, secret: bytes | None) -> str:
    """A stable id; that of a hidden item is keyed, so that a list of ids tells nobody the expressions."""
    message = f"arithmetic item\0{canonical_text}".encode()
    if split in HIDDEN_SPLITS and secret:
        return "arithmetic-" + hmac.new(secret, message, hashlib.sha256).hexdigest()[:16]
    return "arithmetic-" + hashlib.sha256(message).hexdigest()[:16]


def _seeds(split: Split, secret: bytes | None) -> Iterator[int]:
    for index in count():
        if split in HIDDEN_SPLITS and secret:
            digest = hmac.new(secret, f"arithmetic draw\0{split.value}\0{index}".encode(), hashlib.sha256).digest()
            yield int.from_bytes(digest[:16], "big")
        else:
            yield derive_seed("arithmetic draw", split.value, index)


def _belongs(canonical_text: str, split: Split, secret: bytes | None) -> bool:
    pool = pool_of(canonical_text)
    if split is Split.TRAIN:
        return pool is Pool.TRAIN
    if split is Split.DEV:
        return pool is Pool.DEV
    if pool is not Pool.HIDDEN or not secret:
        return False
    keyed = hmac.new(secret, f"arithmetic side\0{canonical_text}".encode(), hashlib.sha256).digest()
    return (keyed[0] & 1 == 0) == (split is Split.TEST_PUBLIC)
