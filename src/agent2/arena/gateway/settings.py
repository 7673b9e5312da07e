"""What the gateway is told, and the few records that its rooms share.

Settings cross a process border (JSON on standard input), so they are pydantic records. API keys are
`SecretStr`: they show in no repr and in no dump; only `control` writes them, into the pipe to the process.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints

from agent2.config import StrictModel

BaseUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+(/\S*)?$")]
"""`http://` or `https://`, a host, and perhaps a path."""


class WireProtocol(StrEnum):
    """A way of talking to an LLM over HTTP."""

    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of one call or of many, as the provider counted them."""

    input: int = 0
    """All tokens read, cached ones included."""
    output: int = 0
    """All tokens written, hidden reasoning included."""
    cached_input: int = 0
    """Part of `input`: read from the provider's prompt cache."""
    reasoning: int = 0
    """Part of `output`: reasoning, where the provider tells it apart."""
    cache_write: int = 0
    """Part of `input`: written to a prompt cache that lives for minutes, where that has a price of its own."""
    cache_write_1h: int = 0
    """Part of `input`: written to a prompt cache that lives for an hour."""

    @property
    def total(self) -> int:
        """Input and output: what a budget of tokens is charged."""
        return self.input + self.output

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        return TokenCounts(
            input=self.input + other.input,
            output=self.output + other.output,
            cached_input=self.cached_input + other.cached_input,
            reasoning=self.reasoning + other.reasoning,
            cache_write=self.cache_write + other.cache_write,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
        )


class ProviderEndpoint(StrictModel):
    """Where a protocol is spoken, and with which key."""

    protocol: WireProtocol
    base_url: BaseUrl
    """As the provider's own client libraries want it: `https://api.openai.com/v1`, `https://api.anthropic.com`,
    `https://generativelanguage.googleapis.com`. An OpenAI origin without a path gets `/v1`."""
    api_key: SecretStr


class ReplaySettings(StrictModel):
    """Serve what another trial recorded instead of asking a provider."""

    source: Path
    """The `llm/` folder of the recorded trial."""
    strict: bool = False
    """A request that differs from the recorded one is answered with an error instead of the next recorded answer."""
    volatile: tuple[str, ...] = ()
    """Regular expressions of text that may differ, beside the ones of `masking`."""


class GatewaySettings(StrictModel):
    """One gateway of one trial."""

    socket: Path
    """The unix socket to listen on."""
    record: Path
    """The trial's `llm/` folder; a killed process's work is continued."""
    endpoints: tuple[ProviderEndpoint, ...] = ()
    """One for each protocol that the agent may use; not needed for a replay."""
    model: str
    """The one model that is asked, whatever the agent asks for; as the provider calls it."""
    dummy_key: str = Field(min_length=1)
    """What the agent has in place of a key; a request with another one is refused."""
    prices: Path | None = None
    """A price file that goes before the packaged one."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Budget of tokens, input and output together."""
    max_dollars: float | None = Field(default=None, ge=0)
    """Budget of dollars; wants a model whose price is known."""
    deadline: float | None = None
    """Unix time after which no call is begun."""
    replay: ReplaySettings | None = None
    unlisted_output_tokens: int = Field(default=16_384, ge=1)
    """Output tokens that are reserved for a request that names no limit of its own."""
    max_request_mib: float = Field(default=32.0, gt=0)
    """Largest request body; a larger one is answered with 413."""
    max_calls: int = Field(default=100_000, ge=1)
    """Most calls of a trial, those that the provider refuses among them; they are lines on a disk."""
    max_bodies_mib: float = Field(default=4096.0, gt=0)
    """Most disk for recorded bodies; later ones are counted, but not kept, and cannot be replayed."""
    max_retries: int = Field(default=3, ge=0)
    """Most further attempts after a failure that the provider lets pass (429, 5xx, no connection)."""
    max_retry_wait_s: float = Field(default=60.0, ge=0)
    """Longest wait before one retry; a provider that asks for more gets no retry."""
    idle_timeout_s: float = Field(default=600.0, gt=0)
    """Longest silence of a provider inside one call."""
    redact: tuple[SecretStr, ...] = ()
    """Further text that must reach neither the record nor the agent; API keys are in it without being named."""
