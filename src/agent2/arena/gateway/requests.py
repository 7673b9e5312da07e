"""What is read from an agent's request, and the request that is made of it for the provider.

Only the top level of the body is taken apart; what lies below reaches the provider byte for byte, so that its
prompt cache works. Changed are: the model (there is one, whatever is asked for) and, in chat streams, the
wish to be told the usage. Left out is what would change the price of a token. What is refused is in `outreach`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent2.arena.gateway.outreach import LOOKED_AT, BadRequest, refuse_addresses, refuse_hosted
from agent2.arena.gateway.routes import Kind, Route
from agent2.arena.gateway.settings import WireProtocol
from agent2.records import JsonValue

_REPRICING = ("service_tier", "serviceTier", "speed", "inference_geo", "models", "route", "provider", "fallbacks")
"""Fields by which a request would be answered at another price, or by another model: left out."""
_OUTPUT_LIMITS = {
    WireProtocol.OPENAI_CHAT: ("max_completion_tokens", "max_tokens"),
    WireProtocol.OPENAI_RESPONSES: ("max_output_tokens",),
    WireProtocol.ANTHROPIC: ("max_tokens",),
    WireProtocol.GEMINI: ("maxOutputTokens", "max_output_tokens"),
}
MAX_OUTPUT = 100_000_000
"""Tokens; a request that allows more is taken to allow these."""
_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])


MAX_NAME = 200
"""Characters of a model's name that are recorded."""


def storable(text: str) -> str:
    """A stranger's text without the half characters that no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready for the provider."""

    body: bytes
    asked_model: str
    stream: bool
    output_tokens: int | None
    """The most output tokens that the request allows, all of its alternatives together; None: it names no limit."""
    alternatives: int
    """Answers that are asked for at once."""
    hides_usage: bool
    """The agent did not ask for the usage in its stream: it is taken out again."""


def prepare(body: bytes, route: Route, model: str) -> Prepared:
    """Take a request apart and make the one for the provider. Raises BadRequest with a sentence for the agent."""
    try:
        fields = _top_level.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON object ({error}); send one") from error
    if route.kind is Kind.GENERATE:
        looked_at = {name: _value(fields, name) for name in LOOKED_AT & fields.keys()}
        refuse_hosted(looked_at, is_gemini=route.protocol is WireProtocol.GEMINI)
    refuse_addresses(body)
    for name in _REPRICING:
        fields.pop(name, None)
    return _gemini(fields, route) if route.protocol is WireProtocol.GEMINI else _other(fields, route, model)


def _gemini(fields: dict[str, msgspec.Raw], route: Route) -> Prepared:
    """The path names the model, and says whether it is a stream."""
    fields.pop("model", None)
    settings = [_mapping(fields, name) for name in ("generationConfig", "generation_config")]
    limit = max((_limit(one, _OUTPUT_LIMITS[WireProtocol.GEMINI]) or 0 for one in settings), default=0) or None
    many = max(_whole(one.get(name)) or 1 for one in settings for name in ("candidateCount", "candidate_count"))
    asked = storable(route.model or "")[:MAX_NAME]
    body = msgspec.json.encode(fields)
    return Prepared(body, asked, bool(route.stream), _times(limit, many), many, hides_usage=False)


def _other(fields: dict[str, msgspec.Raw], route: Route, model: str) -> Prepared:
    """The three protocols whose body says everything."""
    asked = _value(fields, "model")
    stream = _value(fields, "stream") is True
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    hides_usage = False
    if stream and route.protocol is WireProtocol.OPENAI_CHAT:
        options = _mapping(fields, "stream_options")
        hides_usage = options.get("include_usage") is not True
        fields["stream_options"] = msgspec.Raw(msgspec.json.encode({**options, "include_usage": True}))
    limit = _limit({name: _value(fields, name) for name in fields if "max" in name}, _OUTPUT_LIMITS[route.protocol])
    many = _whole(_value(fields, "n")) or 1
    return Prepared(
        body=msgspec.json.encode(fields),
        asked_model=storable(asked)[:MAX_NAME] if isinstance(asked, str) else "",
        stream=stream,
        output_tokens=_times(limit, many),
        alternatives=many,
        hides_usage=hides_usage,
    )


def _value(fields: Mapping[str, msgspec.Raw], name: str) -> JsonValue:
    raw = fields.get(name)
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the field {name!r} is no JSON value ({error})") from error


def _mapping(fields: Mapping[str, msgspec.Raw], name: str) -> dict[str, JsonValue]:
    value = _value(fields, name)
    return value if isinstance(value, dict) else {}


def _limit(fields: Mapping[str, JsonValue], names: tuple[str, ...]) -> int | None:
    """The largest of the limits that a request names: which of them counts is the provider's to say."""
    return max((_whole(fields.get(name)) or 0 for name in names), default=0) or None


def _whole(value: JsonValue) -> int | None:
    """A count above 0, also as the text or decimal number that some providers take for one; `MAX_OUTPUT` at most."""
    try:
        count = int(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0
    except (ValueError, OverflowError):
        return None  # no number, which the provider will say
    return min(count, MAX_OUTPUT) if count > 0 else None


def _times(limit: int | None, many: int) -> int | None:
    return min(limit * many, MAX_OUTPUT) if limit is not None else None
