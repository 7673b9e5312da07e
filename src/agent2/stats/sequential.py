"""AdaStop: which agents differ, and which still need seeds, after each round of training runs.

Promises: a design that cannot be is refused when it is made. The chance of calling any equal pair different, over all
pairs and all interims, is at most alpha, for any number of seeds, any distribution and whichever other pairs differ
(equal: same distribution of scores); the order in which agents are given changes nothing; memory is bounded by
max_permutations x pairs x interims.

Does NOT say how large a difference is (use paired intervals for that), and an equal verdict means "not distinguished
within the budget". Agents of equal mean and unequal spread are not equal in this sense.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import CHUNK_ELEMENTS, finite_vector

TIE = 1e-9
"""Statistics are a share of the largest possible one; closer than this they are equal (float noise)."""


class SequentialVerdict(StrEnum):
    """What is known of a pair, seen from its first agent."""

    LARGER = "larger"
    SMALLER = "smaller"
    EQUAL = "equal"
    """Accepted early, or not distinguished when the last interim was over."""
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
            raise ValueError(f"alpha={self.alpha} and beta={self.beta} must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """One pair of agents."""

    agent_a: str
    agent_b: str
    verdict: SequentialVerdict
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

    def __str__(self) -> str:
        differ = sum(pair.verdict in (SequentialVerdict.LARGER, SequentialVerdict.SMALLER) for pair in self.pairs)
        undecided = sum(pair.verdict is SequentialVerdict.UNDECIDED for pair in self.pairs)
        n_seeds = self.interim * self.settings.n_seeds
        need = f"; more seeds for {', '.join(self.needs_seeds)}" if self.needs_seeds else "; done"
        return (
            f"{differ} of {len(self.pairs)} pairs differ, {undecided} undecided (n={n_seeds} seeds each at most, "
            f"AdaStop, interim {self.interim} of {self.settings.n_interims}, family-wise error "
            f"{self.settings.alpha:g}){need}"
        )


class SignSource(Protocol):
    """Relabellings of one interim's block of a pair, in chunks."""

    def __call__(self, n_permutations: int, n_seeds: int) -> Iterator[NDArray[np.float64]]:
        """Chunks of +1/-1, permutations x (seeds of a, then of b), n_seeds of each sign in a row."""
        ...


