"""Which request is which: the protocol and the kind of a path, and where it goes at the provider.

A path that is not listed is answered with 404: the gateway is no way to the rest of a provider's API.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, urlsplit

from agent2.arena.gateway.settings import Endpoint, WireProtocol


class Kind(StrEnum):
    """What a request asks for."""

    GENERATE = "generate"
    COUNT = "count"
    """Count the tokens of a request; free of charge."""
    MODELS = "models"
    """Which models there are; answered here."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a path means."""

    protocol: WireProtocol
    kind: Kind
    model: str | None = None
    """Where the path names it (Gemini)."""
    stream: bool | None = None
    """Where the path says it (Gemini)."""
    version: str = "v1beta"
    """Where the path says it (Gemini)."""


_POST: Mapping[str, Route] = {
    "/v1/chat/completions": Route(WireProtocol.OPENAI_CHAT, Kind.GENERATE),
    "/v1/responses": Route(WireProtocol.OPENAI_RESPONSES, Kind.GENERATE),
    "/v1/messages": Route(WireProtocol.ANTHROPIC, Kind.GENERATE),
    "/v1/messages/count_tokens": Route(WireProtocol.ANTHROPIC, Kind.COUNT),
}
_MODEL = r"[^/:]+(?:/[^/:]+)*"
"""A model's name; `org/model` is one, too."""
_GEMINI = re.compile(rf"/(v1(?:beta|alpha)?)/models/({_MODEL}):(generateContent|streamGenerateContent|countTokens)")
_MODELS = re.compile(rf"/v1(beta|alpha)?/models(?:/{_MODEL}(?::[^/:]+)?)?")
_UPSTREAM = {
    WireProtocol.OPENAI_CHAT: "/chat/completions",
    WireProtocol.OPENAI_RESPONSES: "/responses",
    WireProtocol.ANTHROPIC: "/v1/messages",
}
_OPENAI = frozenset({WireProtocol.OPENAI_CHAT, WireProtocol.OPENAI_RESPONSES})
_QUERY = frozenset({"alt", "beta", "api-version"})
"""Parameters that are passed on; `key` would be the dummy."""
_HEADERS = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "openai-beta",
        "user-agent",
        "x-goog-api-client",
    }
)
"""Headers that are passed on."""


def find_route(method: str, path: str, headers: Mapping[str, str]) -> Route | None:
    """What a request is; None for a path that the gateway does not serve."""
    if method == "POST":
        if path in _POST:
            return _POST[path]
        if match := _GEMINI.fullmatch(path):
            version, model, verb = match.groups()
            kind = Kind.COUNT if verb == "countTokens" else Kind.GENERATE
            return Route(WireProtocol.GEMINI, kind, model, verb == "streamGenerateContent", version)
    if method in {"GET", "HEAD"} and (match := _MODELS.fullmatch(path)):
        if match.group(1) or "x-goog-api-key" in headers:
            return Route(WireProtocol.GEMINI, Kind.MODELS)
        is_anthropic = "anthropic-version" in headers
        return Route(WireProtocol.ANTHROPIC if is_anthropic else WireProtocol.OPENAI_CHAT, Kind.MODELS)
    return None


def guess_protocol(path: str, headers: Mapping[str, str]) -> WireProtocol:
    """The protocol in whose shape an error is told to somebody who asked for an unknown path."""
    if "anthropic-version" in headers or "/messages" in path:
        return WireProtocol.ANTHROPIC
    if "x-goog-api-key" in headers or path.startswith(("/v1beta", "/v1alpha")):
        return WireProtocol.GEMINI
    return WireProtocol.OPENAI_RESPONSES if "/responses" in path else WireProtocol.OPENAI_CHAT


def given_key(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The key that a request carries, in whichever way its protocol does."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or query.get("key", "")


def upstream_url(endpoint: Endpoint, route: Route, model: str, query: Mapping[str, str]) -> str:
    """Where the request goes at the provider."""
    base = endpoint.base_url.rstrip("/")
    if route.protocol in _OPENAI and not urlsplit(base).path:
        base += "/v1"
    if route.protocol is WireProtocol.GEMINI:
        if route.kind is Kind.COUNT:
            verb = "countTokens"
        else:
            verb = "streamGenerateContent" if route.stream else "generateContent"
        path = f"/{route.version}/models/{quote(model, safe='/')}:{verb}"
    else:
        path = _UPSTREAM[route.protocol] + ("/count_tokens" if route.kind is Kind.COUNT else "")
    kept = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items() if name in _QUERY)
    return f"{base}{path}" + (f"?{kept}" if kept else "")


def upstream_headers(endpoint: Endpoint, headers: Mapping[str, str]) -> dict[str, str]:
    """What is sent to the provider: a few of the agent's headers, and the real key."""
    sent = {name.lower(): value for name, value in headers.items() if name.lower() in _HEADERS}
    sent["accept-encoding"] = "identity"
    sent.setdefault("content-type", "application/json")
    key = endpoint.api_key.get_secret_value()
    if key:
        if endpoint.protocol is WireProtocol.ANTHROPIC:
            sent["x-api-key"] = key
            if not (urlsplit(endpoint.base_url).hostname or "").endswith("anthropic.com"):
                sent["authorization"] = f"Bearer {key}"  # what others that speak the protocol want
        elif endpoint.protocol is WireProtocol.GEMINI:
            sent["x-goog-api-key"] = key
        else:
            sent["authorization"] = f"Bearer {key}"
    if endpoint.protocol is WireProtocol.ANTHROPIC:
        sent.setdefault("anthropic-version", "2023-06-01")
    return sent
