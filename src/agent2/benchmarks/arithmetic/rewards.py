"""Rewards for an answer in text: exact, and continuous for those who want a slope.

The benchmark's score is the exact one; the continuous reward is for training and for reward-control runs.
"""

from fractions import Fraction

from agent2.errors import ConfigError
from agent2.scorers.answers import parse_rational

_EPSILON = Fraction(1, 10**8)


def verify(answer: str, reference: str) -> float:
    """1.0 if the answer is the reference as a rational number, else 0.0.

    Raises ConfigError if the reference is not a number.
    """
    given = parse_rational(answer)
    expected = _expected(reference)
    return 1.0 if given is not None and given == expected else 0.0


def continuous_reward(answer: str, reference: str) -> float:
    """Between 0 and 1, more the nearer: 1 - 0.5 min(|a-b|, 1) - 0.5 min(|a-b| / (|b| + eps), 1).

    a is the answer, b the reference; an answer that is not a number gets 0. Raises ConfigError as `verify`.
    Source: RandomCalculation ("Reasoning or Memorization?"), its continuous reward.
    """
    given = parse_rational(answer)
    expected = _expected(reference)
    if given is None:
        return 0.0
    distance = abs(given - expected)
    relative = distance / (abs(expected) + _EPSILON)
    return float(1 - min(distance, Fraction(1)) / 2 - min(relative, Fraction(1)) / 2)


def _expected(reference: str) -> Fraction:
    value = parse_rational(reference)
    if value is None:
        raise ConfigError(f"reference {reference!r} is not one integer, fraction or decimal; correct the item")
    return value
