"""The LLM budget of a trial: reserved before each call, settled after it.

A call begins only if what is spent, what is reserved for calls under way and what it may need itself fit
together. What a call may need is an estimate from above (see `Ledger.estimate`); a call that needed more is
charged what it needed, so the budget can be passed by the excess of the calls under way, never by a further
call.

All methods are called from one event loop, and none of them waits, so no two calls can take the same tokens.
"""

import math
from dataclasses import dataclass

from agent2.arena.gateway.prices import PriceTable
from agent2.arena.gateway.settings import TokenCounts

FIRST_RATIO = 0.5
"""Tokens a byte that the first call is taken to have; text in English, code and JSON have 0.2 to 0.35."""
MARGIN = 1.5
"""Over the most tokens a byte that a call of this trial had."""
SMALL = 2_000
"""Bytes below which a request says nothing about tokens a byte."""


def tokens_in(n_bytes: int) -> int:
    """Tokens of a text of so many bytes, estimated from above."""
    return math.ceil(n_bytes * FIRST_RATIO)


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens and dollars, reserved or spent."""

    tokens: TokenCounts
    dollars: float | None
    """None: unknown price."""


def nothing() -> Charge:
    """No tokens, no dollars."""
    return Charge(TokenCounts(), 0.0)


class Ledger:
    """What is left of the budget."""

    def __init__(self, max_tokens: int | None, max_dollars: float | None, prices: PriceTable):
        self._max_tokens = max_tokens
        self._max_dollars = max_dollars
        self._prices = prices
        self._spent_tokens = 0
        self._spent_dollars = 0.0
        self._open: dict[int, Charge] = {}
        self._tokens_per_byte: float | None = None

    def estimate(self, model: str, n_bytes: int, output_tokens: int) -> Charge:
        """What a request may need.

        Input: half a token a byte for the first call; later ones take the most tokens a byte seen so far, and half
        as much again. Never more than a token a byte, because no tokenizer makes more.
        """
        ratio = FIRST_RATIO if self._tokens_per_byte is None else min(1.0, self._tokens_per_byte * MARGIN)
        tokens = TokenCounts(input=math.ceil(n_bytes * ratio), output=output_tokens)
        return Charge(tokens, self._prices.cost(model, tokens))

    def learn(self, n_bytes: int, input_tokens: int) -> None:
        """Take note of how many tokens a request had."""
        if n_bytes >= SMALL and input_tokens > 0:
            self._tokens_per_byte = max(self._tokens_per_byte or 0.0, input_tokens / n_bytes)

    def refusal(self, charge: Charge, *, alone: bool) -> str | None:
        """Why a call does not fit, or None.

        alone: leave out what is reserved for other calls, which may need less in the end.
        """
        others = [] if alone else list(self._open.values())
        tokens = self._spent_tokens + sum(other.tokens.total for other in others)
        dollars = self._spent_dollars + sum(other.dollars or 0.0 for other in others)
        if self._max_tokens is not None and tokens + charge.tokens.total > self._max_tokens:
            return (
                f"the trial's LLM budget of {self._max_tokens} tokens is spent: {tokens} are used, "
                f"and this call may need {charge.tokens.total}"
            )
        if self._max_dollars is not None:
            need = charge.dollars or 0.0
            if dollars + need > self._max_dollars:
                return (
                    f"the trial's LLM budget of ${self._max_dollars:.4f} is spent: ${dollars:.4f} are used, "
                    f"and this call may need ${need:.4f}"
                )
        return None

    def reserve(self, call: int, charge: Charge) -> None:
        """Take what a call may need."""
        self._open[call] = charge

    def settle(self, call: int, charge: Charge) -> None:
        """Give back what was reserved and charge what was spent."""
        self._open.pop(call, None)
        self.add(charge)

    def add(self, charge: Charge) -> None:
        """Charge what was spent, by a call of an earlier process too."""
        self._spent_tokens += charge.tokens.total
        self._spent_dollars += charge.dollars or 0.0
