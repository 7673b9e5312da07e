"""Metrics of preferences: win rate with ties as half, reward-model accuracy over pairs and segments.

Promises: a tie counts as half, and how many there were is told; a pair without a judgement (None or NaN) is left
out and counted. Does NOT correct for length or order of the answers: that is done when they are judged.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from agent2.stats.measure import Measure, Values, measure, same_length, with_gaps


@dataclass(frozen=True, slots=True)
class WinRate:
    """How often one side is preferred, ties counted as half."""

    rate: Measure
    n_wins: int
    n_ties: int
    n_losses: int

    def __str__(self) -> str:
        return f"{self.rate}, {self.n_wins} won, {self.n_ties} tied, {self.n_losses} lost"


def win_rate(outcomes: Values) -> WinRate:
    """Mean outcome of the pairs: 1 where a wins, 0.5 where they tie, 0 where b wins.

    outcomes: one for each independent pair (average both orders of a pair first: 0.25 and 0.75 then say that
    one order won or lost and the other tied). Values above 0.5 are counted as wins, below as losses. Range
    0-1; swapping the sides gives one minus it. Without ties the interval is Wilson's. Raises ValueError
    outside 0-1, NotEnoughData if nothing is there.
    """
    rate = measure(outcomes, "win rate", (0.0, 1.0))
    vector = with_gaps(outcomes, "win rate")
    return WinRate(rate, *(int(np.count_nonzero(which)) for which in (vector > 0.5, vector == 0.5, vector < 0.5)))


def pairwise_accuracy(chosen: Values, rejected: Values) -> WinRate:
    """How often a reward model scores the chosen answer of a pair above the rejected one; equal scores are half.

    chosen, rejected: one score of any size and sign for each pair. A scorer that says the same of everything
    gets 0.5, as chance does; benchmarks that count a tie as wrong are `n_wins` over all pairs. Raises
    ValueError if the lengths differ, NotEnoughData if no pair has both scores.
    """
    left, right = with_gaps(chosen, "chosen scores"), with_gaps(rejected, "rejected scores")
    same_length("pairwise accuracy", chosen=left, rejected=right)
    return win_rate((np.sign(left - right) + 1.0) / 2.0)


def segment_accuracy(chosen: Values, rejected: Values, segments: Sequence[Hashable]) -> dict[Hashable, WinRate | None]:
    """Pairwise accuracy within each segment (skill, domain, language), in the order of first mention.

    None for a segment of which no pair has both scores. Raises as `pairwise_accuracy`.
    """
    left, right = with_gaps(chosen, "chosen scores"), with_gaps(rejected, "rejected scores")
    same_length("segment accuracy", chosen=left, rejected=right)
    if len(segments) != left.size:
        raise ValueError(f"{left.size} pairs have {len(segments)} segments; give one for each pair")
    found: dict[Hashable, WinRate | None] = {}
    for segment in dict.fromkeys(segments):
        here = np.fromiter((name == segment for name in segments), dtype=np.bool_, count=left.size)
        judged = bool(np.any(~np.isnan(left[here] - right[here])))
        found[segment] = pairwise_accuracy(left[here], right[here]) if judged else None
    return found
