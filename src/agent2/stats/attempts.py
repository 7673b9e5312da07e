"""Metrics of several attempts at each item: pass@k, pass^k, majority vote, best-of-n and what the search costs.

Promises: every value is the exact average over all ways to draw k of an item's n attempts without replacement, so none
depends on the order of attempts and none needs a generator; averages are over items, never over pooled attempts. An
attempt without a verdict or selector score (None or NaN) is left out; an item with fewer than k attempts left is left
out of that metric; both are counted, neither is zero. Does NOT decide when two answers are the same: the caller writes
them in one form.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import (
    COUNTS,
    UNIT,
    Estimate,
    Values,
    finite_vector,
    measure,
    require_same_length,
    with_gaps,
)

NO_ROOM = 1e-12
"""Gains below this are float noise."""


def pass_at_k_by_item(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> NDArray[np.float64]:
    """For each item, the chance that at least one of k attempts drawn without replacement is correct.

    n_correct_I, n_samples_I: correct and all attempts at each item; the numbers of attempts may differ.
    Unbiased: 1 - C(n-c, k) / C(n, k). Raises NotEnoughData if an item has fewer than k attempts, ValueError
    for counts that cannot be.
    Source: Chen et al. 2021, arXiv:2107.03374, eq. 1.
    """
    correct = finite_vector(n_correct_I, "n_correct_I")
    samples = finite_vector(n_samples_I, "n_samples_I")
    if correct.shape != samples.shape:
        raise ValueError(f"n_correct_I has {correct.size} items, n_samples_I {samples.size}; they must match")
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    if np.any(correct < 0) or np.any(correct > samples) or np.any(correct % 1) or np.any(samples % 1):
        raise ValueError("n_correct_I must be whole numbers between 0 and n_samples_I")
    short = int(np.count_nonzero(samples < k))
    if short:
        raise NotEnoughData(f"pass@{k} needs {k} attempts at each item; {short} of {samples.size} items have fewer")
    none_correct = np.ones_like(samples)
    for n_drawn in range(k):  # C(n-c, k) / C(n, k) as a product of ratios: no large factorials
        none_correct *= np.maximum(samples - correct - n_drawn, 0.0) / (samples - n_drawn)
    return 1.0 - none_correct


def pass_at_k(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> float:
    """pass@k averaged over items; see `pass_at_k_by_item`."""
    return float(pass_at_k_by_item(n_correct_I, n_samples_I, k).mean())


@dataclass(frozen=True, slots=True)
class AttemptTally:
    """How often each item was solved."""

    n_correct_I: NDArray[np.int64]
    n_samples_I: NDArray[np.int64]
    """Judged attempts."""
    n_missing: int
    """Attempts without a verdict, over all items."""


@dataclass(frozen=True, slots=True)
class PassMetrics:
    """pass@1 next to what k attempts add and what they show of reliability; never pass@k alone."""

    k: int
    pass_at_1: Estimate
    pass_at_k: Estimate
    pass_hat_k: Estimate

    def __str__(self) -> str:
        return f"pass@1 {self.pass_at_1}; pass@{self.k} {self.pass_at_k}; pass^{self.k} {self.pass_hat_k}"


def tally(solved_IA: ArrayLike | Sequence[Sequence[float | None]]) -> AttemptTally:
    """Counts of solved and judged attempts.

    solved_IA: items x attempts, 1 or True where solved, None or NaN where there is no verdict; rows may differ
    in length. Raises NotEnoughData without items, ValueError for a verdict other than 0 or 1.
    """
    array = np.asarray(solved_IA) if isinstance(solved_IA, np.ndarray) else None
    if array is None or array.ndim != 2:
        rows = [verdicts(row) for row in cast(Sequence[Sequence[float | None]], solved_IA)]
        n_samples = np.array([np.count_nonzero(~np.isnan(row)) for row in rows], dtype=np.int64)
        n_correct = np.array([np.nansum(row) for row in rows], dtype=np.int64)
        n_missing = sum(row.size for row in rows) - int(n_samples.sum())
    elif array.dtype == np.bool_:
        n_correct = np.count_nonzero(array, axis=1).astype(np.int64)
        n_samples, n_missing = np.full(array.shape[0], array.shape[1], dtype=np.int64), 0
    else:
        solved = verdicts(array.ravel()).reshape(array.shape)
        is_judged = ~np.isnan(solved)
        n_samples = np.count_nonzero(is_judged, axis=1).astype(np.int64)
        n_correct = np.nansum(solved, axis=1).astype(np.int64)
        n_missing = int(array.size - n_samples.sum())
    if n_samples.size == 0:
        raise NotEnoughData("no items; at least one item with attempts is needed")
    return AttemptTally(n_correct, n_samples, n_missing)


def pass_hat_k_by_item(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> NDArray[np.float64]:
    """For each item, the chance that all of k attempts drawn without replacement are correct: pass^k.

    Unbiased: C(c, k) / C(n, k), which is one minus pass@k of the failures. 0 when c < k. Raises as
    `pass_at_k_by_item`.
    Source: Yao et al. 2024 (tau-bench), as generally known; not checked against the paper.
    """
    correct, samples = np.asarray(n_correct_I, dtype=np.float64), np.asarray(n_samples_I, dtype=np.float64)
    if correct.shape != samples.shape:
        raise ValueError(f"n_correct_I has {correct.size} items, n_samples_I {samples.size}; they must match")
    return 1.0 - pass_at_k_by_item(samples - correct, samples, k)


def pass_hat_k(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> float:
    """pass^k averaged over items; see `pass_hat_k_by_item`."""
    return float(pass_hat_k_by_item(n_correct_I, n_samples_I, k).mean())


def pass_metrics(counted: AttemptTally, k: int) -> PassMetrics:
    """pass@1, pass@k and pass^k with intervals over items.

    counted: see `tally`. Items with fewer than k judged attempts are left out of the two k-metrics and counted
    in their n_missing; items without any, also of pass@1. Raises NotEnoughData when no item has k.
    """
    return PassMetrics(
        k,
        measure(_by_item(counted, 1, pass_at_k_by_item), "pass@1", UNIT),
        measure(_by_item(counted, k, pass_at_k_by_item), f"pass@{k}", UNIT),
        measure(_by_item(counted, k, pass_hat_k_by_item), f"pass^{k}", UNIT),
    )


def verdicts(values: Values) -> NDArray[np.float64]:
    """0, 1 or NaN (no verdict) for each attempt. Raises ValueError for anything else."""
    vector = with_gaps(values, "solved_IA")
    if not bool(np.all(np.isnan(vector) | (vector == 0.0) | (vector == 1.0))):
        raise ValueError("solved_IA must hold 0 or 1 for each attempt (None where there is no verdict)")
    return vector


def _by_item(
    counted: AttemptTally, k: int, metric: Callable[[ArrayLike, ArrayLike, int], NDArray[np.float64]]
) -> NDArray[np.float64]:
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    values = np.full(counted.n_samples_I.size, np.nan)
    enough = counted.n_samples_I >= k
    if enough.any():
        values[enough] = metric(counted.n_correct_I[enough], counted.n_samples_I[enough], k)
    return values


@dataclass(frozen=True, slots=True)
class BestOfN:
    """What a selector makes of n attempts, between one attempt and a perfect selector."""

    selector: str
    n_attempts: int
    chosen: Estimate
    """Success of the attempt that the selector puts first."""
    pass_at_1: float
    """On the same items."""
    oracle: float
    """pass@n on the same items."""

    @property
    def gain(self) -> float:
        """What selecting adds to one attempt; below 0 the selector prefers bad answers."""
        return self.chosen.value - self.pass_at_1

    @property
    def share_of_oracle(self) -> float | None:
        """Gain over the gain of a perfect selector; None when nothing can be gained."""
        room = self.oracle - self.pass_at_1
        return self.gain / room if room > NO_ROOM else None

    def __str__(self) -> str:
        share = "" if self.share_of_oracle is None else f", {self.share_of_oracle:.0%} of the oracle's gain"
        return f"best-of-{self.n_attempts} by {self.selector} {self.chosen}, {self.gain:+.4f} over one attempt{share}"


@dataclass(frozen=True, slots=True)
class CostPerPoint:
    """What one percentage point of improvement by search costs; None: not recorded, or no improvement."""

    points: float
    """Improvement in percentage points."""
    tokens: float | None
    verifier_calls: float | None
    latency_s: float | None
    n: int
    """Items."""
    n_missing: Mapping[str, int]
    """Name of the resource -> items without a record of it, left out of its mean."""

    def __str__(self) -> str:
        if self.points <= NO_ROOM:
            return f"{self.points:+.1f} points: nothing gained for the extra cost"
        costs = ", ".join(self._cost_text(name) for name in self.n_missing)
        return f"{self.points:+.1f} points; for each point and item: {costs} (n={self.n} items)"

    def _cost_text(self, name: str) -> str:
        cost, unit = getattr(self, name), {"latency_s": "s latency"}.get(name, name.replace("_", " "))
        missing = f" ({self.n_missing[name]} missing)" if self.n_missing[name] else ""
        return f"{unit} not recorded" if cost is None else f"{cost:.4g} {unit}{missing}"


def majority_at_k(
    answers_IA: Sequence[Sequence[Hashable | None]], solved_IA: Sequence[Sequence[float | None]], k: int
) -> Estimate:
    """Chance that the most frequent answer among k attempts is correct, averaged over items.

    answers_IA: items x attempts, answers in one written form; None when an attempt gave no answer: it takes one
    of the k places and has no vote. solved_IA: the verdict on each attempt, None where it is missing; equal
    answers to one item must have equal verdicts (ValueError). Tie rule: each of the tied answers wins with
    equal chance; without any vote the item is not solved. Exact over all subsets of k: votes of a subset are
    independent binomials given their total. Items with fewer than k judged attempts are counted as missing.
    At k = 1 it is pass@1. Source of the idea: Wang et al. 2022 (self-consistency), as generally known.
    """
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    if len(answers_IA) != len(solved_IA):
        raise ValueError(f"answers_IA has {len(answers_IA)} items, solved_IA {len(solved_IA)}; they must match")
    values: list[float | None] = []
    for number, (answers, solved) in enumerate(zip(answers_IA, solved_IA, strict=True)):
        votes, correct = _votes(answers, verdicts(solved), number)
        values.append(_majority_of(votes, correct, k) if votes.total() >= k else None)
    return measure(values, f"majority@{k}", UNIT)


def best_of_n(
    solved_IA: Sequence[Sequence[float | None]] | ArrayLike,
    selector_scores_IA: Sequence[Sequence[float | None]] | ArrayLike,
    n: int,
    selector: str,
) -> BestOfN:
    """Success of the attempt with the highest selector score among n, averaged over all draws of n and items.

    solved_IA: items x attempts, 0 or 1. selector_scores_IA: the score that the selector named `selector` (a
    reward model, a verifier) gave each attempt; any real number, ties are broken evenly. An attempt without
    verdict or score is left out; an item with fewer than n left is counted as missing. With attempts sorted
    by score, number r (from 0) of N is the best of n with chance C(r, n-1) / C(N, n). Raises NotEnoughData
    when no item has n, ValueError for shapes or verdicts that cannot be.
    """
    if not selector:
        raise ValueError("best-of-n means nothing without the selector's name; say which reward or verifier chose")
    solved_rows, score_rows = _rows(solved_IA), _rows(selector_scores_IA)
    if len(solved_rows) != len(score_rows):
        raise ValueError(f"solved_IA has {len(solved_rows)} items, selector_scores_IA {len(score_rows)}; match them")
    chosen: list[float | None] = []
    n_correct, n_samples = [], []
    for row, (solved_A, scores_A) in enumerate(zip(solved_rows, score_rows, strict=True)):
        solved, scores = verdicts(solved_A), with_gaps(scores_A, "selector scores")
        if solved.size != scores.size:
            raise ValueError(f"item {row} has {solved.size} verdicts and {scores.size} selector scores; match them")
        is_complete = ~(np.isnan(solved) | np.isnan(scores))
        if np.count_nonzero(is_complete) < n:
            chosen.append(None)
            continue
        chosen.append(_best_of(solved[is_complete], scores[is_complete], n))
        n_correct.append(int(solved[is_complete].sum()))
        n_samples.append(int(is_complete.sum()))
    value = measure(chosen, f"best-of-{n}", UNIT)
    pass_at_1, oracle = (float(pass_at_k_by_item(n_correct, n_samples, k).mean()) for k in (1, n))
    return BestOfN(selector, n, value, pass_at_1, oracle)


def cost_per_point(
    without: float,
    searched: float,
    extra_tokens: Values,
    verifier_calls: Values,
    extra_latency_s: Values,
) -> CostPerPoint:
    """What search (k samples, a verifier, a vote) costs for each percentage point it adds.

    without, searched: rates of one attempt and of the search on the same items. The rest: what search spent
    beyond one attempt, one value for each item (or none at all: []); their mean is divided by the gain. Missing
    values are left out and counted, a resource with none at all is None. No gain, or a loss, gives None
    throughout. Raises ValueError for rates outside 0-1, costs below 0 or unequal numbers of items.
    """
    for rate in (without, searched):
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rate {rate} must be between 0 and 1; give probabilities, not percent")
    points = 100.0 * (searched - without)
    spent = {
        "tokens": with_gaps(extra_tokens, "extra_tokens", COUNTS),
        "verifier_calls": with_gaps(verifier_calls, "verifier_calls", COUNTS),
        "latency_s": with_gaps(extra_latency_s, "extra_latency_s", COUNTS),
    }
    require_same_length("cost_per_point", **{name: vector for name, vector in spent.items() if vector.size})
    n = max(vector.size for vector in spent.values())
    n_missing = {name: n - int(np.count_nonzero(~np.isnan(vector))) for name, vector in spent.items()}
    costs = [_cost(vector, points) for vector in spent.values()]
    return CostPerPoint(points, costs[0], costs[1], costs[2], n, n_missing)


def circular_accuracy(correct_IS: Sequence[Sequence[float | None]]) -> Estimate:
    """Share of multiple-choice items that are right under every circular shift of their options.

    correct_IS: items x shifts, 0 or 1; an item has as many shifts as options. One wrong shift makes the item
    wrong whatever else is missing; an item with a missing shift and no wrong one is missing. Raises ValueError
    for other verdicts, NotEnoughData for an item without shifts or when all are missing.
    Source: MMBench (Liu et al. 2023), as generally known; not checked against the paper.
    """
    values: list[float | None] = []
    for number, row in enumerate(correct_IS):
        shifts = np.asarray(cast(ArrayLike, row), dtype=np.float64)
        if shifts.size == 0:
            raise NotEnoughData(f"item {number} has no shifts; circular accuracy needs one for each option")
        if not bool(np.all(np.isnan(shifts) | (shifts == 0.0) | (shifts == 1.0))):
            raise ValueError(f"item {number}: verdicts of shifts must be 0, 1 or missing")
        values.append(0.0 if bool((shifts == 0.0).any()) else None if bool(np.isnan(shifts).any()) else 1.0)
    return measure(values, "circular accuracy", UNIT)


def _cost(vector: NDArray[np.float64], points: float) -> float | None:
    recorded = vector[~np.isnan(vector)]
    return float(recorded.mean()) / points if recorded.size and points > NO_ROOM else None


def _rows(values_IA: Sequence[Sequence[float | None]] | ArrayLike) -> list[Sequence[float | None]]:
    return list(cast(Sequence[Sequence[float | None]], values_IA))


def _votes(
    answers: Sequence[Hashable | None], solved: NDArray[np.float64], number: int
) -> tuple[Counter[Hashable | None], set[Hashable]]:
    """How often each answer was given, and which answers are correct."""
    if len(answers) != solved.size:
        raise ValueError(f"item {number} has {len(answers)} answers and {solved.size} verdicts; match them")
    votes: Counter[Hashable | None] = Counter()
    judged: dict[Hashable, float] = {}
    for answer, verdict in zip(answers, solved.tolist(), strict=True):
        if verdict != verdict:  # NaN: no verdict
            continue
        votes[answer] += 1
        if answer is None and verdict == 1.0:
            raise ValueError(f"item {number}: an attempt without an answer cannot be correct")
        if judged.setdefault(answer, verdict) != verdict:
            raise ValueError(f"item {number}: answer {str(answer)[:80]!r} is judged both right and wrong")
    return votes, {answer for answer, verdict in judged.items() if verdict == 1.0}


def _majority_of(votes: Counter[Hashable | None], correct: set[Hashable], k: int) -> float:
    silent = votes[None]
    total = 0.0
    for answer in correct:
        rival_votes = tuple(sorted(n for rival, n in votes.items() if rival is not None and rival != answer and n))
        total += _chance_to_win(votes[answer], rival_votes, silent, k)
    return min(total, 1.0)


@lru_cache(maxsize=1 << 13)
def _chance_to_win(own_votes: int, rivals: tuple[int, ...], silent: int, k: int) -> float:
    """Chance that an answer given `own_votes` times has the most votes of k drawn; a tie with j others counts 1/(1+j).

    rivals: how often each other answer was given. silent: attempts without an answer. For each number t of its own
    votes, `chance_JV` (ties so far x votes placed so far) takes in one rival at a time, none of which may have more
    than t votes.
    """
    n = own_votes + sum(rivals) + silent
    won, own_chance, silent_chance = 0.0, _binomial(own_votes, k, n), _binomial(silent, k, n)
    for t in range(1, min(own_votes, k) + 1):
        n_left = k - t
        if silent + sum(min(rival, t) for rival in rivals) < n_left:
            continue
        chance_JV = np.zeros((n_left // t + 1, n_left + 1))
        quiet = min(silent, n_left) + 1
        chance_JV[0, :quiet] = silent_chance[:quiet]
        for rival in rivals:
            weights = _binomial(rival, k, n)
            taken = np.zeros_like(chance_JV)
            for s in range(min(rival, t - 1, n_left) + 1):
                taken[:, s:] += weights[s] * chance_JV[:, : n_left + 1 - s]
            if t <= min(rival, n_left):
                taken[1:, t:] += weights[t] * chance_JV[:-1, : n_left + 1 - t]
            chance_JV = taken
        won += own_chance[t] * float((chance_JV[:, n_left] / np.arange(1, chance_JV.shape[0] + 1)).sum())
    return float(won / _binomial(n, k, n)[k])


@lru_cache(maxsize=1 << 12)
def _binomial(count: int, k: int, n: int) -> NDArray[np.float64]:
    """Chances of 0 ... min(count, k) successes in `count` draws of chance k/n."""
    from scipy.special import gammaln, xlog1py, xlogy  # half a second to load, and every reader of a suite loads this

    s = np.arange(min(count, k) + 1, dtype=np.float64)
    ways = gammaln(count + 1) - gammaln(s + 1) - gammaln(count - s + 1)
    return np.asarray(np.exp(ways + xlogy(s, k / n) + xlog1py(count - s, -k / n)))


def _best_of(solved: NDArray[np.float64], scores: NDArray[np.float64], n: int) -> float:
    """Chance that the highest-scored of n attempts solves the item; attempts of equal score are chosen evenly."""
    levels, level_A, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    rate_L = np.bincount(level_A, weights=solved, minlength=levels.size) / sizes
    up_to = np.concatenate([[0], np.cumsum(sizes)])
    # all n drawn attempts have at most a level's score: its differences are the chances that the best has that level
    all_within = pass_hat_k_by_item(up_to, np.full(up_to.size, solved.size), n)
    return min(1.0, float(np.diff(all_within) @ rate_L))
