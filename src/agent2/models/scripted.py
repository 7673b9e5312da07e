"""The shipped fake: a sampler that answers at once with what a function says.

For tests, demos and overhead measurements. It has no tokenizer: token counts are 0 unless the script
returns whole completions. Does NOT draw anything: temperature and seed are ignored.
"""

from collections.abc import Callable, Sequence

from agent2.errors import ConfigError, SamplerFailed, shown
from agent2.records import Completion, JsonValue, Message, Prompt, SamplingSettings

Reply = Callable[[Sequence[Message]], str | Completion]
"""From the chat so far to the next message, or to a whole completion (a fault, token counts)."""


class ScriptedSampler:
    """Answers each request with `reply(messages)`; done as soon as it is submitted."""

    def __init__(self, reply: Reply, capacity: int = 1024) -> None:
        self.capacity = capacity
        self._reply = reply
        self._done: dict[int, Completion] = {}

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Answer the chat at once. Raises SamplerFailed for an id in flight and for token-id prompts."""
        if request_id in self._done:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request a unique id")
        messages = [message for message in prompt if isinstance(message, Message)]
        if len(messages) != len(prompt):
            raise SamplerFailed("a scripted sampler reads messages, not token ids; submit a chat")
        reply = self._reply(messages)
        if not isinstance(reply, str | Completion):
            raise ConfigError(f"the scripted function returned {shown(reply)}; return a str or a Completion")
        self._done[request_id] = Completion(reply) if isinstance(reply, str) else reply

    def collect(self) -> list[tuple[int, Completion]]:
        """All requests since the last call, in the order in which they came."""
        done = list(self._done.items())
        self._done.clear()
        return done

    def describe(self) -> dict[str, JsonValue]:
        """Says that no model was involved."""
        return {"kind": "scripted", "model": None}

    def close(self) -> None:
        """Forget what was not collected."""
        self._done.clear()
