"""Ranking by brackets: one single-elimination tournament a prompt, pooled to Bradley-Terry strengths.

On each prompt the models are shuffled into a bracket; with N models that takes N - 1 judgements instead of the
N (N - 1) / 2 of a round-robin, and strong models meet more often than weak ones.

Promises: the bracket and who is shown first are drawn afresh for each prompt; if N is not a power of two, randomly
drawn models skip the first round (a bye is not a match); a draw counts half for each and a coin decides who
goes on; so it does when the judge gives no score, and the match is counted as missing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agent2.errors import NotEnoughData
from agent2.stats.matches import Matches, collect_matches

Judge = Callable[[int, int, int], float | None]
"""Takes a prompt number and two model numbers in the order shown; returns the first one's share of the win (None or
NaN: no score)."""


@dataclass(frozen=True, slots=True, eq=False)
class Tournament:
    """The matches of all brackets, and what a round-robin on the same prompts would have cost."""

    matches: Matches
    """One group a prompt; hand them to `ranking.bradley_terry_bootstrap`."""
    n_prompts: int
    n_judgements: int
    """Matches asked of the judge, those without a score included."""
    n_round_robin: int
    """Judgements of a round-robin on the same prompts."""

    @property
    def cost_share(self) -> float:
        """Judgements as a share of the round-robin's: 2 / N."""
        return self.n_judgements / self.n_round_robin

    def __str__(self) -> str:
        return (
            f"{self.n_judgements} judgements of {self.matches.n_models} models (n={self.n_prompts} prompts, "
            f"{self.matches.n_missing} missing), {self.cost_share:.3f} of a round-robin's {self.n_round_robin}"
        )


def play_tournament(n_models: int, n_prompts: int, judge: Judge, rng: np.random.Generator) -> Tournament:
    """Play one bracket a prompt and pool the matches.

    Raises NotEnoughData for fewer than two models, no prompts or no score at all; ValueError if the judge
    returns a score outside 0-1.
    Source: Son et al. 2024 (Varco Arena), arXiv:2411.01281 (brackets as its abstract says; byes and draws are ours).
    """
    if n_models < 2 or n_prompts < 1:
        raise NotEnoughData(f"{n_models} models on {n_prompts} prompts make no tournament; 2 on 1 are needed")
    played = [row for prompt in range(n_prompts) for row in play_bracket(n_models, prompt, judge, rng)]
    matches = _pool(played, n_models)
    return Tournament(matches, n_prompts, len(played), n_prompts * n_models * (n_models - 1) // 2)


def play_round_robin(n_models: int, n_prompts: int, judge: Judge, rng: np.random.Generator) -> Matches:
    """Every pair once on every prompt, who is shown first drawn afresh: what a tournament is compared with."""
    if n_models < 2 or n_prompts < 1:
        raise NotEnoughData(f"{n_models} models on {n_prompts} prompts make no round-robin; 2 on 1 are needed")
    pairs = [(prompt, a, b) for prompt in range(n_prompts) for a in range(n_models) for b in range(a)]
    swapped = rng.random(len(pairs)) < 0.5
    shown = [(p, b, a) if swap else (p, a, b) for (p, a, b), swap in zip(pairs, swapped, strict=True)]
    return _pool([(*pair, judge(*pair)) for pair in shown], n_models)


Played = tuple[int, int, int, float | None]
"""Prompt, first, second, score of the first."""


def play_bracket(n_models: int, prompt: int, judge: Judge, rng: np.random.Generator) -> list[Played]:
    """The n_models - 1 matches of one prompt, in the order played. Raises NotEnoughData for fewer than two models."""
    if n_models < 2:
        raise NotEnoughData(f"{n_models} models make no bracket; at least 2 are needed")
    players = rng.permutation(n_models).tolist()
    n_byes = (1 << (n_models - 1).bit_length()) - n_models
    waiting, players = players[:n_byes], players[n_byes:]
    played: list[Played] = []
    while len(players) + len(waiting) > 1:
        winners = []
        for first, second in zip(players[::2], players[1::2], strict=True):
            score = judge(prompt, first, second)
            played.append((prompt, first, second, score))
            share = 0.5 if score is None or math.isnan(score) else score
            is_won = rng.random() < 0.5 if share == 0.5 else share > 0.5
            winners.append(first if is_won else second)
        players = rng.permutation(winners + waiting).tolist()  # also draws who is shown first next
        waiting = []
    return played


def _pool(played: list[Played], n_models: int) -> Matches:
    prompt, first, second, score = zip(*played, strict=True)
    scores = [np.nan if value is None else value for value in score]
    return collect_matches(first, second, scores, n_models, group=prompt)
