"""What several attempts at each item show, from a card: pass@1, pass@k, pass^k, majority@k and best-of-n, kept apart.

pass@k says how good a model is at being tried often; a product that asks once gets pass@1. So the first never
stands here without the second, and what the search costs for each point stands beside it. What cannot be computed
says why. A majority is one of extracted answers (`Score.extracted`), never of whole completions: two ways to 18 are two
votes for 18. Does NOT tell latency: seconds are on the card and never the same twice.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from agent2.errors import NotEnoughData
from agent2.records import ScoredRollout
from agent2.stats.attempts import (
    BestOfN,
    CostPerPoint,
    PassMetrics,
    best_of_n,
    cost_per_point,
    majority_at_k,
    pass_metrics,
    tally,
)
from agent2.stats.measure import Measure

SELECTOR_VIEWS = ("reward", "verifier")
"""Views of a score that may choose among attempts; the score itself may not, it is the truth."""


@dataclass(frozen=True, slots=True)
class AttemptMetrics:
    """Several attempts of one checkpoint on one benchmark."""

    k: int
    passes: PassMetrics | None
    majority: Measure | None
    best: BestOfN | None
    cost: CostPerPoint | None
    """Of pass@k over pass@1, tokens and scorings."""
    gaps: tuple[str, ...]
    """Why something is None, one sentence each."""


def attempt_metrics(records: Iterable[ScoredRollout]) -> AttemptMetrics | None:
    """The metrics of a card's rollouts; None if no item was attempted more than once."""
    by_item: dict[str, list[ScoredRollout]] = {}
    for record in records:
        by_item.setdefault(record.rollout.item_id, []).append(record)
    rows_I = [sorted(by_item[item], key=lambda one: one.rollout.attempt) for item in sorted(by_item)]
    k = max((len(row) for row in rows_I), default=0)
    if k < 2:
        return None
    values = [one.score.value for row in rows_I for one in row]
    if any(value not in (None, 0.0, 1.0) for value in values):
        gap = "scores are graded, not right or wrong, so there is no chance that one of several attempts is right"
        return AttemptMetrics(k, None, None, None, None, (gap,))
    solved_IA = [[one.score.value for one in row] for row in rows_I]
    gaps: list[str] = []
    passes = _or_gap(lambda: pass_metrics(tally(solved_IA), k), f"pass@{k}", gaps)
    majority = _majority(rows_I, solved_IA, k, gaps)
    best = _best(rows_I, solved_IA, k, gaps)
    return AttemptMetrics(k, passes, majority, best, _cost(passes, rows_I), tuple(gaps))


def _majority(
    rows_I: list[list[ScoredRollout]], solved_IA: list[list[float | None]], k: int, gaps: list[str]
) -> Measure | None:
    answers_IA = [[one.score.extracted for one in row] for row in rows_I]
    if not any(answer is not None for row in answers_IA for answer in row):
        gaps.append(f"majority@{k}: the scorer read no final answer from any attempt, so nothing can be voted on")
        return None
    return _or_gap(lambda: majority_at_k(answers_IA, solved_IA, k), f"majority@{k}", gaps)


def _best(
    rows_I: list[list[ScoredRollout]], solved_IA: list[list[float | None]], k: int, gaps: list[str]
) -> BestOfN | None:
    for view in SELECTOR_VIEWS:
        scores_IA = [[one.score.views.get(view) for one in row] for row in rows_I]
        if any(score is not None for row in scores_IA for score in row):
            return _or_gap(lambda: best_of_n(solved_IA, scores_IA, k, view), f"best-of-{k}", gaps)  # noqa: B023
    gaps.append(f"best-of-{k}: no rollout has a view named {' or '.join(SELECTOR_VIEWS)} that could choose")
    return None


def _cost(passes: PassMetrics | None, rows_I: list[list[ScoredRollout]]) -> CostPerPoint | None:
    """What the attempts beyond the first cost for each point that pass@k is above pass@1."""
    if passes is None:
        return None
    tokens_I = [
        sum(one.rollout.usage.prompt_tokens + one.rollout.usage.completion_tokens for one in row)
        * (len(row) - 1)
        / len(row)
        for row in rows_I
    ]
    return cost_per_point(
        passes.pass_at_1.value, passes.pass_at_k.value, tokens_I, [float(len(row)) for row in rows_I], []
    )


ResultT = TypeVar("ResultT")


def _or_gap(compute: Callable[[], ResultT], what: str, gaps: list[str]) -> ResultT | None:
    try:
        return compute()
    except (NotEnoughData, ValueError) as error:
        gaps.append(f"{what}: {error}")
        return None