def sampled_signs(rng: np.random.Generator) -> SignSource:
    """Uniform relabellings of a block."""

    def chunks(n_permutations: int, n_seeds: int) -> Iterator[NDArray[np.float64]]:
        observed = np.repeat([1.0, -1.0], n_seeds)
        rows = max(1, CHUNK_ELEMENTS // observed.size)
        for start in range(0, n_permutations, rows):
            size = min(rows, n_permutations - start)
            yield rng.permuted(np.broadcast_to(observed, (size, observed.size)), axis=1)

    return chunks


class AdaStop:
    """The running test: feed each interim's scores, read which pairs are decided and who needs more seeds.

    At interim k a pair's statistic is T_k = |sum of a - sum of b| over all seeds so far. Labels are permuted
    inside each interim's block. At level L a pair crosses when T_k is among the floor(w_k L M) largest of its M
    relabelled values, of those that did not cross before. w_k is 1 / K, where interims too early for any decision
    give their share to the first that is not. A pair that crosses at level alpha / t is decided, where t is the
    largest number of pairs that can be equal at once if all pairs decided so far differ (10, then 6, 4, 3, 2, 1
    for five agents), and all interims are looked at again with the next t. With beta, before the last interim,
    pairs below the beta / K quantile of the largest relabelled T over undecided pairs are accepted as equal.
    All relabellings are listed while there are at most max_permutations; then that many are drawn with rng. The
    observed labels always count as one, so that the level holds for any number of draws.
    Source: Mathieu et al. 2023 (AdaStop), arXiv:2306.10882, for the design (blocks, spending, step-down, early
    acceptance), as generally known, not checked against the paper. Its joint boundary, the quantile of the
    largest T over pairs, is not used: it is exact for two agents only, and with 5 seeds an interim and 5 to 8
    equal agents it erred in 5% to 7% of our simulated studies. Levels by the pairs that can be equal: Shaffer
    1986, JASA 81:826-831 (as generally known).
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
        need = math.ceil(settings.n_interims * n_pairs / settings.alpha)
        if settings.max_permutations < need:
            raise ValueError(
                f"max_permutations={settings.max_permutations} cannot decide {n_pairs} pairs in {settings.n_interims} "
                f"interims; use at least {need}"
            )
        self._weights = _weights(settings, n_pairs)
        self._true_counts = _possible_true_counts(len(agents))
        self._sums_MP = np.zeros((1, n_pairs))
        """Signed sums of each relabelling; row 0 is the observed one."""
        self._history: list[NDArray[np.float64]] = []
        """Statistics of each interim so far, relabellings x pairs."""
        self._crossed_MP = np.zeros((1, n_pairs), dtype=np.bool_)
        """Who crossed by now at the level of `_n_true`."""
        self._n_true = self._true_counts[-1]
        self._is_listed = True
        self._withdrawn: set[int] = set()
        self._verdicts = [SequentialVerdict.UNDECIDED] * n_pairs
        self._deltas = np.zeros(n_pairs)
        self._n_seen = np.zeros(n_pairs, dtype=np.int64)
        self._size = 0.0
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

    def withdraw(self, agent: str) -> None:
        """Ask for no more seeds of an agent that cannot deliver them; its undecided pairs stay undecided.

        Decided pairs stay decided, and the remaining agents continue at levels as strict as before. The reason must not
        depend on its scores. Raises ValueError for an unknown agent.
        """
        if agent not in self._agents:
            raise ValueError(f"{agent!r} is not among the agents {self._agents}")
        self._withdrawn.add(self._agents.index(agent))

    def _open(self) -> list[int]:
        return [
            pair
            for pair, verdict in enumerate(self._verdicts)
            if verdict is SequentialVerdict.UNDECIDED and self._withdrawn.isdisjoint(self._pairs[pair].tolist())
        ]

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
        """Add the block to the sums of every relabelling, listing or drawing them."""
        n_seeds, limit = self._settings.n_seeds, self._settings.max_permutations
        n_before = self._sums_MP.shape[0]
        if self._is_listed and n_before * math.comb(2 * n_seeds, n_seeds) <= limit:
            block_sums = _listed_signs(n_seeds) @ scores_PS.T
            rows = np.repeat(np.arange(n_before), len(block_sums))
            self._sums_MP = self._sums_MP[rows] + np.tile(block_sums, (n_before, 1))
            self._keep(rows)
        else:
            if self._is_listed:  # from here on a sample represents all
                rows = np.append(0, self._rng.integers(n_before, size=limit))
                self._sums_MP = self._sums_MP[rows]
                self._keep(rows)
                self._is_listed = False
            self._sums_MP[0] += scores_PS @ np.repeat([1.0, -1.0], n_seeds)
            start = 1
            for signs in self._signs(limit, n_seeds):
                self._sums_MP[start : start + len(signs)] += signs @ scores_PS.T
                start += len(signs)
        self._size += float(np.abs(scores_PS).sum(axis=1).max())
        self._history.append(np.abs(self._sums_MP) / self._size if self._size else np.zeros_like(self._sums_MP))

    def _keep(self, rows: NDArray[np.int64]) -> None:
        self._history = [statistic_MP[rows] for statistic_MP in self._history]
        self._crossed_MP = self._crossed_MP[rows]

    def _decide(self) -> None:
        """Decide with step-down, then accept, then close what is left at the last interim."""
        settings = self._settings
        self._cross(self._interim - 1)
        while True:
            for pair in self._open():
                if self._crossed_MP[0, pair]:
                    self._verdicts[pair] = (
                        SequentialVerdict.LARGER if self._sums_MP[0, pair] > 0 else SequentialVerdict.SMALLER
                    )
            differ = sum(verdict in (SequentialVerdict.LARGER, SequentialVerdict.SMALLER) for verdict in self._verdicts)
            n_true = max(count for count in self._true_counts if count <= len(self._verdicts) - differ)
            if n_true == self._n_true or not self._open():
                break
            self._n_true = n_true
            self._crossed_MP[:] = False
            for interim in range(self._interim):
                self._cross(interim)
        if settings.beta > 0 and self._interim < settings.n_interims and (open_pairs := self._open()):
            statistic_MP = self._history[-1][:, open_pairs]
            tail = math.floor(settings.beta / settings.n_interims * len(statistic_MP) + TIE)
            floor = np.partition(statistic_MP.max(axis=1), tail)[tail]
            for column, pair in enumerate(open_pairs):
                if statistic_MP[0, column] < floor - TIE:
                    self._verdicts[pair] = SequentialVerdict.EQUAL
        if self._interim == settings.n_interims:
            for pair in self._open():
                self._verdicts[pair] = SequentialVerdict.EQUAL

    def _cross(self, interim: int) -> None:
        """Mark the relabellings of each undecided pair that cross at this interim (counted from 0)."""
        open_pairs = self._open()
        statistic_MP = self._history[interim][:, open_pairs]
        n_rows = len(statistic_MP)
        # TIE: a product that should be a whole number may come out just below it
        quota = math.floor(self._weights[interim] * self._settings.alpha / self._n_true * n_rows + TIE)
        before_MP = self._crossed_MP[:, open_pairs]
        fresh_MP = np.where(before_MP, -1.0, statistic_MP)  # below any statistic: crossed before, does not count again
        boundary_P = np.partition(fresh_MP, n_rows - 1 - quota, axis=0)[n_rows - 1 - quota]
        self._crossed_MP[:, open_pairs] = before_MP | (fresh_MP > boundary_P + TIE)


def compare_sequentially(
    scores: Mapping[str, ArrayLike],
    settings: AdaStopSettings,
    rng: np.random.Generator,
    withdrawn: Collection[str] = (),
) -> AdaStopState:
    """AdaStop over all scores so far: as if each whole block had been fed when it was there.

    scores: agent -> its scores in the order of seeds. Whole blocks of n_seeds are used, as far as every agent
    still undecided has them; later scores are left for the next call. withdrawn: agents that will have no more
    scores; they are withdrawn once they run out. A generator with the same seed gives the same decisions at the
    interims that were there before. Raises as `AdaStop.feed` does.
    """
    test = AdaStop(list(scores), settings, rng)
    vectors = {agent: np.asarray(values, dtype=np.float64) for agent, values in scores.items()}
    size = settings.n_seeds
    while needs := test.state.needs_seeds:
        stop = (test.state.interim + 1) * size
        short = [agent for agent in needs if vectors[agent].size < stop]
        for agent in short:
            if agent in withdrawn:
                test.withdraw(agent)
        if not short:
            test.feed({agent: vectors[agent][stop - size : stop] for agent in needs})
        elif not any(agent in withdrawn for agent in short):
            break
    return test.state


def _weights(settings: AdaStopSettings, n_pairs: int) -> list[float]:
    """Each interim's share of a level.

    Before the first decision a pair needs to be among alpha / pairs of its relabellings, and complete separation
    is 2 of all; interims with fewer relabellings than that asks for can decide nothing and need no share.
    """
    n_interims, n_blocks = settings.n_interims, math.comb(2 * settings.n_seeds, settings.n_seeds)
    first = 1
    while first < n_interims and 2 / n_blocks**first > first * settings.alpha / (n_interims * n_pairs):
        first += 1
    return [0.0] * (first - 1) + [first / n_interims] + [1 / n_interims] * (n_interims - first)


def _possible_true_counts(n_agents: int) -> list[int]:
    """How many pairs can be equal at once: agents fall into groups, pairs inside a group are equal. Ascending."""
    counts: list[set[int]] = [{0}]
    for size in range(1, n_agents + 1):
        counts.append({math.comb(group, 2) + count for group in range(1, size + 1) for count in counts[size - group]})
    return sorted(counts[n_agents])


def _listed_signs(n_seeds: int) -> NDArray[np.float64]:
    """Every relabelling of one block of two agents; the observed one first."""
    chosen = list(combinations(range(2 * n_seeds), n_seeds))
    signs = np.full((len(chosen), 2 * n_seeds), -1.0)
    signs[np.repeat(np.arange(len(chosen)), n_seeds), np.concatenate([np.array(c) for c in chosen])] = 1.0
    return signs
