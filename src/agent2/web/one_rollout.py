"""One rollout of a card, turn by turn, as its page shows it.

What a model or an environment wrote is cleaned and bounded here, and escaped by the templates. Of hidden items neither
texts nor reasons are shown, unless the caller says that they may be seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from agent2.cards.aggregate import counted_value
from agent2.cards.card import CardFile
from agent2.environments.tools import parse_message
from agent2.records import ScoredRollout, StopReason, Turn, canonical_json
from agent2.reports.text import DASH, clean, clean_lines, clean_piece
from agent2.texts import counted
from agent2.web.rollouts import MAX_TEXT, is_hidden_card, token_words, verdict_of
from agent2.web.shown_pictures import NO_SHELF, PictureShelf, ShownPicture

MAX_STATE = 4_000
TOKEN_LEVELS = (0.9, 0.5, 0.1, 0.01)
"""Probabilities below which a token gets the next stronger colour."""
MAX_TOKENS = 4_000
"""Of one message."""


@dataclass(frozen=True, slots=True)
class TokenMark:
    """One token that the model drew."""

    text: str
    level: int
    """0: near certain, to 4: below 1%; decides its colour."""
    tooltip: str
    """Its log-probability and its id."""


def token_marks(turn: Turn) -> tuple[tuple[TokenMark, ...], str]:
    """The tokens of a message with their colour levels, and a summary; empty where the card has none."""
    if isinstance(turn.tokens, msgspec.UnsetType) or not turn.tokens:
        return (), ""
    logprobs = [token.logprob for token in turn.tokens]
    marks = []
    for token in turn.tokens[:MAX_TOKENS]:
        chance = math.exp(min(token.logprob, 0.0))
        tooltip = f"{token.logprob:.3f} ({100 * chance:.3g}%), id {token.id}"
        marks.append(TokenMark(clean_piece(token.text), sum(chance < level for level in TOKEN_LEVELS), tooltip))
    lowest = math.exp(min(0.0, min(logprobs)))
    summary = f"{counted(len(logprobs), 'token')}, mean log-probability {sum(logprobs) / len(logprobs):.3f}"
    more = f"; the first {MAX_TOKENS:,} are shown" if len(logprobs) > MAX_TOKENS else ""
    return tuple(marks), f"{summary}, the least likely one {100 * lowest:.3g}%{more}"


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """One message of a rollout."""

    anchor: str
    """`p1`: a message of the prompt, `t3`: the model's third message, `t3-reply`: the environment's reply to it."""
    role: str
    """prompt, model or environment; decides what a toggle hides."""
    title: str
    text: str
    pictures: tuple[ShownPicture, ...] = ()
    detail: str = ""
    """Token counts, whether it was cut off, and its tool calls."""
    tokens: Sequence[TokenMark] = ()
    """Empty where the card has none."""
    token_words: str = ""
    """Summary of their probabilities."""
    thought: str = ""
    """What the model wrote before it; folded."""
    thought_words: str = ""


@dataclass(frozen=True, slots=True)
class RolloutView:
    """One rollout, ready to be shown."""

    item_id: str
    attempt: int
    verdict: str
    score: str
    reason: str
    facts: tuple[tuple[str, str], ...]
    labels: tuple[str, ...]
    prompt: tuple[RolloutStep, ...]
    turns: tuple[tuple[RolloutStep, ...], ...]
    """The model's message and the reply, turn by turn."""
    state: str
    is_hidden: bool
    hides: bool
    """Texts are left out; `turns` is empty then."""


def view_rollout(
    record: ScoredRollout,
    card: CardFile,
    *,
    hides: bool,
    max_characters: int = MAX_TEXT,
    shelf: PictureShelf = NO_SHELF,
) -> RolloutView:
    """A rollout as the page shows it.

    hides: its texts and pictures are left out. max_characters: of each step. shelf: of the card, for its pictures.
    """
    rollout, score, usage = record.rollout, record.score, record.rollout.usage
    value = counted_value(record, card.header.reporting)
    facts = {
        "how it ended": rollout.status.value.replace("_", " ")
        + (f": {clean(rollout.reason)}" if rollout.reason else ""),
        "fault": (rollout.fault or score.fault or "") and str(rollout.fault or score.fault),
        "score as given": "" if score.value == value else DASH if score.value is None else f"{score.value:g}",
        "final answer as read": clean(score.extracted or "", 300),
        "views": ", ".join(
            f"{clean(name, 60)} {DASH if view is None else f'{view:g}'}" for name, view in sorted(score.views.items())
        ),
        "restarts": str(rollout.retries or ""),
        "cost": f"{token_words(usage.prompt_tokens, usage.completion_tokens)}, {usage.seconds:.2f} s",
        "seed": str(rollout.seed),
    }
    if hides:
        facts |= {"how it ended": rollout.status.value.replace("_", " "), "final answer as read": ""}
    prompt = [
        RolloutStep(
            f"p{number}",
            "prompt",
            f"prompt: {clean(message.role, 40)}",
            clean_lines(message.content, max_characters),
            () if hides else shelf.of_message(message),
        )
        for number, message in enumerate(rollout.prompt, start=1)
    ]
    turns = []
    for number, turn in enumerate(rollout.turns, start=1):
        cut = ", cut off at the token limit" if turn.stop_reason is StopReason.LENGTH else ""
        detail = f"{token_words(turn.prompt_tokens, turn.completion_tokens)}{cut}"
        calls = [clean(call.name, 60) for call in parse_message(turn.action[:MAX_TEXT]).calls]
        detail += f"; calls {', '.join(calls)}" if calls else ""
        text, title = clean_lines(turn.action, max_characters), f"turn {number}: model"
        marks = (*token_marks(turn), *_thought_of(turn, max_characters))
        steps = [RolloutStep(f"t{number}", "model", title, text, (), detail, *marks)]
        if turn.reply is not None:
            text, title = clean_lines(turn.reply.text, max_characters), f"turn {number}: environment"
            pictures = () if hides else shelf.of_message(turn.reply)
            steps.append(RolloutStep(f"t{number}-reply", "environment", title, text, pictures))
        turns.append(tuple(steps))
    state = "\n".join(f"{key}: {canonical_json(value).decode()}" for key, value in rollout.state.items())
    view = RolloutView(
        item_id=clean(rollout.item_id, 200),
        attempt=rollout.attempt,
        verdict=verdict_of(value),
        score="missing" if value is None else f"{value:g}",
        reason=clean(score.reason, 1000),
        facts=tuple((name, text) for name, text in facts.items() if text),
        labels=tuple(clean(label, 80) for label in score.labels),
        prompt=tuple(prompt),
        turns=tuple(turns),
        state=clean_lines(state, MAX_STATE),
        is_hidden=is_hidden_card(card),
        hides=hides,
    )
    return replace(view, reason="", prompt=(), turns=(), state="") if hides else view


def _thought_of(turn: Turn, max_characters: int) -> tuple[str, str]:
    """A turn's thought and the title of its fold; both empty if it has none."""
    if turn.thought is msgspec.UNSET:
        return "", ""
    text = clean_lines(turn.thought.text.strip(), max_characters)
    title = f"thought, {len(turn.thought.text.strip()):,} characters"
    return text or "(kept by the server)", title + (", never ended" if turn.is_thought_cut_off else "")
