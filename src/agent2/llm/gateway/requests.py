"""Checks an agent's LLM request, and makes the request that is sent to the provider.

A body is parsed once, strictly, and what was checked is what is sent: rewritten from the parsed values, in their
order, so that no second reader can find something else in it. A provider's prompt cache keys on the contents and
still works. Changed are the model (there is one, whatever is asked for), lone surrogates (a provider would refuse the
whole conversation for one), and, in chat streams, the option that reports usage. Left out is what would change the
price of a token.

Refused is what would make the provider act for the agent, outside the sandbox: tools that the provider would run
itself (only kinds known to run on the agent's side are accepted, so a new kind is refused until it has been
reviewed), addresses that the provider would fetch (`data:` is accepted), and content stored at the provider (its size
is not in the request, so no reservation covers it). Names of fields are compared without case and underscores,
because some servers read them so. Does NOT understand what a model is asked to do: a provider that acts on plain text
is not detected.
"""

import asyncio
import contextlib
import json
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import zstandard
from aiohttp import web

from agent2.errors import Agent2Error, quoted
from agent2.llm.gateway.routes import ApiProblem, RequestKind, WireRoute
from agent2.llm.protocols import FORMATS
from agent2.llm.records import WireProtocol
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
_STORED_FIELDS = frozenset({"previousresponseid", "conversation", "prompt", "cachedcontent"})
_STORED_PARTS = frozenset({"fileid", "fileids", "containerid", "cachedcontent", "previousresponseid"})
"""Fields anywhere in a request that name something which the provider keeps."""
_STORED_ITEMS = frozenset({"itemreference", "imagegenerationcall", "codeinterpretercall", "containerupload"})
"""Types of parts of a conversation that do so."""
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
MAX_HELD = 256 * 2**20
"""Bytes of bodies that are held at the same time: the gateway's memory is not the sandbox's."""
_REPRICING = frozenset({"servicetier", "speed", "inferencegeo", "models", "route", "provider", "fallbacks", "preset"})
"""Fields by which a request would be answered at another price, or by another model: left out."""
MAX_OUTPUT = 100_000_000
"""Tokens; a request that allows more is taken to allow these."""
MAX_NAME = 200
"""Characters of a model's name that are recorded."""
MAX_VALUES = 250_000
"""Values in one body. Parsed, one that takes 2 bytes can take 300; the texts in a body are not limited by this."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class BadRequest(Agent2Error):
    """A request that cannot be passed on unchanged."""


def plain_name(name: str) -> str:
    """A field's name as the most lenient server reads it."""
    return name.casefold().replace("_", "")


