"""What the gateway says itself, in the words of each protocol: errors, and which models there are.

The statuses are chosen by what the agents do with them: 429 and 5xx make all of them try again, so a spent budget
is neither.
"""

from enum import Enum

from agent2.arena.gateway.settings import WireProtocol
from agent2.records import JsonValue


class Problem(Enum):
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
    Problem.BAD_REQUEST: 400,
    Problem.UNKNOWN_PATH: 404,
    Problem.WRONG_KEY: 401,
    Problem.TOO_LARGE: 413,
    Problem.NO_ENDPOINT: 400,
    Problem.NO_PROVIDER: 502,
    Problem.PROVIDER_SLOW: 504,
    Problem.NO_RECORD: 503,
    Problem.REPLAY: 400,
}
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
_SPENT = frozenset({Problem.BUDGET, Problem.DEADLINE})
_SPENT_STATUS = {
    WireProtocol.OPENAI_CHAT: 403,  # clients in Python try 400 again
    WireProtocol.OPENAI_RESPONSES: 400,
    WireProtocol.ANTHROPIC: 402,  # 400 makes Claude Code try other shapes of the same request
    WireProtocol.GEMINI: 400,
}


def status_of(problem: Problem, protocol: WireProtocol) -> int:
    """The HTTP status that tells a problem.

    What a spent budget is: the one that each protocol's agents take as final (measured with their binaries).
    """
    return _SPENT_STATUS[protocol] if problem in _SPENT else _STATUS[problem]


def error_body(problem: Problem, protocol: WireProtocol, sentence: str) -> dict[str, JsonValue]:
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
