"""Refuses requests that would make the provider act for the agent, outside the sandbox.

Refused are tools that the provider would run itself (only kinds known to run on the agent's side are accepted, so a
new kind is refused until it has been reviewed), addresses that the provider would fetch (`data:` is accepted; images
and files must be in the request), and content stored at the provider (its size is not in the request, so no
reservation covers it). Names of fields are compared without case and underscores, because some servers read
them so. Does NOT understand what a model is asked to do: a provider that acts on plain text is not detected.
"""

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
_GEMINI_HOSTED_TOOLS = frozenset(
    {"googlesearch", "googlesearchretrieval", "enterprisewebsearch", "googlemaps", "codeexecution", "urlcontext"}
)
"""Translating servers take these in a tool of the other protocols too."""
_HOSTED_FIELDS = frozenset(
    {"websearchoptions", "websearch", "plugins", "mcpservers", "container", "searchparameters", "enablesearch"}
    | {"searchoptions", "connectors"}
)
_KEPT_FIELDS = frozenset({"previousresponseid", "conversation", "prompt", "cachedcontent"})
_KEPT_PARTS = frozenset({"fileid", "fileids", "containerid", "cachedcontent", "previousresponseid"})
"""Fields anywhere in a request that name something which the provider keeps."""
_KEPT_ITEMS = frozenset({"itemreference", "imagegenerationcall", "codeinterpretercall", "containerupload"})
"""Kinds of parts of a conversation that do."""
_ADDRESS_FIELDS = frozenset({"imageurl", "videourl", "audiourl", "fileurl", "filedata", "fileuri", "inputaudio"})
_BARE_FIELDS = frozenset({"filedata", "inputaudio"})
"""Fields that may also hold base64 without `data:`."""
_ADDRESSES_IN = frozenset({"url", "uri", "data"})
"""Where an object in one of these fields has its address."""
_MEDIA = re.compile(r"(input_?)?(url|image|video|audio|document|file|media)", re.IGNORECASE)
_MEDIA_FIELDS = frozenset({"url", "uri", "path", "image", "video", "audio"})
_TOOL_ITEMS = ("tool_search_output", "additional_tools")
"""Items of a conversation that bring further tools."""
_DATA = re.compile(r"data:[!-~]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]*")


class BadRequest(Agent2Error):
    """A request that cannot be passed on as it stands."""


def plain_name(name: str) -> str:
    """A field's name as the most lenient server reads it."""
    return name.casefold().replace("_", "")


def refuse_hosted(request: Mapping[str, JsonValue], *, is_gemini: bool) -> None:
    """Refuse tools that the provider would run, and fields of the top level that name what it keeps.

    Raises BadRequest.
    """
    for name, value in request.items():
        plain = plain_name(name)
        if plain == "tools":
            _refuse_tools(value, is_gemini=is_gemini)
        if value is None or value is False or value == []:
            continue
        if plain in _HOSTED_FIELDS:
            raise BadRequest(f"{name!r} asks the provider to reach out of the sandbox, which a trial does not allow")
        if plain in _KEPT_FIELDS:
            raise BadRequest(f"{name!r} refers to what the provider keeps, which a trial does not allow; send it whole")
        if plain == "background":
            raise BadRequest("background responses are not served, their usage cannot be counted; remove it")
    items = request.get("input")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("id") is not None and item.get("type") is None and "role" not in item:
            raise BadRequest(f"the item {shown(item['id'])} is kept by the provider; send the item itself")


def refuse_addresses(request: Mapping[str, JsonValue]) -> None:
    """Refuse a request that names, anywhere, an address for the provider to fetch or what it keeps.

    Raises BadRequest.
    """
    for part in _mappings(request):
        kind = part.get("type")
        if kind in _TOOL_ITEMS:
            _refuse_tools(part.get("tools"), is_gemini=False)
        if isinstance(kind, str) and plain_name(kind) in _KEPT_ITEMS:
            raise BadRequest(f"{kind!r} refers to what the provider keeps, which a trial does not allow; send it whole")
        is_media = isinstance(kind, str) and _MEDIA.fullmatch(kind) is not None
        for name, value in part.items():
            plain = plain_name(name)
            if (plain in _KEPT_PARTS and isinstance(value, str | list)) or (plain == "audio" and _has_id(value)):
                raise BadRequest(f"{name!r} refers to what the provider keeps, which a trial does not allow")
            if plain in _ADDRESS_FIELDS or (is_media and plain in _MEDIA_FIELDS):
                _refuse_address(value, bare=plain in _BARE_FIELDS)


def _refuse_address(value: JsonValue, *, bare: bool) -> None:
    """value: an address, several, or an object with one in it; bare: base64 will do."""
    if isinstance(value, dict):
        found = [inner for name, inner in value.items() if plain_name(name) in _ADDRESSES_IN]
    else:
        found = value if isinstance(value, list) else [value]
    for address in found:
        if isinstance(address, dict | list):
            _refuse_address(address, bare=bare)
        elif isinstance(address, str) and not _DATA.fullmatch(address) and not (bare and _BASE64.fullmatch(address)):
            raise BadRequest(
                f"the address {shown(address[:200])} would be fetched by the provider, outside the sandbox; only data: "
                "is allowed, without spaces and control characters: put the content into the request"
            )


def _has_id(value: JsonValue) -> bool:
    return isinstance(value, dict) and value.get("id") is not None


def _refuse_tools(tools: JsonValue, *, is_gemini: bool) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRequest("'tools' is not a list of objects; send one")
    for tool in tools:
        hosted = _gemini_hosted(tool) if is_gemini else _hosted(tool)
        if hosted is not None:
            raise BadRequest(
                f"the tool {shown(hosted)} would be run by the provider, outside the sandbox, which a trial does not "
                "allow; remove it"
            )
        if tool.get("type") == "namespace":
            _refuse_tools(tool.get("tools"), is_gemini=is_gemini)


def _gemini_hosted(tool: Mapping[str, JsonValue]) -> JsonValue:
    return next((name for name in tool if name not in _GEMINI_CLIENT_TOOLS), None)


def _hosted(tool: Mapping[str, JsonValue]) -> JsonValue:
    """Name of a tool that the provider would run, or None. A tool without a kind but with a name is the agent's."""
    for name in tool:
        plain = plain_name(name)
        if plain in _GEMINI_HOSTED_TOOLS or (plain in {"type", "environment", "tools"} and name != plain):
            return name
    kind = tool.get("type")
    if kind is None:
        return None if tool.get("name") or tool.get("function") else "without a type and a name"
    if not isinstance(kind, str) or not _CLIENT_TYPES.fullmatch(kind):
        return kind
    place = tool.get("environment")
    runs_there = kind == "shell" and isinstance(place, dict) and place.get("type") != "local"
    return "shell in a container" if runs_there else None


def _mappings(request: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """Every object of a request, without what an agent's own tools were given and gave back."""
    yield request
    waiting: list[JsonValue] = list(request.values())
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
