"""AdaStop: which agents differ, and which still need seeds, after each round of training runs.

Promises: the chance of calling any equal pair different, over all pairs and all interims, is at most alpha
(exact for two agents; for more it rests on the joint law of the relabelled sums, which `benchmarks/coverage.py`
checks by simulation); the order in which agents are named changes nothing; memory is bounded by
max_permutations x pairs.

Does NOT say how large a difference is (use paired intervals for that), and an equal verdict means "not told
apart within the budget". Sums are not studentised: scores of all agents must be on one scale.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import CHUNK_ELEMENTS, finite_vector

TIE = 1e-9
"""Sums closer than this share of the largest possible one are equal (float noise)."""


class Verdict(StrEnum):
    """What is known of a pair, seen from its first agent."""

    LARGER = "larger"
    SMALLER = "smaller"
    EQUAL = "equal"
    """Accepted early, or not told apart when the last interim was over."""
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class AdaStopSettings:
    """The design; must be fixed before the first score is seen."""

    n_seeds: int = 5
    """New seeds an agent at each interim."""
    n_interims: int = 5
    alpha: float = 0.05
    """Family-wise error, spent in equal parts over the interims."""
    beta: float = 0.0
    """Spent likewise on accepting pairs early; 0 never does. It costs power, never error."""
    max_permutations: int = 10_000

    def __post_init__(self) -> None:
        """Refuse a design that cannot be. Raises ValueError."""
        if self.n_seeds < 1 or self.n_interims < 1:
            raise ValueError(f"n_seeds={self.n_seeds} and n_interims={self.n_interims} must be at least 1")
        if not 0.0 < self.alpha < 1.0 or not 0.0 <= self.beta < 1.0:
            raise ValueError(f"alpha={self.alpha} and beta={self.beta} must lie between 0 and 1")
        if self.max_permutations * self.alpha < self.n_interims:
            need = math.ceil(self.n_interims / self.alpha)
            raise ValueError(f"max_permutations={self.max_permutations} is too few to ever decide; use at least {need}")


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """One pair of agents."""

    agent_a: str
    agent_b: str
    verdict: Verdict
    delta: float
    """Mean of a - mean of b over the seeds seen when it was decided (or so far)."""
    n: int
    """Seeds of each agent behind it."""

    def __str__(self) -> str:
        return f"{self.agent_a} is {self.verdict} vs {self.agent_b} ({self.delta:+.4f}, n={self.n} seeds each)"


@dataclass(frozen=True, slots=True)
class AdaStopState:
    """What is known after an interim."""

    pairs: tuple[PairVerdict, ...]
    needs_seeds: tuple[str, ...]
    """Agents with an undecided pair; give each n_seeds more. Empty: stop."""
    interim: int
    settings: AdaStopSettings

    @property
    def is_decided(self) -> bool:
        """No pair is undecided."""
        return not self.needs_seeds

    def __str__(self) -> str:
        differ = sum(pair.verdict in (Verdict.LARGER, Verdict.SMALLER) for pair in self.pairs)
        undecided = sum(pair.verdict is Verdict.UNDECIDED for pair in self.pairs)
        need = f"; more seeds for {', '.join(self.needs_seeds)}" if self.needs_seeds else "; done"
        return (
            f"{differ} of {len(self.pairs)} pairs differ, {undecided} undecided (AdaStop, interim {self.interim} of "
            f"{self.settings.n_interims}, family-wise error {self.settings.alpha:g}){need}"
        )


class SignSource(Protocol):
    """Relabellings of one interim's block, in chunks of permutations."""

    def __call__(self, n_permutations: int, n_agents: int, n_seeds: int) -> Iterator[NDArray[np.int8]]:
        """Chunks of +1/-1, permutations x pairs x (seeds of a, then of b), n_seeds of each sign in a row."""
        ...