_EXACT_NAMES = {
    plain_name(name): name
    for name in ("model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "max_output_tokens")
}
"""Fields that decide what a call costs; in another spelling a lenient server would read them and we would not."""


def refuse_hosted_tools(request: Mapping[str, JsonValue], *, is_gemini: bool) -> None:
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
        if plain in _STORED_FIELDS:
            raise BadRequest(f"{name!r} refers to what the provider keeps, which a trial does not allow; send it whole")
        if plain == "background":
            raise BadRequest("background responses are not served, their usage cannot be counted; remove it")
    items = request.get("input")
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("id") is not None and item.get("type") is None and "role" not in item:
            raise BadRequest(f"the item {quoted(item['id'])} is kept by the provider; send the item itself")


def refuse_addresses(request: Mapping[str, JsonValue]) -> None:
    """Refuse a request that names, anywhere, an address for the provider to fetch or what it keeps.

    Raises BadRequest.
    """
    for part in _objects_in(request):
        kind = part.get("type")
        if kind in _TOOL_ITEMS:
            _refuse_tools(part.get("tools"), is_gemini=False)
        if isinstance(kind, str) and plain_name(kind) in _STORED_ITEMS:
            raise BadRequest(f"{kind!r} refers to what the provider keeps, which a trial does not allow; send it whole")
        is_media = isinstance(kind, str) and _MEDIA.fullmatch(kind) is not None
        for name, value in part.items():
            plain = plain_name(name)
            if (plain in _STORED_PARTS and isinstance(value, str | list)) or (plain == "audio" and _has_id(value)):
                raise BadRequest(f"{name!r} refers to what the provider keeps, which a trial does not allow")
            if plain in _ADDRESS_FIELDS or (is_media and plain in _MEDIA_FIELDS):
                _refuse_address(value, bare=plain in _BARE_FIELDS)


def _refuse_address(value: JsonValue, *, bare: bool) -> None:
    """Refuse any address but `data:`.

    value: an address, several, or an object with one in it. bare: base64 without `data:` is accepted as well.
    """
    if isinstance(value, dict):
        addresses = [inner for name, inner in value.items() if plain_name(name) in _ADDRESSES_IN]
    else:
        addresses = value if isinstance(value, list) else [value]
    for address in addresses:
        if isinstance(address, dict | list):
            _refuse_address(address, bare=bare)
        elif isinstance(address, str) and not _DATA.fullmatch(address) and not (bare and _BASE64.fullmatch(address)):
            raise BadRequest(
                f"the address {quoted(address[:200])} would be fetched by the provider, outside the sandbox; only "
                "data: is allowed, without spaces and control characters: put the content into the request"
            )


def _has_id(value: JsonValue) -> bool:
    return isinstance(value, dict) and value.get("id") is not None


def _refuse_tools(tools: JsonValue, *, is_gemini: bool) -> None:
    if tools is None:
        return
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRequest("'tools' is not a list of objects; send one")
    for tool in tools:
        if is_gemini:  # a tool is one object with a field for each kind of tool
            hosted = next((name for name in tool if name not in _GEMINI_CLIENT_TOOLS), None)
        else:
            hosted = _hosted_tool(tool)
        if hosted is not None:
            raise BadRequest(
                f"the tool {quoted(hosted)} would be run by the provider, outside the sandbox, which a trial does not "
                "allow; remove it"
            )
        if tool.get("type") == "namespace":
            _refuse_tools(tool.get("tools"), is_gemini=is_gemini)


def _hosted_tool(tool: Mapping[str, JsonValue]) -> JsonValue:
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
    environment = tool.get("environment")
    is_remote = kind == "shell" and isinstance(environment, dict) and environment.get("type") != "local"
    return "shell in a container" if is_remote else None


def _objects_in(request: Mapping[str, JsonValue]) -> Iterator[Mapping[str, JsonValue]]:
    """Every object of a request but the arguments and results of the agent's own tools."""
    yield request  # no recursion below: a body may nest deeper than Python can call
    pending: list[JsonValue] = list(request.values())
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            yield part
            pending += [inner for name, inner in part.items() if not _is_tool_data(part, name)]


def _is_tool_data(part: Mapping[str, JsonValue], name: str) -> bool:
    """Whether a field holds arguments or a result of the agent's own tool, where any address is only text."""
    if name == "input":
        return part.get("type") == "tool_use"
    return name in {"args", "response"} and "name" in part


class RequestDeclined(Exception):
    """A request that is answered without a call; the sentence is for the agent."""

    def __init__(self, problem: ApiProblem, sentence: str):
        super().__init__(sentence)
        self.problem = problem


class BodyMemory:
    """Memory for the bodies of requests that are being served; a request that does not fit waits."""

    def __init__(self, size: int = MAX_HELD):
        """size: bytes."""
        self._size = size
        self._held = 0
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def body(self, request: web.Request, max_mib: float) -> AsyncIterator[bytes]:
        """The plain body of a request, held until the block ends. Raises as `read_body`."""
        largest = int(max_mib * 2**20) + 1
        is_plain = not request.headers.get("content-encoding")
        stated = request.content_length if is_plain else None
        size = largest if stated is None else min(stated, largest)
        async with self._freed:
            # a single body may be larger than all of the memory: it must not wait for ever
            await self._freed.wait_for(lambda: self._held == 0 or self._held + size <= self._size)
            self._held += size
        try:
            body = await read_body(request, max_mib)
            self._held += len(body) - size
            size = len(body)
            yield body
        finally:
            self._held -= size
            async with self._freed:
                self._freed.notify_all()


async def read_body(request: web.Request, max_mib: float) -> bytes:
    """The plain body.

    Raises RequestDeclined if it is too large, packed or unpacked, cannot be unpacked, or breaks off.
    """
    limit = int(max_mib * 2**20)
    encoding = request.headers.get("content-encoding", "").lower()
    try:
        plain = _unpack(await request.read(), encoding, limit)
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large(max_mib) from error
    except (zlib.error, zstandard.ZstdError) as error:
        raise RequestDeclined(
            ApiProblem.BAD_REQUEST, f"the body is not valid {encoding} ({error}); send it plain"
        ) from error
    except (ConnectionError, web.RequestPayloadError) as error:
        raise RequestDeclined(ApiProblem.BAD_REQUEST, "the body broke off; send all of it") from error
    if len(plain) > limit:
        raise _too_large(max_mib)
    return plain


def _unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """At most one byte more than the limit."""
    match encoding:
        case "" | "identity":
            return body
        case "gzip" | "deflate":
            return _inflate(body, limit)
        case "zstd":
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
                return reader.read(limit + 1)
        case _:
            raise RequestDeclined(
                ApiProblem.BAD_REQUEST, f"content-encoding {quoted(encoding)} is not understood; send it plain"
            )


def _inflate(body: bytes, limit: int) -> bytes:
    """Every member of a gzip body (RFC 1952 allows several), or one zlib stream; all of it or an error."""
    plain = b""
    while body and len(plain) <= limit:
        member = zlib.decompressobj(zlib.MAX_WBITS | 32)
        plain += member.decompress(body, limit + 1 - len(plain))
        if not member.eof and len(plain) <= limit:
            raise zlib.error("it ends in the middle")
        body = member.unused_data
    return plain


def _too_large(max_mib: float) -> RequestDeclined:
    return RequestDeclined(ApiProblem.TOO_LARGE, f"the request is larger than {max_mib:g} MiB; send less")


def read_object(body: bytes) -> dict[str, JsonValue]:
    """The one JSON object that a body is, to every reader alike. Raises BadRequest with a sentence for the agent.

    Refuses names that appear twice in one object, numbers that JSON does not know, and more than `MAX_VALUES` values.
    """
    if n_values(body) > MAX_VALUES:
        raise BadRequest(f"the body holds more than {MAX_VALUES} values; send fewer and longer ones")
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique_names, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not a JSON object ({error}); send one") from error
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object; send one")
    return value


def n_values(body: bytes) -> int:
    """About how many values a JSON text holds, without parsing it: never fewer than there are, cut at the limit."""
    count = _count_marks(body, 0, len(body))
    if count < MAX_VALUES:
        return count + 1
    count, end = 1, 0  # the marks may be inside strings: count those between strings
    for match in _STRING.finditer(body):
        count += _count_marks(body, end, match.start())
        end = match.end()
        if count > MAX_VALUES:
            return count
    return count + _count_marks(body, end, len(body))


def _count_marks(body: bytes, start: int, end: int) -> int:
    return sum(body.count(mark, start, end) for mark in (b",", b"{", b"["))


def _unique_names(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        repeated = next(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        raise BadRequest(f"the name {quoted(repeated)} appears twice in one object of the body; send it once")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _to_json(fields: Mapping[str, JsonValue]) -> bytes:
    """The JSON text of a request, lone surrogates replaced. Raises BadRequest."""
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body cannot be passed on ({error}); send numbers that a double can hold") from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        # by way of UTF-16, where two surrogates that make up one character find each other
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def storable(text: str) -> str:
    """Untrusted text without the lone surrogates that no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class PreparedRequest:
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


def prepare(body: bytes, route: WireRoute, model: str) -> PreparedRequest:
    """Check a request and make the one for the provider. Raises BadRequest with a sentence for the agent."""
    fields = read_object(body)
    is_gemini = route.protocol is WireProtocol.GEMINI
    if route.kind is RequestKind.GENERATE:
        refuse_hosted_tools(fields, is_gemini=is_gemini)
    refuse_addresses(fields)
    for name in list(fields):
        plain = plain_name(name)
        if plain in _REPRICING:
            del fields[name]
        elif not is_gemini and _EXACT_NAMES.get(plain, name) != name:
            raise BadRequest(
                f"the field {quoted(name)} is spelled {_EXACT_NAMES[plain]!r}; some servers would read both"
            )
    return _prepare_gemini(fields, route) if is_gemini else _prepare_openai_or_anthropic(fields, route, model)


def _prepare_gemini(fields: dict[str, JsonValue], route: WireRoute) -> PreparedRequest:
    """The path names the model, and says whether it is a stream."""
    fields.pop("model", None)
    # both spellings are read by the provider, so the larger number counts
    configs = [_mapping(fields, name) for name in ("generationConfig", "generation_config")]
    limit = max(_largest_limit(config, FORMATS[WireProtocol.GEMINI].limit_fields) or 0 for config in configs) or None
    n_alternatives = max(
        _positive_count(config.get(name)) or 1 for config in configs for name in ("candidateCount", "candidate_count")
    )
    return PreparedRequest(
        body=_to_json(fields),
        asked_model=storable(route.model or "")[:MAX_NAME],
        stream=bool(route.stream),
        output_tokens=_total_limit(limit, n_alternatives),
        alternatives=n_alternatives,
        hides_usage=False,
    )


def _prepare_openai_or_anthropic(fields: dict[str, JsonValue], route: WireRoute, model: str) -> PreparedRequest:
    """The three protocols whose body names the model, and says whether it is a stream."""
    asked_model = fields.get("model")
    stream = fields.get("stream") is True
    fields["model"] = model
    hides_usage = False
    if stream and route.protocol is WireProtocol.OPENAI_CHAT:
        options = _mapping(fields, "stream_options")
        hides_usage = options.get("include_usage") is not True
        fields["stream_options"] = {**options, "include_usage": True}
    limit = _largest_limit(fields, FORMATS[route.protocol].limit_fields)
    n_alternatives = _positive_count(fields.get("n")) or 1
    return PreparedRequest(
        body=_to_json(fields),
        asked_model=storable(asked_model)[:MAX_NAME] if isinstance(asked_model, str) else "",
        stream=stream,
        output_tokens=_total_limit(limit, n_alternatives),
        alternatives=n_alternatives,
        hides_usage=hides_usage,
    )


def _mapping(fields: Mapping[str, JsonValue], name: str) -> dict[str, JsonValue]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _largest_limit(fields: Mapping[str, JsonValue], names: tuple[str, ...]) -> int | None:
    """The largest of the limits that a request names: which of them counts is the provider's to say."""
    return max((_positive_count(fields.get(name)) or 0 for name in names), default=0) or None


def _positive_count(value: JsonValue) -> int | None:
    """A count above 0, also as the text or decimal number that some providers take for one; `MAX_OUTPUT` at most."""
    try:
        count = int(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0
    except (ValueError, OverflowError):
        return None  # not a number: the provider will refuse it
    return min(count, MAX_OUTPUT) if count > 0 else None


def _total_limit(limit: int | None, n_alternatives: int) -> int | None:
    return min(limit * n_alternatives, MAX_OUTPUT) if limit is not None else None
