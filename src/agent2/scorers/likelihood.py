"""Verdicts on answers that a model chose by likelihood (`environments.likelihood`).

Of several options the value is 1 for the right one; `right_by_sum`, `right_by_bytes` and `right_by_tokens` say what
each way of normalising would have chosen. Of a completion the value is 1 if each of its tokens is the likeliest one.
`logprob` and `bits_per_byte` are those of the right answer: of all items together, bits per byte is a perplexity that
does not depend on the tokenizer. With `mass`, where several options are right (payload `marks`: 0 or 1 for each), the
value is the share of the probability of all options that falls on them, which TruthfulQA calls MC2.
"""

import math
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from agent2.environments.likelihood import BY, best_answer
from agent2.errors import Fault
from agent2.records import Item, Rollout, Score, ScorerOutput


class LikelihoodScorer:
    """1.0 if the likeliest answer is the right one."""

    name = "likelihood"
    version = "1.0"
    emits = ScorerOutput(
        views=frozenset({"logprob", "bits_per_byte", *(f"right_by_{by}" for by in BY)}),
        labels=frozenset({"wrong_choice", "wrong_text"}),
    )

    def __init__(self, *, mass: bool = False) -> None:
        """mass: the share of probability on right options, in place of whether the likeliest one is right."""
        self._is_mass = mass
        self.version += "+mass" if mass else ""  # another measure: cards of the two are not comparable

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item has no reference."""
        reference, state, answer = item.reference, rollout.state, rollout.answer
        if reference is None:
            return Score(None, f"item {item.id} has no reference to compare with; correct the benchmark", Fault.JUDGE)
        has_options = bool(item.payload.get("options"))
        failure = "wrong_choice" if has_options else "wrong_text"
        if "logprobs" not in state:  # a player's words
            is_right = answer is not None and answer.strip() == reference.strip()
            reason = f"the answer is {'' if is_right else 'not '}the reference"
            return Score(float(is_right), reason, labels=() if is_right else (failure,), extracted=answer)
        index = ascii_uppercase.index(reference) if has_options else 0
        views: dict[str, float | None] = {
            "logprob": state["logprobs"][index],
            "bits_per_byte": -state["logprobs"][index] / math.log(2) / max(1, state["n_bytes"][index]),
        }
        if not has_options:
            is_right = bool(state["is_greedy"][0])
            reason = f"the completion is {'' if is_right else 'not '}the likeliest"
            return Score(float(is_right), reason, views=views, labels=() if is_right else (failure,), extracted=answer)
        views |= {f"right_by_{by}": float(best_answer(state, by) == index) for by in BY}
        if self._is_mass:
            return _mass(item, state["logprobs"], answer, views)
        reason = f"likeliest ({state['by']}) is {answer}, right is {reference}"
        labels = () if answer == reference else (failure,)
        return Score(float(not labels), reason, views=views, labels=labels, extracted=answer)


def _mass(item: Item, logprobs: Sequence[float], answer: str | None, views: Mapping[str, float | None]) -> Score:
    """The share of probability on the right options. Source: Lin et al. 2022, arXiv:2109.07958, section 3.2."""
    marks = item.payload.get("marks")
    if not isinstance(marks, list | tuple) or len(marks) != len(logprobs) or 1 not in marks:
        return Score(None, f"item {item.id} does not say which options are right; correct the benchmark", Fault.JUDGE)
    highest = max(logprobs)
    weights = [math.exp(logprob - highest) for logprob in logprobs]
    share = sum(weight for weight, mark in zip(weights, marks, strict=True) if mark == 1) / sum(weights)
    labels = () if share > 0.5 else ("wrong_choice",)
    return Score(
        share, f"{share:.3f} of the probability is on right options", views=views, labels=labels, extracted=answer
    )
