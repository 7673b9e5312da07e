"""A rollout as scenes, turn by turn, from its record alone."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from agent2.cards.aggregate import counted_value
from agent2.cards.card import ReportingRule
from agent2.records import ScoredRollout, StopReason, Turn, Usage, canonical_json

PROMPT_TITLE = "prompt"


@dataclass(frozen=True, slots=True)
class ReplayScene:
    """One event of a rollout, as text."""

    title: str
    """`turn 3 of 7: model`, `turn 3 of 7: environment`, `verdict`."""
    text: str


def scenes(record: ScoredRollout, rule: ReportingRule) -> Iterator[ReplayScene]:
    """The rollout in order: prompt, each message with its thought and reply, final state, verdict and what counts."""
    rollout = record.rollout
    for message in rollout.prompt:
        yield ReplayScene(f"{PROMPT_TITLE}: {message.role}", message.content)
    n_turns = len(rollout.turns)
    for number, turn in enumerate(rollout.turns, start=1):
        tokens = _tokens(turn)
        cut = ", cut off at the token limit" if turn.stop_reason is StopReason.LENGTH else ""
        if turn.thought is not msgspec.UNSET:
            never = ", never ended" if turn.is_thought_cut_off else ""
            yield ReplayScene(f"turn {number} of {n_turns}: thought{never}", turn.thought.text.strip())
        yield ReplayScene(f"turn {number} of {n_turns}: model ({tokens}{cut})", turn.action)
        if turn.observation is not None:
            yield ReplayScene(f"turn {number} of {n_turns}: environment", turn.observation)
    if rollout.state:
        yield ReplayScene(
            "final state", "\n".join(f"{key}: {canonical_json(value).decode()}" for key, value in rollout.state.items())
        )
    yield ReplayScene("verdict", "\n".join(_verdict(record, rule)))


def _verdict(record: ScoredRollout, rule: ReportingRule) -> Iterator[str]:
    rollout, score = record.rollout, record.score
    yield f"status: {rollout.status.value}" + (f" ({rollout.reason})" if rollout.reason else "")
    fault = rollout.fault or score.fault
    if fault is not None:
        yield f"fault: {fault.value}"
    if rollout.retries:
        yield f"restarted {rollout.retries} times"
    value = "missing" if score.value is None else f"{score.value:g}"
    yield f"score: {value}: {score.reason}"
    counted = counted_value(record, rule)
    yield "counts as: " + ("missing" if counted is None else f"{counted:g}") + " under the card's rule"
    if score.views:
        yield "views: " + ", ".join(f"{name} {_number(view)}" for name, view in sorted(score.views.items()))
    if score.labels:
        yield "badcase classes: " + ", ".join(score.labels)
    usage = rollout.usage
    yield f"cost: {_tokens(usage)}, {usage.seconds:.2f} s"


def _tokens(cost: Turn | Usage) -> str:
    if cost.prompt_tokens is None and cost.completion_tokens is None:
        return "tokens not known"
    prompt, completion = ("?" if n is None else str(n) for n in (cost.prompt_tokens, cost.completion_tokens))
    return f"{prompt} + {completion} tokens"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"


def thought_preview(turn: Turn, max_characters: int) -> str:
    """The beginning of the thought before a message, with its length where it is cut; empty if there is none."""
    if turn.thought is msgspec.UNSET:
        return ""
    text = turn.thought.text.strip()
    if len(text) > max_characters:
        text = f"{text[:max_characters]} ... ({len(text):,} characters)"
    return f"{text} [never ended]" if turn.is_thought_cut_off else text
