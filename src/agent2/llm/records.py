"""Records about LLMs: wire protocols, drivers (the LLMs that an agent can be driven by), counts of tokens and of calls.

`--driver openai/gpt-5.2` takes a provider of the table of `gateway.settings` and the model as that provider calls it;
`--driver PATH.yaml` takes any endpoint:

    name: my-model                      # as reports call it
    model: org/my-model                 # as the provider calls it
    provider: lab
    endpoints: {openai-chat: http://10.0.0.5:8000/v1}
    api_key_env: LAB_KEY                # variable of the harness' environment; leave out if none is needed

A driver names the variable of its key, never the key itself.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints

from agent2.config import StrictModel
from agent2.errors import ConfigError

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
    """Part of `output`: reasoning, where the provider reports it separately."""
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
    """The address at which a provider speaks a protocol, and the key for it."""

    protocol: WireProtocol
    base_url: BaseUrl
    """As the provider's own client libraries expect it: `https://api.openai.com/v1`, `https://api.anthropic.com`,
    `https://generativelanguage.googleapis.com`. An OpenAI origin without a path gets `/v1`."""
    api_key: SecretStr


class Driver(StrictModel):
    """One driver LLM."""

    name: str = Field(min_length=1)
    """As reports call it."""
    model: str = Field(min_length=1)
    """As the provider calls it."""
    provider: str
    endpoints: dict[WireProtocol, BaseUrl] = Field(min_length=1)
    """Base URL of each protocol that the provider speaks; see `ProviderEndpoint.base_url`."""
    api_key_env: str = ""
    """Variable of the harness' environment that holds the key; empty: the endpoint needs none."""

    def require(self, protocol: WireProtocol) -> None:
        """Raise ConfigError if the provider does not speak a protocol that an agent needs."""
        if protocol not in self.endpoints:
            raise ConfigError(
                f"driver {self.name!r} speaks {', '.join(self.endpoints)}, the agent needs {protocol.value}; choose "
                f"another driver, or name an endpoint for {protocol.value} in a driver file"
            )

    def resolved(self, environment: Mapping[str, str] = os.environ) -> tuple[ProviderEndpoint, ...]:
        """The endpoints with their key. Raises ConfigError if the variable of the key is not set."""
        key = environment.get(self.api_key_env, "") if self.api_key_env else ""
        if self.api_key_env and not key:
            raise ConfigError(
                f"driver {self.name!r}: the variable {self.api_key_env} is not set; export the API key of "
                f"{self.provider} there (it goes to the gateway only, never to the agent)"
            )
        return tuple(
            ProviderEndpoint(protocol=protocol, base_url=url, api_key=SecretStr(key))
            for protocol, url in self.endpoints.items()
        )


@dataclass(frozen=True, slots=True)
class LlmTotals:
    """What the calls of a trial add up to."""

    calls: int
    """Accepted ones, refused ones not among them."""
    tokens: TokenCounts
    dollars: float | None
    """Of the calls whose cost is known; None if there were calls to be paid and the cost of none is known."""
    n_unknown_cost: int
    """Calls that `dollars` leaves out."""
    n_failed: int
    n_partial: int
    n_lost: int
    n_refused: int
    n_uncounted: int
    """Answered calls without usage and without an estimate: their tokens are 0 or partial, and the truth is more."""
    n_replayed: int
    """Served from a recording; their tokens and dollars are the recorded ones, and nothing was paid."""
    retries: int
    n_estimated: int = 0
    """Answered calls for which the provider reported no usable usage: their tokens are our estimate."""
    by_model: dict[str, TokenCounts] = field(default_factory=dict)
    """By the model that was asked of the provider."""
