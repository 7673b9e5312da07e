"""What each path of the four wire protocols is, where it leads at the provider, and the gateway's own answers.

A path that is not listed is answered with 404: the gateway is no way to the rest of a provider's API. The statuses of
its own answers are chosen by what the agents do with them: 429 and 5xx make all of them try again, so a spent budget is
neither.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from urllib.parse import quote, urlsplit

from agent2.llm.records import ProviderEndpoint, WireProtocol
from agent2.records import JsonValue

_MODEL = r"(?!\.{1,2}(?:/|:|$))[^/:]+(?:/(?!\.{1,2}(?:/|:|$))[^/:]+)*"
"""A model's name; `org/model` is one, too. No part is `.` or `..`: clients and proxies resolve those in an address."""
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
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
}
_GEMINI_STATUS = {
    400: "FAILED_PRECONDITION",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_SPENT_STATUS = {
    WireProtocol.OPENAI_CHAT: 403,  # clients in Python try 400 again
    WireProtocol.OPENAI_RESPONSES: 400,
    WireProtocol.ANTHROPIC: 402,  # 400 makes Claude Code try other shapes of the same request
    WireProtocol.GEMINI: 400,
}


class RequestKind(StrEnum):
    """What a request asks for."""

    GENERATE = "generate"
    COUNT = "count"
    """Count the tokens of a request; free of charge."""
    MODELS = "models"
    """Which models there are; answered here."""


@dataclass(frozen=True, slots=True)
class WireRoute:
    """What a path means."""

    protocol: WireProtocol
    kind: RequestKind
    model: str | None = None
    """Where the path names it (Gemini)."""
    stream: bool | None = None
    """Where the path says it (Gemini)."""
    version: str = "v1beta"
    """Where the path says it (Gemini)."""


_POST: Mapping[str, WireRoute] = {
    "/v1/chat/completions": WireRoute(WireProtocol.OPENAI_CHAT, RequestKind.GENERATE),
    "/v1/responses": WireRoute(WireProtocol.OPENAI_RESPONSES, RequestKind.GENERATE),
    "/v1/messages": WireRoute(WireProtocol.ANTHROPIC, RequestKind.GENERATE),
    "/v1/messages/count_tokens": WireRoute(WireProtocol.ANTHROPIC, RequestKind.COUNT),
}


def find_route(method: str, path: str, headers: Mapping[str, str]) -> WireRoute | None:
    """What a request is; None for a path that the gateway does not serve."""
    if method == "POST":
        if path in _POST:
            return _POST[path]
        if match := _GEMINI.fullmatch(path):
            version, model, verb = match.groups()
            kind = RequestKind.COUNT if verb == "countTokens" else RequestKind.GENERATE
            return WireRoute(WireProtocol.GEMINI, kind, model, verb == "streamGenerateContent", version)
    if method in {"GET", "HEAD"} and (match := _MODELS.fullmatch(path)):
        if match.group(1) or "x-goog-api-key" in headers:
            return WireRoute(WireProtocol.GEMINI, RequestKind.MODELS)
        is_anthropic = "anthropic-version" in headers
        return WireRoute(WireProtocol.ANTHROPIC if is_anthropic else WireProtocol.OPENAI_CHAT, RequestKind.MODELS)
    return None


def guess_protocol(path: str, headers: Mapping[str, str]) -> WireProtocol:
    """The protocol in whose shape an error is returned for an unknown path."""
    if "anthropic-version" in headers or "/messages" in path:
        return WireProtocol.ANTHROPIC
    if "x-goog-api-key" in headers or path.startswith(("/v1beta", "/v1alpha")):
        return WireProtocol.GEMINI
    return WireProtocol.OPENAI_RESPONSES if "/responses" in path else WireProtocol.OPENAI_CHAT


def request_key(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The key that a request carries, in whichever way its protocol does."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or query.get("key", "")


def upstream_url(endpoint: ProviderEndpoint, route: WireRoute, model: str, query: Mapping[str, str]) -> str:
    """Where the request goes at the provider."""
    base = endpoint.base_url.rstrip("/")
    if route.protocol in _OPENAI and not urlsplit(base).path:
        base += "/v1"
    if route.protocol is WireProtocol.GEMINI:
        if route.kind is RequestKind.COUNT:
            verb = "countTokens"
        else:
            verb = "streamGenerateContent" if route.stream else "generateContent"
        path = f"/{route.version}/models/{quote(model, safe='/')}:{verb}"
    else:
        path = _UPSTREAM[route.protocol] + ("/count_tokens" if route.kind is RequestKind.COUNT else "")
    passed_on = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items() if name in _QUERY)
    return f"{base}{path}" + (f"?{passed_on}" if passed_on else "")


def upstream_headers(endpoint: ProviderEndpoint, headers: Mapping[str, str]) -> dict[str, str]:
    """What is sent to the provider: a few of the agent's headers, and the real key."""
    sent = {name.lower(): value for name, value in headers.items() if name.lower() in _HEADERS}
    sent["accept-encoding"] = "identity"  # secrets and usage are searched for in plain text
    sent.setdefault("content-type", "application/json")
    key = endpoint.api_key.get_secret_value()
    if key:
        if endpoint.protocol is WireProtocol.ANTHROPIC:
            sent["x-api-key"] = key
            if not (urlsplit(endpoint.base_url).hostname or "").endswith("anthropic.com"):
                sent["authorization"] = f"Bearer {key}"  # other servers that speak the protocol want this header
        elif endpoint.protocol is WireProtocol.GEMINI:
            sent["x-goog-api-key"] = key
        else:
            sent["authorization"] = f"Bearer {key}"
    if endpoint.protocol is WireProtocol.ANTHROPIC:
        sent.setdefault("anthropic-version", "2023-06-01")
    return sent


class ApiProblem(Enum):
    """Why the gateway did not pass a request on."""

    BUDGET = "budget"
    DEADLINE = "deadline"
    BAD_REQUEST = "bad request"
    UNKNOWN_PATH = "unknown path"
    WRONG_KEY = "wrong key"
    TOO_LARGE = "too large"
    NO_ENDPOINT = "no endpoint"
    NO_PROVIDER = "no provider"
    PROVIDER_SLOW = "provider slow"
    NO_RECORD = "no record"
    REPLAY = "replay"


_STATUS = {
    ApiProblem.BAD_REQUEST: 400,
    ApiProblem.UNKNOWN_PATH: 404,
    ApiProblem.WRONG_KEY: 401,
    ApiProblem.TOO_LARGE: 413,
    ApiProblem.NO_ENDPOINT: 400,
    ApiProblem.NO_PROVIDER: 502,
    ApiProblem.PROVIDER_SLOW: 504,
    ApiProblem.NO_RECORD: 503,
    ApiProblem.REPLAY: 400,
}
_SPENT = frozenset({ApiProblem.BUDGET, ApiProblem.DEADLINE})


def status_of(problem: ApiProblem, protocol: WireProtocol) -> int:
    """The HTTP status of a problem.

    What a spent budget is: the one that each protocol's agents take as final (measured with their binaries).
    """
    return _SPENT_STATUS[protocol] if problem in _SPENT else _STATUS[problem]


def error_body(problem: ApiProblem, protocol: WireProtocol, sentence: str) -> dict[str, JsonValue]:
    """The error as the protocol's clients understand it."""
    status = status_of(problem, protocol)
    if protocol is WireProtocol.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": sentence}}
    if protocol is WireProtocol.GEMINI:
        return {"error": {"code": status, "message": sentence, "status": _GEMINI_STATUS[status]}}
    code = "insufficient_quota" if problem in _SPENT else problem.value.replace(" ", "_")
    kind = code if problem in _SPENT else ("server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": sentence, "type": kind, "param": None, "code": code}}


def models_body(protocol: WireProtocol, model: str, is_one: bool) -> dict[str, JsonValue]:
    """The one model that there is; is_one: as the answer for one model, not as a list."""
    if protocol is WireProtocol.GEMINI:
        entry: dict[str, JsonValue] = {
            "name": f"models/{model}",
            "displayName": model,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
        return entry if is_one else {"models": [entry]}
    if protocol is WireProtocol.ANTHROPIC:
        entry = {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
        return entry if is_one else {"data": [entry], "has_more": False, "first_id": model, "last_id": model}
    entry = {"id": model, "object": "model", "created": 0, "owned_by": "agent2"}
    return entry if is_one else {"object": "list", "data": [entry], "models": []}
