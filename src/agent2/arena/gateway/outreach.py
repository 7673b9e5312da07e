"""Refuses requests through which an agent would act outside its sandbox, at the provider.

Refused are tools that the provider would run itself (only kinds that are known to run at the agent's end pass, so a
new one is refused until somebody has read about it), addresses that the provider would fetch (images and files must
be in the request), and what the provider keeps from earlier (its size is not in the request, so no reservation covers
it). Does NOT understand what a model is asked to do: a provider that acts on plain text is not noticed.
"""

import json
import re
from collections.abc import Iterator, Mapping

from agent2.errors import Agent2Error, shown
from agent2.records import JsonValue

_CLIENT_TYPES = re.compile(
    r"function|custom|local_shell|shell|apply_patch|computer_use_preview|namespace|tool_search"
    r"|(bash|text_editor|computer|memory|tool_search_tool_(regex|bm25))(_\d{8})?"
)
"""Tools that run at the agent's end, or only look among the agent's own tools."""
_GEMINI_CLIENT_TOOLS = frozenset({"functionDeclarations", "function_declarations", "computerUse", "computer_use"})
HOSTED_FIELDS = ("web_search_options", "plugins", "mcp_servers", "container")
KEPT_FIELDS = ("previous_response_id", "conversation", "prompt", "cachedContent", "cached_content")
_ADDRESS_FIELDS = frozenset({"image_url", "video_url", "audio_url", "file_url", "file_data", "fileUri", "file_uri"})
_TOOL_ITEMS = ("tool_search_output", "additional_tools")
"""Items of a conversation that bring further tools."""
_HINTS = (b'_url"', b'"url"', b'file_data"', b'fileUri"', b'file_uri"', b"_tools", b"tool_search_output", b"\\u00")
"""A request without any of these has nothing that `refuse_addresses` looks for; the last may hide the others."""
_ADDRESS = re.compile(r"\s*(?!data:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class BadRequest(Agent2Error):
    """A request that cannot be passed on as it stands."""


def refuse_hosted(fields: Mapping[str, JsonValue], *, is_gemini: bool) -> None:
    """Refuse tools that the provider would run, and what it keeps. Raises BadRequest.

    fields: those of the request's top level, as far as they are looked at (`LOOKED_AT`).
    """
    for name in HOSTED_FIELDS:
        if fields.get(name):
            raise BadRequest(f"{name!r} asks the provider to reach out of the sandbox, which a trial does not allow")
    for name in KEPT_FIELDS:
        if fields.get(name):
            raise BadRequest(f"{name!r} refers to what the provider keeps, which a trial does not allow; send it whole")
    if fields.get("background"):
        raise BadRequest("background responses are not served, their usage cannot be counted; set background to false")
    _refuse_tools(fields.get("tools"), is_gemini=is_gemini)


LOOKED_AT = frozenset({*HOSTED_FIELDS, *KEPT_FIELDS, "background", "tools"})
"""Fields that `refuse_hosted` reads."""


def refuse_addresses(body: bytes) -> None:
    """Refuse a request that names an address for the provider to fetch. Raises BadRequest."""
    if not any(hint in body for hint in _HINTS):
        return
    try:
        request = json.loads(body)  # halves of characters, which programs in JavaScript send, are no error to it
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON that can be read ({error}); send an object") from error
    for part in _mappings(request):
        if part.get("type") in _TOOL_ITEMS:
            _refuse_tools(part.get("tools"), is_gemini=False)
        named = [part[name] for name in _ADDRESS_FIELDS & part.keys()]
        for value in (*named, part.get("url") if part.get("type") == "url" else None):
            address = value.get("url") if isinstance(value, dict) else value
            if isinstance(address, str) and _ADDRESS.match(address):
                raise BadRequest(
                    f"the address {shown(address)} would be fetched by the provider, outside the sandbox, which a "
                    "trial does not allow; put the content into the request"
                )


def _refuse_tools(tools: JsonValue, *, is_gemini: bool) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRequest("'tools' is no list of objects; send one")
    for tool in tools:
        hosted = _gemini_hosted(tool) if is_gemini else _hosted(tool)
        if hosted is not None:
            raise BadRequest(
                f"the tool {shown(hosted)} would be run by the provider, outside the sandbox, which a trial does not "
                "allow; leave it out"
            )
        if tool.get("type") == "namespace":
            _refuse_tools(tool.get("tools"), is_gemini=is_gemini)


def _gemini_hosted(tool: Mapping[str, JsonValue]) -> JsonValue:
    return next((name for name in tool if name not in _GEMINI_CLIENT_TOOLS), None)


def _hosted(tool: Mapping[str, JsonValue]) -> JsonValue:
    """Name of a tool that the provider would run, or None. A tool without a kind is one of the agent's."""
    kind = tool.get("type")
    if kind is None:
        return None
    if not isinstance(kind, str) or not _CLIENT_TYPES.fullmatch(kind):
        return kind
    place = tool.get("environment")
    runs_there = kind == "shell" and isinstance(place, dict) and place.get("type") != "local"
    return "shell in a container" if runs_there else None


def _mappings(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Every object below a request, without what an agent's own tools were given and gave back."""
    waiting = list(value.values()) if isinstance(value, dict) else [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            yield one
            waiting += [inner for name, inner in one.items() if not _is_tools_own(one, name)]


def _is_tools_own(part: Mapping[str, JsonValue], name: str) -> bool:
    if name == "input":
        return part.get("type") == "tool_use"
    return name in {"args", "response"} and "name" in part
