"""From the tokens of a completion to its text, with the marks that tell thought and answer apart.

Many tokenizers call those marks special, and decoding drops special tokens; many templates write the opening mark at
the end of the prompt, so that the model never does. The text has both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent2.llm.thoughts import CHANNEL_MARKS, MARKS, OPENINGS

OPENING_TOKENS = 24
"""Tokens at the end of a prompt that may be an opening mark, also for a tokenizer of characters."""


class TextDecoder:
    """Decodes completions of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        special = {token: str(entry.content) for token, entry in added.items() if entry.special}
        # Other models use names such as <|end|> for other things.
        marks = set(MARKS) if "<|channel|>" in special.values() else set(MARKS) - set(CHANNEL_MARKS)
        self._marks = {token: text for token, text in special.items() if text in marks}

    def text_of(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """The text of new tokens, after the opening mark with which the prompt ends, if it ends with one.

        Special tokens are left out, but for the marks.
        """
        opening = self._opening_in(prompt)
        if self._marks.keys().isdisjoint(tokens):
            return opening + str(self._tokenizer.decode(tokens, skip_special_tokens=True))
        pieces, first = [opening], 0
        for position, token in enumerate(tokens):
            if token in self._marks:
                between = self._tokenizer.decode(tokens[first:position], skip_special_tokens=True)
                pieces += [between, self._marks[token]]
                first = position + 1
        return "".join([*pieces, self._tokenizer.decode(tokens[first:], skip_special_tokens=True)])

    def _opening_in(self, prompt: Sequence[int]) -> str:
        tail = str(self._tokenizer.decode(list(prompt[-OPENING_TOKENS:]), skip_special_tokens=False))
        opening = next((mark for mark in OPENINGS if tail.rstrip().endswith(mark)), None)
        return "" if opening is None else tail[tail.rindex(opening) :]
