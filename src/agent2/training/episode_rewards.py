"""What an episode is worth, whether it counts in the loss, and what a batch of them says about the policy.

An episode that broke has no reward (None), which is never a zero. Those that are left out of the loss are counted
by their reason; truncated are those that the context or the limit of a message ended, never those that merely hit the
turn cap. Gamma decay: success in T turns is worth `decay ** (T - 1)`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import torch

from agent2.training.episodes import Ending, Episode
from agent2.training.online_settings import OnlineGrpoSettings
from agent2.training.reference import advantages_of, share_with_signal

Success = Callable[[Episode], float | None]
"""An episode that came to an end to its success, 0 to 1; None: it could not be judged, which leaves it out."""

COMPOSITE_WEIGHTS: Mapping[str, float] = MappingProxyType({"success": 5.0, "valid": 1.0, "format": 1.0})
"""Of the composite reward, which is divided by their sum: success, share of valid actions, share of messages that
the model ended itself (the +5 / +1 / +1 of the source)."""


class Excluded(StrEnum):
    """Why an episode is left out of the loss."""

    FAILED = "failed"
    TRUNCATED = "truncated"
    CAPPED = "capped"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch of episodes as the loss sees it; axes P groups, G members."""

    rewards: Sequence[float | None]
    """For each episode; None: it broke."""
    excluded: Sequence[Excluded | None]
    advantages_PG: torch.Tensor
    measures: Mapping[str, float]
    """For the log, by the names of `logs`."""


def won(episode: Episode) -> float:
    """Success as worlds with a goal tell it: the state's `won`."""
    return float(bool(episode.state.get("won")))


def judge(episodes: Sequence[Episode], settings: OnlineGrpoSettings, success: Success) -> Judged:
    """Rewards, exclusions and advantages of a batch whose groups stand together."""
    successes = [None if e.ending is Ending.FAILED else success(e) for e in episodes]
    parts = [None if s is None else _components(e, s, settings) for e, s in zip(episodes, successes, strict=True)]
    rewards = [None if p is None else _total(p, settings) for p in parts]
    excluded = [_excluded(e, s, settings) for e, s in zip(episodes, successes, strict=True)]
    counted = [
        float("nan") if why is not None or reward is None else reward
        for reward, why in zip(rewards, excluded, strict=True)
    ]
    rewards_PG = torch.tensor(counted).view(-1, settings.generations)
    advantages_PG = advantages_of(rewards_PG, settings.advantage, by_spread=settings.by_spread)
    measures = {
        **_measures(episodes, successes),
        "signal_share": share_with_signal(advantages_PG),
        **{f"masked_{why.value}": n / len(episodes) for why, n in _counts(excluded).items()},
    }
    if settings.reward == "composite":
        known = [part for part in parts if part is not None]
        for name in COMPOSITE_WEIGHTS:
            measures[f"reward_{name}"] = _mean([part[name] for part in known])
    return Judged(rewards, excluded, advantages_PG, {k: v for k, v in measures.items() if v == v})


def _components(episode: Episode, success: float, settings: OnlineGrpoSettings) -> dict[str, float]:
    turns = max(1, len(episode.actions))
    return {
        "success": success * settings.decay ** (turns - 1),
        "valid": 1 - _invalid(episode) / turns,
        "format": 1 - episode.n_unterminated / turns,
    }


def _total(parts: Mapping[str, float], settings: OnlineGrpoSettings) -> float:
    if settings.reward == "binary":
        return parts["success"]
    weights = COMPOSITE_WEIGHTS
    return sum(weights[name] * parts[name] for name in weights) / sum(weights.values())


def _excluded(episode: Episode, success: float | None, settings: OnlineGrpoSettings) -> Excluded | None:
    if success is None:
        return Excluded.FAILED
    if settings.max_episode_tokens is not None and episode.n_tokens > settings.max_episode_tokens:
        return Excluded.TOO_LONG
    is_cut = episode.ending is Ending.CONTEXT or episode.last_is_unterminated
    if settings.mask_truncated and is_cut and not success:
        return Excluded.TRUNCATED
    if settings.mask_capped and episode.ending is Ending.TURN_CAP:
        return Excluded.CAPPED
    return None


def _counts(excluded: Sequence[Excluded | None]) -> dict[Excluded, int]:
    found = Counter(excluded)
    return {why: found[why] for why in Excluded}


def _invalid(episode: Episode) -> int:
    return int(episode.state.get("n_invalid", 0))


def _measures(episodes: Sequence[Episode], successes: Sequence[float | None]) -> dict[str, float]:
    """What the log says about a batch; shares are of messages or episodes, NaN where nothing was measured."""
    n_turns = sum(len(e.actions) for e in episodes) or float("nan")
    n_drawn = sum(sum(e.is_drawn) for e in episodes) or float("nan")
    knows_invalid = any("n_invalid" in e.state for e in episodes)
    ended = [e for e in episodes if e.ending is not Ending.FAILED]
    return {
        "success": _mean([s for s in successes if s is not None]),
        "turns": n_turns / max(1, len(ended)),
        "action_length": n_drawn / n_turns,
        "invalid_share": sum(map(_invalid, episodes)) / n_turns if knows_invalid else float("nan"),
        "unterminated_share": sum(e.n_unterminated for e in episodes) / n_turns,
        "repeated_share": sum(e.n_repeated for e in episodes) / n_turns,
        "stutter_share": sum(e.n_stuttering for e in episodes) / n_turns,
        "capped_share": sum(e.ending is Ending.TURN_CAP for e in ended) / max(1, len(ended)),
        "retried_share": sum(e.retries > 0 for e in episodes) / len(episodes),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
