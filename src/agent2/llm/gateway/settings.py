"""Settings of the gateway, the packaged providers, and prices.

Settings cross a process border (JSON on standard input), so they are pydantic records. API keys are `SecretStr`: they
show in no repr and no dump; only `supervisor` writes them, into the pipe to the gateway's process.

`prices.yaml` says when and where each price was read; `--prices FILE` has precedence, model by model. A model that is
in neither has no price, so its cost is None, never 0. Does NOT know discounts, batch or priority tiers, regional
surcharges and fees of the provider's own tools.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import resources
from pathlib import Path

from pydantic import Field, SecretStr

from agent2.config import StrictModel, load_yaml, parse_yaml
from agent2.errors import ConfigError, unknown_name
from agent2.llm.records import BaseUrl, Driver, ProviderEndpoint, TokenCounts, WireProtocol

PER = 1_000_000
"""Prices are dollars for this many tokens."""
_SUFFIX = re.compile(r"(-latest|-\d{8}|-\d{4}-\d{2}-\d{2}|-\d{2}-\d{2}|-\d{3})$")
OPENAI = "https://api.openai.com/v1"
OPENROUTER = "https://openrouter.ai/api"


class ReplaySettings(StrictModel):
    """Serve what another trial recorded instead of asking a provider."""

    source: Path
    """The `llm/` folder of the recorded trial."""
    strict: bool = False
    """A request that differs from the recorded one is answered with an error instead of the next recorded answer."""
    volatile: tuple[str, ...] = ()
    """Regular expressions of text that may differ, beside `answers.VOLATILE_TEXT`."""


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
    """A price file that has precedence over the packaged one."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Budget of tokens, input and output together."""
    max_dollars: float | None = Field(default=None, ge=0)
    """Budget of dollars; needs a model whose price is known."""
    deadline: float | None = None
    """Unix time after which no call is started."""
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


class Rates(StrictModel):
    """Dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    """Reasoning included."""
    cached_input: float | None = Field(default=None, ge=0)
    """Absent: no discount, a cached token costs what any input token costs."""
    cache_write: float | None = Field(default=None, ge=0)
    """Absent: no surcharge."""
    cache_write_1h: float | None = Field(default=None, ge=0)
    """Absent: as `cache_write`."""

    def dollars(self, tokens: TokenCounts) -> float:
        """What one call costs."""
        write = self.input if self.cache_write is None else self.cache_write
        write_1h = write if self.cache_write_1h is None else self.cache_write_1h
        cached = self.input if self.cached_input is None else self.cached_input
        plain = max(0, tokens.input - tokens.cached_input - tokens.cache_write - tokens.cache_write_1h)
        total = (
            plain * self.input
            + tokens.cached_input * cached
            + tokens.cache_write * write
            + tokens.cache_write_1h * write_1h
            + tokens.output * self.output
        )
        return total / PER


class LongRates(Rates):
    """The rates of a call whose input is longer than `above`; all of its tokens cost these."""

    above: int = Field(gt=0)


class ModelPrice(Rates):
    """One model."""

    long: LongRates | None = None
    source: str = Field(min_length=1)
    """Where the price was read."""
    read: date | None = None
    """When, where it differs from the table's date."""


class PriceFile(StrictModel):
    """A price file."""

    date: date
    """When the prices were read."""
    note: str = ""
    models: dict[str, ModelPrice] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """The packaged prices below those of the user's file."""

    files: tuple[PriceFile, ...]
    """The first that knows a model decides."""

    def find(self, model: str) -> ModelPrice | None:
        """The price of a model: by its name, then without a date or version at its end.

        A name such as `gpt-x-mini` is never priced as `gpt-x`.
        """
        name = model.removeprefix("models/")  # Gemini's way to write a name
        for candidate in (name, _SUFFIX.sub("", name)):
            for file in self.files:
                if candidate in file.models:
                    return file.models[candidate]
        return None

    def cost(self, model: str, tokens: TokenCounts) -> float | None:
        """Dollars of one call, or None if the price of the model is unknown.

        Per call, not of a sum: a long call may have rates of its own.
        """
        price = self.find(model)
        if price is None:
            return None
        if price.long is not None and tokens.input > price.long.above:
            return price.long.dollars(tokens)
        return price.dollars(tokens)


def load_prices(path: Path | None = None) -> PriceTable:
    """The packaged table, below a user's file if there is one. Raises ConfigError for a bad file."""
    packaged = resources.files("agent2.llm.gateway") / "prices.yaml"
    table = parse_yaml(packaged.read_text(encoding="utf-8"), PriceFile, "prices.yaml")
    return PriceTable((table,) if path is None else (load_yaml(path, PriceFile), table))


class Provider(StrictModel):
    """Where a provider speaks which protocol."""

    endpoints: dict[WireProtocol, BaseUrl]
    api_key_env: str


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(
        endpoints={WireProtocol.OPENAI_CHAT: OPENAI, WireProtocol.OPENAI_RESPONSES: OPENAI},
        api_key_env="OPENAI_API_KEY",
    ),
    "anthropic": Provider(
        endpoints={
            WireProtocol.ANTHROPIC: "https://api.anthropic.com",
            WireProtocol.OPENAI_CHAT: "https://api.anthropic.com/v1",
        },
        api_key_env="ANTHROPIC_API_KEY",
    ),
    "google": Provider(
        endpoints={
            WireProtocol.GEMINI: "https://generativelanguage.googleapis.com",
            WireProtocol.OPENAI_CHAT: "https://generativelanguage.googleapis.com/v1beta/openai",
        },
        api_key_env="GEMINI_API_KEY",
    ),
    "openrouter": Provider(
        endpoints={
            WireProtocol.OPENAI_CHAT: f"{OPENROUTER}/v1",
            WireProtocol.OPENAI_RESPONSES: f"{OPENROUTER}/v1",
            WireProtocol.ANTHROPIC: OPENROUTER,
        },
        api_key_env="OPENROUTER_API_KEY",
    ),
}


def load_driver(name_or_path: str) -> Driver:
    """A driver by `provider/model`, or from a YAML file (a path that ends in .yaml or .yml, or names a file).

    Raises ConfigError for an unknown provider, a name without a model, or a bad file.
    """
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or path.is_file():
        return load_yaml(path, Driver)
    provider, _, model = name_or_path.partition("/")
    if not model:
        raise ConfigError(
            f"--driver {name_or_path}: write PROVIDER/MODEL (providers: {', '.join(sorted(PROVIDERS))}) or the path "
            "of a driver file; see docs/llm-gateway.md"
        )
    if provider not in PROVIDERS:
        raise unknown_name("provider", provider, PROVIDERS, f"--driver {name_or_path}")
    entry = PROVIDERS[provider]
    return Driver(
        name=name_or_path, model=model, provider=provider, endpoints=entry.endpoints, api_key_env=entry.api_key_env
    )