def sampled_signs(rng: np.random.Generator) -> SignSource:
    """Uniform relabellings of every pair from one set of random keys.

    A run keeps its key in all its pairs: in a pair, the half with the lower keys counts as the first agent's, where
    the second agent's keys are turned over (1 - key). Each pair sees a uniform relabelling, and swapping its
    agents only turns the sign. Over pairs the sums behave like differences u_a - u_b of one number an agent, as
    the true ones do; keys that are not turned over would give u_a + u_b, whose largest is too small.
    """

    def chunks(n_permutations: int, n_agents: int, n_seeds: int) -> Iterator[NDArray[np.int8]]:
        pairs = np.array(list(combinations(range(n_agents), 2)))
        rows = max(1, CHUNK_ELEMENTS // (4 * len(pairs) * n_seeds))
        for start in range(0, n_permutations, rows):
            size = min(rows, n_permutations - start)
            keys = rng.random((size, n_agents, n_seeds), dtype=np.float32)
            pooled = np.concatenate([keys[:, pairs[:, 0]], 1 - keys[:, pairs[:, 1]]], axis=2)
            middle = np.partition(pooled, n_seeds - 1, axis=2)[:, :, n_seeds - 1 : n_seeds]
            signs = np.where(pooled <= middle, np.int8(1), np.int8(-1))
            broken = signs.sum(axis=2, dtype=np.int32) != 0  # equal keys at the middle: one row in a million
            signs[broken] = np.repeat(np.array([1, -1], dtype=np.int8), n_seeds)
            yield signs

    return chunks


class AdaStop:
    """The running test: feed each interim's scores, read which pairs are decided and who needs more seeds.

    At interim k a pair's statistic is T_k = |sum of a - sum of b| over all seeds so far. Labels are permuted
    inside each interim's block. The boundary B_k is the smallest value such that at most k * alpha / K of the
    permutations ever had the largest T over undecided pairs above its boundary. The pairs above B_k are
    decided and the boundary is computed again without them, until none is above. With beta, before the last
    interim, pairs below the beta / K quantile of the largest permuted T are accepted as equal.
    Two agents: all relabellings are listed while there are at most max_permutations. Else that many are drawn
    with rng; the observed labels always count as one, so that the level holds for any number of draws.
    Source: Mathieu et al. 2023 (AdaStop), arXiv:2306.10882; group-sequential boundary, step-down and early
    acceptance as generally known, not checked against the paper; the shared keys of pairs are ours.
    """

    def __init__(
        self,
        agents: Sequence[str],
        settings: AdaStopSettings,
        rng: np.random.Generator,
        signs: SignSource | None = None,
    ):
        """Start with no scores.

        agents: at least two different names. signs: where relabellings come from (simulations share them);
        default `sampled_signs(rng)`. Raises NotEnoughData for fewer than two agents, ValueError for a repeated name.
        """
        if len(agents) < 2:
            raise NotEnoughData(f"a comparison needs at least 2 agents, got {len(agents)}")
        if len(set(agents)) != len(agents):
            raise ValueError(f"agents {sorted(agents)} hold a name twice; give each agent its own name")
        self._agents = sorted(agents)
        self._settings = settings
        self._rng = rng
        self._signs = signs or sampled_signs(rng)
        self._pairs = np.array(list(combinations(range(len(agents)), 2)))
        n_pairs = len(self._pairs)
        self._sums_MP = np.zeros((1, n_pairs))
        """Signed sums of each permutation; row 0 is the observed labels."""
        self._crossed_MP = np.zeros((1, n_pairs), dtype=np.bool_)
        """The pair's statistic was above the boundary at an earlier interim."""
        self._is_listed = len(agents) == 2
        self._verdicts = [Verdict.UNDECIDED] * n_pairs
        self._deltas = np.zeros(n_pairs)
        self._n_seen = np.zeros(n_pairs, dtype=np.int64)
        self._size_P = np.zeros(n_pairs)
        self._interim = 0

    @property
    def state(self) -> AdaStopState:
        """What is known so far."""
        pairs = tuple(
            PairVerdict(self._agents[a], self._agents[b], verdict, float(self._deltas[pair]), int(self._n_seen[pair]))
            for pair, ((a, b), verdict) in enumerate(zip(self._pairs, self._verdicts, strict=True))
        )
        open_agents = {int(agent) for pair in self._open() for agent in self._pairs[pair]}
        needs = tuple(self._agents[agent] for agent in sorted(open_agents))
        return AdaStopState(pairs, needs, self._interim, self._settings)

    def feed(self, scores: Mapping[str, ArrayLike]) -> AdaStopState:
        """Take n_seeds new scores of each agent that needs them, and decide what can be decided.

        scores: agent -> scores of its new seeds; those of agents with every pair decided are not looked at.
        Raises NotEnoughData for an agent without its n_seeds finite scores (a missing run must be replaced by
        another seed, it is never a zero), ValueError for an unknown agent or when nothing is undecided.
        """
        open_pairs = self._open()
        if not open_pairs:
            raise ValueError(f"every pair was decided by interim {self._interim}; no more scores are needed")
        unknown = sorted(set(scores) - set(self._agents))
        if unknown:
            raise ValueError(f"scores of {unknown[0]!r}, which is not among the agents {self._agents}")
        block = self._block(scores)
        self._interim += 1
        scores_PS = np.concatenate([block[self._pairs[:, 0]], block[self._pairs[:, 1]]], axis=1)
        self._extend(scores_PS)
        n = self._interim * self._settings.n_seeds
        for pair in open_pairs:
            self._n_seen[pair], self._deltas[pair] = n, self._sums_MP[0, pair] / n
        self._decide()
        return self.state

    def _open(self) -> list[int]:
        return [pair for pair, verdict in enumerate(self._verdicts) if verdict is Verdict.UNDECIDED]

    def _block(self, scores: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        """New scores, agents x seeds; zeros for agents whose pairs are all decided (their sums are not used)."""
        n_seeds = self._settings.n_seeds
        block = np.zeros((len(self._agents), n_seeds))
        for agent in self.state.needs_seeds:
            if agent not in scores:
                raise NotEnoughData(f"{agent} has an undecided pair and no new scores; run {n_seeds} more seeds of it")
            values = finite_vector(scores[agent], f"scores of {agent}")
            if values.size != n_seeds:
                raise NotEnoughData(f"{agent} has {values.size} new scores; each interim takes {n_seeds} of each agent")
            block[self._agents.index(agent)] = values
        return block

    def _extend(self, scores_PS: NDArray[np.float64]) -> None:
        """Add the block to the sums of every permutation, listing or drawing them."""
        n_seeds, limit = self._settings.n_seeds, self._settings.max_permutations
        self._size_P += np.abs(scores_PS).sum(axis=1)
        n_listed = self._sums_MP.shape[0] * math.comb(2 * n_seeds, n_seeds)
        if self._is_listed and n_listed <= limit:
            block_sums = _listed_signs(n_seeds) @ scores_PS[0]
            self._crossed_MP = np.repeat(self._crossed_MP, block_sums.size, axis=0)
            self._sums_MP = (self._sums_MP[:, :1] + block_sums).reshape(-1, 1)
            return
        if self._is_listed or self._interim == 1:  # from here on a sample stands for all
            drawn = np.append(0, self._rng.integers(self._sums_MP.shape[0], size=limit))
            self._sums_MP, self._crossed_MP = self._sums_MP[drawn], self._crossed_MP[drawn]
            self._is_listed = False
        observed = np.repeat([1.0, -1.0], n_seeds)
        self._sums_MP[0] += scores_PS @ observed
        start = 1
        for signs in self._signs(limit, len(self._agents), n_seeds):
            self._sums_MP[start : start + len(signs)] += np.einsum("mps,ps->mp", signs, scores_PS, dtype=np.float64)
            start += len(signs)

    def _decide(self) -> None:
        """Reject with step-down, then accept, then close what is left at the last interim."""
        settings = self._settings
        statistic_MP = np.abs(self._sums_MP)
        slack = TIE * float(self._size_P.max())
        allowed = math.floor(self._interim * settings.alpha / settings.n_interims * len(statistic_MP) + TIE)
        boundary = math.inf
        while open_pairs := self._open():
            largest = statistic_MP[:, open_pairs].max(axis=1)
            before = np.asarray(self._crossed_MP[:, open_pairs].any(axis=1), dtype=np.bool_)
            boundary = _boundary(largest, before, allowed)
            rejected = [pair for pair in open_pairs if statistic_MP[0, pair] > boundary + slack]
            if not rejected:
                break
            for pair in rejected:
                self._verdicts[pair] = Verdict.LARGER if self._sums_MP[0, pair] > 0 else Verdict.SMALLER
        if open_pairs and settings.beta > 0 and self._interim < settings.n_interims:
            tail = math.floor(settings.beta / settings.n_interims * largest.size + TIE)
            floor = np.partition(largest, tail)[tail]
            for pair in open_pairs:
                if statistic_MP[0, pair] < floor - slack:
                    self._verdicts[pair] = Verdict.EQUAL
        if self._interim == settings.n_interims:
            self._verdicts = [Verdict.EQUAL if v is Verdict.UNDECIDED else v for v in self._verdicts]
        self._crossed_MP |= statistic_MP > boundary + slack


def compare_sequentially(
    scores: Mapping[str, ArrayLike], settings: AdaStopSettings, rng: np.random.Generator
) -> AdaStopState:
    """AdaStop over all scores so far: as if each whole block had been fed when it was there.

    scores: agent -> its scores in the order of seeds. Whole blocks of n_seeds are used, as far as every agent
    still undecided has them; later scores are left for the next call. A generator with the same seed gives
    the same decisions at the interims that were there before. Raises as `AdaStop.feed` does.
    """
    test = AdaStop(list(scores), settings, rng)
    vectors = {agent: np.asarray(values, dtype=np.float64) for agent, values in scores.items()}
    size = settings.n_seeds
    while needs := test.state.needs_seeds:
        stop = (test.state.interim + 1) * size
        if any(vectors[agent].size < stop for agent in needs):
            break
        test.feed({agent: vectors[agent][stop - size : stop] for agent in needs})
    return test.state


def _boundary(largest: NDArray[np.float64], before: NDArray[np.bool_], allowed: int) -> float:
    """The smallest of the permutations' statistics that at most `allowed` permutations are, or were, above."""
    left = allowed - int(np.count_nonzero(before))
    fresh = largest[~before]
    if left <= 0 or left >= fresh.size:
        return float(fresh.max(initial=-math.inf)) if left <= 0 else -math.inf
    place = fresh.size - 1 - left
    return float(np.partition(fresh, place)[place])


def _listed_signs(n_seeds: int) -> NDArray[np.float64]:
    """Every relabelling of one block of two agents; the observed one first."""
    chosen = list(combinations(range(2 * n_seeds), n_seeds))
    signs = np.full((len(chosen), 2 * n_seeds), -1.0)
    signs[np.repeat(np.arange(len(chosen)), n_seeds), np.concatenate([np.array(c) for c in chosen])] = 1.0
    return signs
