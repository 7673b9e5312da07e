"""Conversations as rows to learn from: which tokens are the model's, and which of those are to be learned.

A row is {"messages": [{"role", "content"}, ...]}; an assistant message may say `"learn": false`, so that a clumsy
action is seen, with what came of it, and not imitated. The model's own tokens are those that its chat template
marks with {% generation %}. A template without marks that TRL knows (Qwen2.5's, Llama 3's, ...) is replaced by TRL's
marked one for making the rows, and by nothing else: the tokenizer keeps its own. Those marks may be wider than what a
model draws, so the rest of the generation prompt before a message, and what follows its end token, are not learned.

Does NOT cut long conversations: one that does not fit is refused, because a cut one teaches to stop half-way. Does NOT
compare TRL's text with the model's own: for Qwen2.5 it is the same, for models that think it may add an empty thought.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl import get_training_chat_template
from trl.chat_template_utils import has_generation_markers

from agent2.errors import ConfigError

NO_LABEL = -100
"""Label of a token that is not learned."""


def labelled_chats(
    rows: Sequence[Mapping[str, Any]], tokenizer: Any, max_tokens: int, recipe: str
) -> list[dict[str, list[int]]]:
    """Token ids and labels of each conversation, as trainers of transformers take them.

    recipe: for messages. Raises ConfigError naming the first row that has no usable messages, nothing to learn, or
    more than max_tokens tokens, and for a template without generation marks that TRL does not know either.
    """
    marks = _marks(tokenizer, recipe)
    return [_labelled(row, index, marks, max_tokens, recipe) for index, row in enumerate(rows)]


@dataclass(frozen=True, slots=True)
class _Marks:
    """How a tokenizer's conversations tell what the model says."""

    tokenizer: Any
    template: str | None
    """TRL's, in place of the tokenizer's own; None: its own has marks."""
    prompt: Sequence[int] = ()
    """Token ids of the generation prompt; only with TRL's template."""

    def read(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of a conversation, and (first, end) of each stretch that the model is to draw."""
        encoded = self.tokenizer.apply_chat_template(
            [{"role": message["role"], "content": message["content"]} for message in messages],
            chat_template=self.template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids = list(encoded["input_ids"])
        spans = _spans(encoded["assistant_masks"])
        return ids, spans if self.template is None else [self._drawn(ids, first, end) for first, end in spans]

    def _drawn(self, ids: Sequence[int], first: int, end: int) -> tuple[int, int]:
        """A stretch without the part of the generation prompt that reaches into it, and up to its end token."""
        length = len(self.prompt)
        for into in range(length):
            start = first - length + into
            if start >= 0 and list(ids[start : first + into]) == list(self.prompt):
                first += into
                break
        ends = [index for index in range(first, end) if ids[index] == self.tokenizer.eos_token_id]
        return first, ends[-1] + 1 if ends else end


def _marks(tokenizer: Any, recipe: str) -> _Marks:
    own = getattr(tokenizer, "chat_template", None)
    if own and has_generation_markers(own):
        return _Marks(tokenizer, None)
    try:
        template = get_training_chat_template(tokenizer) if own else None
    except ValueError:  # TRL's word for a template that it does not know
        template = None
    if template is None:
        raise ConfigError(
            f"{recipe}: the chat template marks no {{% generation %}}, so assistant tokens cannot be told from others, "
            "and TRL knows no marked one for it; add the marks around assistant content in the model's chat template"
        )
    return _Marks(tokenizer, template, _generation_prompt(tokenizer))


def _generation_prompt(tokenizer: Any) -> list[int]:
    """Token ids of what stands between a user message and the model's."""
    chat = [{"role": "user", "content": "a"}]
    without, with_it = (
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=on) for on in (False, True)
    )
    ids: list[int] = tokenizer(with_it.removeprefix(without), add_special_tokens=False)["input_ids"]
    return ids


def _labelled(row: Mapping[str, Any], index: int, marks: _Marks, max_tokens: int, recipe: str) -> dict[str, list[int]]:
    said = _messages(row, index, recipe)
    ids, spans = marks.read(said)
    if len(ids) > max_tokens:
        raise ConfigError(
            f"{recipe}: row {index} has {len(ids)} tokens, max_tokens is {max_tokens}; raise it or drop the row"
        )
    own = [message for message in said if message["role"] == "assistant"]
    if len(spans) != len(own):
        raise ConfigError(
            f"{recipe}: row {index} has {len(own)} assistant messages, the chat template marks {len(spans)} stretches; "
            "put other messages between them and mark each one with {% generation %}"
        )
    labels = [NO_LABEL] * len(ids)
    for (first, end), message in zip(spans, own, strict=True):
        if message.get("learn", True):
            labels[first:end] = ids[first:end]
    return {"input_ids": ids, "labels": labels}


def _messages(row: Mapping[str, Any], index: int, recipe: str) -> Sequence[Mapping[str, Any]]:
    said = row.get("messages")
    if not isinstance(said, Sequence) or isinstance(said, str) or not said:
        raise ConfigError(f"{recipe}: row {index} has no messages; it has {sorted(row)}")
    for number, message in enumerate(said):
        missing = {"role", "content"} - set(message)
        if missing:
            raise ConfigError(f"{recipe}: row {index}, message {number} has no {' and no '.join(sorted(missing))}")
    if not any(message["role"] == "assistant" and message.get("learn", True) for message in said):
        raise ConfigError(f"{recipe}: row {index} has no assistant message to learn from; drop it")
    return said


def _spans(is_own: Sequence[int]) -> list[tuple[int, int]]:
    """(first, end) of each stretch of ones."""
    edges = [0, *is_own, 0]
    starts = [i for i in range(len(is_own)) if edges[i + 1] and not edges[i]]
    ends = [i + 1 for i in range(len(is_own)) if edges[i + 1] and not edges[i + 2]]
    return list(zip(starts, ends, strict=True))
