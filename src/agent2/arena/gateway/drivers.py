"""Drivers: the LLMs that an agent can be driven by, by name or by file.

`--driver openai/gpt-5.2` takes a provider of the table below and the model as that provider calls it;
`--driver PATH.yaml` takes any endpoint:

    name: my-model                      # as reports call it
    model: org/my-model                 # as the provider calls it
    provider: lab
    endpoints: {openai-chat: http://10.0.0.5:8000/v1}
    api_key_env: LAB_KEY                # variable of the harness' environment; leave out if none is needed

Does NOT ask a provider whether the model exists: the first call tells.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, SecretStr

from agent2.arena.gateway.settings import BaseUrl, Endpoint, WireProtocol
from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError, unknown_name

OPENAI = "https://api.openai.com/v1"
OPENROUTER = "https://openrouter.ai/api"


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


class Driver(StrictModel):
    """One driver LLM."""

    name: str = Field(min_length=1)
    """As reports call it."""
    model: str = Field(min_length=1)
    """As the provider calls it."""
    provider: str
    endpoints: dict[WireProtocol, BaseUrl] = Field(min_length=1)
    """Base URL of each protocol that the provider speaks; see `Endpoint.base_url`."""
    api_key_env: str = ""
    """Variable of the harness' environment that holds the key; empty: the endpoint wants none."""

    def require(self, protocol: WireProtocol) -> None:
        """Raise ConfigError if the provider does not speak a protocol that an agent needs."""
        if protocol not in self.endpoints:
            raise ConfigError(
                f"driver {self.name!r} speaks {', '.join(self.endpoints)}, the agent needs {protocol.value}; choose "
                f"another driver, or name an endpoint for {protocol.value} in a driver file"
            )

    def resolved(self, environment: Mapping[str, str] = os.environ) -> tuple[Endpoint, ...]:
        """The endpoints with their key. Raises ConfigError if the variable of the key is not set."""
        key = environment.get(self.api_key_env, "") if self.api_key_env else ""
        if self.api_key_env and not key:
            raise ConfigError(
                f"driver {self.name!r}: the variable {self.api_key_env} is not set; export the API key of "
                f"{self.provider} there (it goes to the gateway only, never to the agent)"
            )
        return tuple(
            Endpoint(protocol=protocol, base_url=url, api_key=SecretStr(key))
            for protocol, url in self.endpoints.items()
        )


def load_driver(name_or_path: str) -> Driver:
    """A driver by `provider/model`, or from a YAML file (a path that ends in .yaml or .yml, or names a file).

    Raises ConfigError for a provider that is in no table, a name without a model, or a bad file.
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
    known = PROVIDERS[provider]
    return Driver(
        name=name_or_path, model=model, provider=provider, endpoints=known.endpoints, api_key_env=known.api_key_env
    )
