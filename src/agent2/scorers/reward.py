"""The rewards that a world itself gave, as a verdict."""

import math

from agent2.errors import ConfigError, Fault
from agent2.records import Emits, Item, Rollout, RolloutStatus, Score

TOLERANCE = 1e-9
"""A return this much beside a threshold, 0 or 1 counts as at it: 0.1 and 0.7 are no exact binary fractions."""


class RewardScorer:
    """The return of an episode (the sum of the rewards of its steps), or whether it reaches a threshold.

    Sums by `math.fsum`; comparisons allow `TOLERANCE`.
    """

    name = "reward"
    version = "1.0"
    needs_state = frozenset({"rewards"})
    emits = Emits(views=frozenset({"return", "last_reward", "steps"}))

    def __init__(self, at_least: float | None = None) -> None:
        """at_least: 1 for a return of at least this, else 0; None: the return itself, which has to be 0 to 1.

        Raises ConfigError for a threshold that is no number.
        """
        if at_least is not None and (
            isinstance(at_least, bool) or not isinstance(at_least, int | float) or not math.isfinite(at_least)
        ):
            raise ConfigError(f"scorer {self.name!r}: at_least is {at_least!r}; give the return that counts as success")
        self._at_least = at_least

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict.

        Missing with an environment fault where an episode ended without any reward, or its return is not finite or no
        score; an episode that was cut off without one was not solved.
        """
        told = rollout.state.get("rewards")
        if not isinstance(told, list | tuple):
            return Score(None, f"the state of {item.id} has no rewards: it comes from another world", Fault.JUDGE)
        rewards = [float(one) for one in told if one is not None]
        total = _total(rewards)
        views: dict[str, float | None] = {
            "return": total if rewards else None,
            "last_reward": rewards[-1] if rewards else None,
            "steps": float(len(told)),
        }
        if not rewards:
            if rollout.status is RolloutStatus.COMPLETED:
                return Score(None, "the world ended the episode and gave no reward", Fault.ENVIRONMENT, views=views)
            return Score(0.0, f"cut off after {len(rollout.turns)} turns, without a reward", views=views)
        if total is None:
            return Score(None, "the rewards sum up to no finite number", Fault.ENVIRONMENT, views=views)
        if self._at_least is not None:
            value = float(total >= self._at_least - TOLERANCE)
            return Score(value, f"a return of {total:g}; {self._at_least:g} counts as success", views=views)
        if not -TOLERANCE <= total <= 1 + TOLERANCE:
            why = f"a return of {total:g} is no score from 0 to 1; set at_least of the scorer {self.name!r}"
            return Score(None, why, Fault.ENVIRONMENT, views=views)
        return Score(min(max(total, 0.0), 1.0), f"a return of {total:g}", views=views)


def _total(rewards: list[float]) -> float | None:
    """Their sum; None where it is not finite."""
    try:
        total = math.fsum(rewards)
    except (OverflowError, ValueError):  # a sum beyond floats; inf and -inf together
        return None
    return total if math.isfinite(total) else None
