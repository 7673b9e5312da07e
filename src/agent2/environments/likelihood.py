"""Questions that a model answers by how likely it finds each answer; it writes nothing.

The answers are the letters of the options where the prompt shows them, else their texts, else the reference alone (a
completion). The model's message is a JSON object of lists, one entry an answer: `logprobs` (nats), `n_tokens` and
`is_greedy`. Chosen is the answer with the highest log-probability, as a sum or for each byte or token of the answer.
Any other message is an answer in words, as players in checks give it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from agent2.environments import QuestionEnvironment
from agent2.errors import unknown_name
from agent2.llm.untrusted import as_object
from agent2.records import AnswerOffer, Item, JsonValue, Message, Step

BY = ("sum", "bytes", "tokens")
"""What log-probabilities are divided by: nothing, or the length of the answer."""


class LikelihoodEnvironment(QuestionEnvironment):
    """Offers the answers of one question."""

    name, version = "likelihood", "1.0"

    def __init__(
        self,
        system: str | None = None,
        examples: Sequence[tuple[str, str]] = (),
        *,
        by: str = "sum",
        chat: bool = False,
        letters: bool = False,
    ) -> None:
        """by: one of `BY`. chat: whether the question is a chat message, in place of text to continue.

        letters: whether options are answered by their letters. Raises ConfigError for an unknown `by`.
        """
        super().__init__(system, examples)
        if by not in BY:
            raise unknown_name("by", by, BY, "environment likelihood")
        self._by, self._is_chat, self._has_letters = by, chat, letters
        self._opening: Sequence[Message] = ()
        self._answers: list[str] = []
        self._options: list[str] = []
        self._likelihoods: dict[str, JsonValue] = {}

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The question, after examples. Raises EnvironmentFailed when reused."""
        self._opening = super().reset(item, seed)
        self._options = [str(option) for option in item.payload.get("options") or ()]
        letters = list(ascii_uppercase[: len(self._options)])
        self._answers = letters if self._has_letters else self._options or [item.reference or ""]
        return self._opening

    def offered_answers(self) -> AnswerOffer:
        """The answers to be compared, and the text that they continue."""
        if self._is_chat:
            return AnswerOffer(None, self._answers)
        messages = [message.text for message in self._opening]
        parts = [messages.pop(0)] if self._opening[0].role == "system" else []
        parts += [_joined(question, answer) for question, answer in zip(messages[:-1:2], messages[1::2], strict=True)]
        text = "\n\n".join([*parts, messages[-1]])
        return AnswerOffer(text, [_joined(text, answer)[len(text) :] for answer in self._answers])

    def act(self, action: str) -> Step:
        """Take the likelihoods, or an answer in words."""
        self._likelihoods = _read_likelihoods(action, len(self._answers))
        return super().act(self._chosen() if self._likelihoods else action)

    def state(self) -> Mapping[str, JsonValue]:
        """`answer` (a letter where there are options), and of a model's likelihoods `by` and what it gave."""
        if not self._likelihoods:
            return super().state()
        lengths = [len(answer.encode()) for answer in self._answers]
        return {**super().state(), "by": self._by, "n_bytes": lengths, **self._likelihoods}

    def _chosen(self) -> str:
        if not self._options:
            return self._answers[0]
        lengths = [len(answer.encode()) for answer in self._answers]
        return ascii_uppercase[best_answer({**self._likelihoods, "n_bytes": lengths}, self._by)]


def best_answer(likelihoods: Mapping[str, JsonValue], by: str) -> int:
    """The index of the likeliest answer; of equal ones the first. by: one of `BY`."""
    logprobs = likelihoods["logprobs"]
    lengths = {"sum": [1] * len(logprobs), "bytes": likelihoods["n_bytes"], "tokens": likelihoods["n_tokens"]}[by]
    values = [logprob / max(1, length) for logprob, length in zip(logprobs, lengths, strict=True)]
    return max(range(len(values)), key=lambda index: (values[index], -index))


def _joined(text: str, answer: str) -> str:
    """A text with its answer; one blank between them where neither has one."""
    return text + ("" if not text or text[-1].isspace() or answer[:1].isspace() else " ") + answer


def _read_likelihoods(text: str, n_answers: int) -> dict[str, JsonValue]:
    """The lists of a message of likelihoods; empty for any other message."""
    if not text.startswith("{"):
        return {}
    try:
        record = as_object(json.loads(text))
    except (ValueError, RecursionError):
        return {}
    lists = [record.get(key) for key in ("logprobs", "n_tokens", "is_greedy")]
    if not all(isinstance(values, list) and len(values) == n_answers for values in lists):
        return {}
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in record["logprobs"]):
        return {}
    return {key: record[key] for key in ("logprobs", "n_tokens", "is_greedy")}
