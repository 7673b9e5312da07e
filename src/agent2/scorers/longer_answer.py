"""The smallest pairwise scorer, as an example and for tests: the longer answer wins.

Length is not quality; this stands in for a judge where one is needed that is deterministic and costs nothing.
"""

from agent2.cards.judgement import EMITS
from agent2.records import Item, Preference, Rollout


class LongerAnswerScorer:
    """Prefers the answer with more characters; answers whose lengths differ by at most `margin` are a tie."""

    name = "longer_answer"
    version = "1.0"
    emits = EMITS

    def __init__(self, margin: int = 0) -> None:
        """margin: in characters."""
        self._margin = margin

    def prefer(self, item: Item, first: Rollout, second: Rollout) -> Preference:
        """The verdict; there always is one."""
        n_first, n_second = len(_text(first)), len(_text(second))
        points = 0.5 if abs(n_first - n_second) <= self._margin else float(n_first > n_second)
        return Preference(points, f"{n_first} and {n_second} characters")


def _text(rollout: Rollout) -> str:
    return rollout.answer if rollout.answer is not None else "".join(turn.action for turn in rollout.turns)
