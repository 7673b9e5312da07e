"""A conversation as token ids that only ever grow: what was drawn stays as it was drawn.

Rendering a conversation again after each message may tokenise the model's own words differently from how it drew
them. Here the opening is rendered once with the model's chat template; after that come the drawn tokens as they
are, and the template's text between one model message and the next around each observation.

Promises: for text that the tokenizer encodes in one way, the ids equal those of the whole conversation rendered
at once (`matches_template` says whether they do). Does NOT work for templates that rewrite earlier messages when
later ones come, or whose model messages end without an end token: they are refused.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from agent2.errors import ConfigError
from agent2.records import Message

REMEMBERED = 65536
"""Observations whose token ids are kept."""


class ChatTokens:
    """The chat template of one tokenizer, cut into pieces that can be appended."""

    def __init__(self, tokenizer: Any) -> None:
        """Raises ConfigError for a tokenizer without a template, or with one that cannot be appended to."""
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("the model has no chat template; multi-turn training needs one in its tokenizer")
        if tokenizer.eos_token_id is None:
            raise ConfigError("the tokenizer has no end token (eos_token); pass the one that ends a message")
        self.end = int(tokenizer.eos_token_id)
        """Ends a model message."""
        self._tokenizer = tokenizer
        self._head = self._text([Message("user", "a"), Message("assistant", "b")], prompt=False)
        end_text = tokenizer.convert_ids_to_tokens(self.end)
        _, found, self._tail = self._head.rpartition(end_text)
        if not found:
            raise ConfigError(
                f"the chat template ends no assistant message with {end_text!r}; set eos_token to the token that does"
            )
        self.reply = lru_cache(maxsize=REMEMBERED)(self._reply)
        """Token ids from the end token of one model message (not included) to the start of the next one."""

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the opening messages, up to where the model's first message begins."""
        return self._ids(self._text(messages, prompt=True))

    def _reply(self, observation: str) -> tuple[int, ...]:
        chat = [Message("user", "a"), Message("assistant", "b"), Message("user", observation)]
        text = self._text(chat, prompt=True)
        if not text.startswith(self._head):
            raise ConfigError("the chat template rewrites earlier messages when later ones come; use one that does not")
        return tuple(self._ids(self._tail + text[len(self._head) :]))

    def _text(self, messages: Sequence[Message], *, prompt: bool) -> str:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
        return text

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def matches_template(tokenizer: Any, messages: Sequence[Message]) -> bool:
    """Whether a conversation put together piece by piece gives the ids of the whole one rendered at once.

    messages: user and assistant in turn, ending with a user message.
    """
    chat = ChatTokens(tokenizer)
    ids = chat.opening(messages[:1])
    for said, observed in zip(messages[1::2], messages[2::2], strict=True):
        ids += [
            *tokenizer(said.content, add_special_tokens=False)["input_ids"],
            chat.end,
            *chat.reply(observed.content),
        ]
    return ids == chat.opening(messages)
