"""Suspicious rollouts: those with a high reward and a low benchmark score, where a loophole shows first.

A rollout is suspicious if its reward is in the top share of all rewards and its benchmark score is at most `max_score`.
Rollouts come from a card whose scores carry the reward as a view, or from JSON lines with `id`, `reward` and `score`.

Does NOT say that a suspicious rollout cheats: people or a judge read them.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent2.cards.reader import CARD_FILE, iter_rollouts, read_header
from agent2.errors import ConfigError, NotEnoughData
from agent2.files import numbered_lines
from agent2.foreign_files import MAX_LOG_BYTES, read_named
from agent2.records import HIDDEN_SPLITS, derive_seed

MIN_ROLLOUTS = 20
"""With fewer a top share says nothing."""
WITHHELD = "(withheld: the item is hidden; agent2 cards show CARD --id ITEM shows it)"


@dataclass(frozen=True, slots=True)
class RewardedRollout:
    """One rollout with its reward and its benchmark score."""

    id: str
    attempt: int
    reward: float
    score: float
    text: str
    """The model's messages; `WITHHELD` for a hidden item, since reports are shared."""


@dataclass(frozen=True, slots=True)
class SuspiciousRollouts:
    """A sample of the suspicious rollouts, and how far reward and score agree over all rollouts."""

    pulled: Sequence[RewardedRollout]
    """At most n, sampled by seed among all that qualify; highest reward first. The name is stored in monitor.json."""
    n_suspicious: int
    n_top: int
    """Rollouts in the top share of rewards."""
    n_rollouts: int
    threshold: float
    """Reward from which on a rollout is in the top share."""
    agreement: float | None
    """Spearman's rank correlation of reward and score; None if one of them never varies."""


def find_suspicious(
    rollouts: Iterable[RewardedRollout], n: int = 20, *, top: float = 0.1, max_score: float = 0.0, seed: int = 0
) -> SuspiciousRollouts:
    """The suspicious rollouts. top: share of rollouts by reward, ties at the threshold included.

    Raises NotEnoughData for fewer than 20 rollouts, ValueError for a share outside (0, 1).
    """
    if not 0 < top < 1:
        raise ValueError(f"top={top} must be between 0 and 1")
    population = list(rollouts)
    if len(population) < MIN_ROLLOUTS:
        raise NotEnoughData(
            f"{len(population)} rollouts have a reward and a score, {MIN_ROLLOUTS} are needed to pull from"
        )
    rewards = np.array([rollout.reward for rollout in population])
    scores = np.array([rollout.score for rollout in population])
    threshold = float(np.quantile(rewards, 1 - top, method="higher"))
    best = [rollout for rollout in population if rollout.reward >= threshold]
    suspicious = [rollout for rollout in best if rollout.score <= max_score]
    rng = np.random.default_rng(derive_seed("pull", seed))
    chosen = [suspicious[i] for i in rng.permutation(len(suspicious))[:n]]
    from scipy import stats  # half a second to load, and reports load this module for its records

    varies = np.ptp(rewards) > 0 and np.ptp(scores) > 0
    return SuspiciousRollouts(
        pulled=sorted(chosen, key=lambda rollout: (-rollout.reward, rollout.id, rollout.attempt)),
        n_suspicious=len(suspicious),
        n_top=len(best),
        n_rollouts=len(population),
        threshold=threshold,
        agreement=float(stats.spearmanr(rewards, scores).statistic) if varies else None,
    )


def read_rewarded(path: Path, view: str = "reward") -> list[RewardedRollout]:
    """Rollouts of a card (reward: the view of that name) or of JSON lines. Those without reward or score are left out.

    Raises ConfigError if no rollout has both.
    """
    is_card = (path / CARD_FILE).is_file()
    rollouts = list(_from_card(path, view) if is_card else _from_lines(path))
    if not rollouts:
        need = f"scores with the view {view!r}" if is_card else "lines with `id`, `reward` and `score`"
        raise ConfigError(f"{path}: no rollout has both a reward and a score; {need} are needed")
    return rollouts


def _from_card(path: Path, view: str) -> Iterator[RewardedRollout]:
    is_hidden = read_header(path).protocol.split in HIDDEN_SPLITS
    for record in iter_rollouts(path):
        reward, score = record.score.views.get(view), record.score.value
        if reward is not None and score is not None:
            text = WITHHELD if is_hidden else "\n".join(turn.action for turn in record.rollout.turns)
            yield RewardedRollout(record.rollout.item_id, record.rollout.attempt, reward, score, text)


def _from_lines(path: Path) -> Iterator[RewardedRollout]:
    try:
        text = read_named(path, MAX_LOG_BYTES).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); pass a card or a file of JSON lines") from error
    for number, line in numbered_lines(text):
        try:
            row = json.loads(line)
            numbers = (row["reward"], row["score"])
            if any(value is None for value in numbers):
                continue
            reward, score = map(float, numbers)
            rollout = RewardedRollout(
                str(row["id"]), int(row.get("attempt", 0)), reward, score, str(row.get("completion", ""))
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{path}:{number}: is not a rollout ({error!r}); lines need `id`, `reward`, `score`, best `completion`"
            ) from error
        if math.isfinite(reward) and math.isfinite(score):
            yield rollout
