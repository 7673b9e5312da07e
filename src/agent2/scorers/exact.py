"""The plainest rule: the answer is the reference, white space at the ends aside.

Does NOT forgive case, punctuation or another way of writing a number; see `final_answer` and `rational` for those.
"""

from agent2.errors import Fault
from agent2.records import Emits, Item, Rollout, Score
from agent2.stats.answers import stripped


class ExactScorer:
    """1.0 if the stripped answer equals the stripped reference, else 0.0 (`exact_match` of task sets)."""

    name = "exact"
    version = "1.0"
    emits = Emits()

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item has no reference."""
        if item.reference is None:
            return Score(None, f"item {item.id} has no reference to compare with; correct the benchmark", Fault.JUDGE)
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        if stripped(rollout.answer) == stripped(item.reference):
            return Score(1.0, "the answer is the reference", extracted=stripped(rollout.answer))
        reason = f"the answer {brief(rollout.answer)} is not the reference {brief(item.reference)}"
        return Score(0.0, reason, extracted=stripped(rollout.answer))


def brief(text: str, length: int = 60) -> str:
    """A text as it may stand in a reason: its repr, cut short."""
    return repr(text if len(text) <= length else text[: length - 3] + "...")
