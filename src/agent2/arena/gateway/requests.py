"""What is read from an agent's request, and the request that is made of it for the provider.

Only the top level of the body is taken apart; what lies below reaches the provider byte for byte, so that its
prompt cache works. Changed are: the model (there is one, whatever is asked for) and, in chat streams, the
wish to be told the usage. Refused are: tools that the provider would run itself (they would give an agent
without a network one, and cost what no token count shows) and answers that are fetched later.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent2.arena.gateway.routes import Kind, Route
from agent2.arena.gateway.settings import WireProtocol
from agent2.errors import Agent2Error, shown
from agent2.records import JsonValue

_HOSTED_TYPES = re.compile(
    r"(web_search|web_fetch|file_search|code_interpreter|code_execution|image_generation|mcp)", re.IGNORECASE
)
_CLIENT_TYPES = frozenset({"function", "custom", "local_shell", "shell", "apply_patch", "computer_use_preview"})
_GEMINI_CLIENT_TOOLS = frozenset({"functionDeclarations", "function_declarations", "computerUse", "computer_use"})
_HOSTED_KEYS = {
    WireProtocol.OPENAI_CHAT: ("web_search_options", "plugins"),
    WireProtocol.OPENAI_RESPONSES: (),
    WireProtocol.ANTHROPIC: ("mcp_servers", "container"),
    WireProtocol.GEMINI: (),
}
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


class BadRequest(Agent2Error):
    """A request that cannot be passed on as it stands."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready for the provider."""

    body: bytes
    asked_model: str
    stream: bool
    output_tokens: int | None
    """The most output tokens that the request allows, all of its alternatives together; None: it names no limit."""
    hides_usage: bool
    """The agent did not ask for the usage in its stream: it is taken out again."""


def prepare(body: bytes, route: Route, model: str) -> Prepared:
    """Take a request apart and make the one for the provider. Raises BadRequest with a sentence for the agent."""
    try:
        fields = _top_level.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON object ({error}); send one") from error
    if route.kind is Kind.GENERATE:
        _refuse_hosted(fields, route.protocol)
    if route.protocol is WireProtocol.GEMINI:
        settings = _mapping(fields, "generationConfig") or _mapping(fields, "generation_config")
        limit = _limit(settings, _OUTPUT_LIMITS[route.protocol])
        many = settings.get("candidateCount", 1)
        asked = storable(route.model or "")[:MAX_NAME]
        return Prepared(body, asked, bool(route.stream), _times(limit, many), hides_usage=False)
    asked = _value(fields, "model")
    stream = _value(fields, "stream") is True
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    hides_usage = False
    if stream and route.protocol is WireProtocol.OPENAI_CHAT:
        options = _mapping(fields, "stream_options")
        hides_usage = options.get("include_usage") is not True
        fields["stream_options"] = msgspec.Raw(msgspec.json.encode({**options, "include_usage": True}))
    limit = _limit({name: _value(fields, name) for name in fields if "max" in name}, _OUTPUT_LIMITS[route.protocol])
    return Prepared(
        body=msgspec.json.encode(fields),
        asked_model=storable(asked)[:MAX_NAME] if isinstance(asked, str) else "",
        stream=stream,
        output_tokens=_times(limit, _value(fields, "n") if "n" in fields else 1),
        hides_usage=hides_usage,
    )


def _refuse_hosted(fields: Mapping[str, msgspec.Raw], protocol: WireProtocol) -> None:
    for name in _HOSTED_KEYS[protocol]:
        if _value(fields, name):
            raise BadRequest(f"{name!r} asks the provider to reach out of the sandbox, which a trial does not allow")
    if protocol is WireProtocol.OPENAI_RESPONSES and _value(fields, "background") is True:
        raise BadRequest("background responses are not served, their usage cannot be counted; set background to false")
    tools = _value(fields, "tools")
    for tool in tools if isinstance(tools, list) else []:
        hosted = _hosted_tool(tool, protocol) if isinstance(tool, dict) else None
        if hosted is not None:
            raise BadRequest(
                f"the tool {shown(hosted)} would be run by the provider, outside the sandbox, which a trial does not "
                "allow; leave it out"
            )


def _hosted_tool(tool: Mapping[str, JsonValue], protocol: WireProtocol) -> str | None:
    """Name of a tool that the provider would run, or None."""
    if protocol is WireProtocol.GEMINI:
        return next((name for name in tool if name not in _GEMINI_CLIENT_TOOLS), None)
    kind = tool.get("type")
    if isinstance(kind, str) and kind not in _CLIENT_TYPES and _HOSTED_TYPES.match(kind):
        return kind
    return None


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
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return min(value, MAX_OUTPUT)
    return None


def _times(limit: int | None, many: JsonValue) -> int | None:
    is_count = isinstance(many, int) and not isinstance(many, bool) and many > 1
    return min(limit * many, MAX_OUTPUT) if limit is not None and is_count else limit
