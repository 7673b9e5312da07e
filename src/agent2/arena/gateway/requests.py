"""The requests of an agent: body, fields, and what is sent to the provider.

What is read from an agent's request, and the request that is made of it for the provider.

A body is parsed once, strictly, and what was checked is what is sent: rewritten from the parsed values, in their
order, so that no second reader can find something else in it. A provider's prompt cache keys on the contents and
still works. Changed are: the model (there is one, whatever is asked for), halves of characters (a provider would refuse
the whole conversation for one), and, in chat streams, the wish to be told the usage. Left out is what would change
the price of a token. What is refused is in `hosted_tools`.
"""

import asyncio
import contextlib
import json
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import zstandard
from aiohttp import web

from agent2.arena.gateway.hosted_tools import BadRequest, plain_name, refuse_addresses, refuse_hosted
from agent2.arena.gateway.routes import ApiProblem, Kind, WireRoute
from agent2.arena.gateway.settings import WireProtocol
from agent2.errors import shown
from agent2.records import JsonValue

MAX_HELD = 256 * 2**20
"""Bytes of bodies that are held at the same time: the gateway's memory is not the sandbox's."""


class Declined(Exception):
    """A request that is answered without a call; the sentence is for the agent."""

    def __init__(self, problem: ApiProblem, sentence: str):
        super().__init__(sentence)
        self.problem = problem


class BodyRoom:
    """Memory for the bodies of requests that are being served; who finds none waits."""

    def __init__(self, size: int = MAX_HELD):
        """size: bytes."""
        self._size = size
        self._held = 0
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def body(self, request: web.Request, max_mib: float) -> AsyncIterator[bytes]:
        """The plain body of a request, held until the block ends. Raises as `read_body`."""
        most = int(max_mib * 2**20) + 1
        is_plain = not request.headers.get("content-encoding")
        known = request.content_length if is_plain else None
        size = most if known is None else min(known, most)
        async with self._freed:
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
    """The plain body. Raises Declined if it is too large, also once unpacked, cannot be unpacked, or breaks off."""
    limit = int(max_mib * 2**20)
    encoding = request.headers.get("content-encoding", "").lower()
    try:
        plain = _unpacked(await request.read(), encoding, limit)
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large(max_mib) from error
    except (zlib.error, zstandard.ZstdError) as error:
        raise Declined(ApiProblem.BAD_REQUEST, f"the body is not valid {encoding} ({error}); send it plain") from error
    except (ConnectionError, web.RequestPayloadError) as error:
        raise Declined(ApiProblem.BAD_REQUEST, "the body broke off; send all of it") from error
    if len(plain) > limit:
        raise _too_large(max_mib)
    return plain


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    """At most one byte more than the limit."""
    match encoding:
        case "" | "identity":
            return body
        case "gzip" | "deflate":
            return _inflated(body, limit)
        case "zstd":
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
                return reader.read(limit + 1)
        case _:
            raise Declined(
                ApiProblem.BAD_REQUEST, f"content-encoding {shown(encoding)} is not understood; send it plain"
            )


def _inflated(body: bytes, limit: int) -> bytes:
    """Every member of a gzip body (RFC 1952 allows several), or one zlib stream; all of it or an error."""
    plain = b""
    while body and len(plain) <= limit:
        member = zlib.decompressobj(zlib.MAX_WBITS | 32)
        plain += member.decompress(body, limit + 1 - len(plain))
        if not member.eof and len(plain) <= limit:
            raise zlib.error("it ends in the middle")
        body = member.unused_data
    return plain


def _too_large(max_mib: float) -> Declined:
    return Declined(ApiProblem.TOO_LARGE, f"the request is larger than {max_mib:g} MiB; send less")


_REPRICING = frozenset({"servicetier", "speed", "inferencegeo", "models", "route", "provider", "fallbacks", "preset"})
"""Fields by which a request would be answered at another price, or by another model: left out."""
_SPELLED = {
    plain_name(name): name
    for name in ("model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "max_output_tokens")
}
"""Fields that decide what a call costs; in another spelling a lenient server would read them and we would not."""
_OUTPUT_LIMITS = {
    WireProtocol.OPENAI_CHAT: ("max_completion_tokens", "max_tokens"),
    WireProtocol.OPENAI_RESPONSES: ("max_output_tokens",),
    WireProtocol.ANTHROPIC: ("max_tokens",),
    WireProtocol.GEMINI: ("maxOutputTokens", "max_output_tokens"),
}
MAX_OUTPUT = 100_000_000
"""Tokens; a request that allows more is taken to allow these."""
MAX_NAME = 200
"""Characters of a model's name that are recorded."""
MAX_VALUES = 250_000
"""Values in one body. Parsed, one that takes 2 bytes can take 300; the texts in a body are not limited by this."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def read_object(body: bytes) -> dict[str, JsonValue]:
    """The one JSON object that a body is, to every reader alike. Raises BadRequest with a sentence for the agent.

    Refuses names that appear twice in one object, numbers that JSON does not know, and more than `MAX_VALUES` values.
    """
    if n_values(body) > MAX_VALUES:
        raise BadRequest(f"the body holds more than {MAX_VALUES} values; send fewer and longer ones")
    try:
        value = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not a JSON object ({error}); send one") from error
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object; send one")
    return value


def n_values(body: bytes) -> int:
    """About how many values a JSON text holds, without parsing it: never less than there are, cut at the limit."""
    count = _marks(body, 0, len(body))
    if count < MAX_VALUES:
        return count + 1
    count, end = 1, 0  # the marks may be in texts: count those between texts
    for text in _STRING.finditer(body):
        count += _marks(body, end, text.start())
        end = text.end()
        if count > MAX_VALUES:
            return count
    return count + _marks(body, end, len(body))


def _marks(body: bytes, start: int, end: int) -> int:
    return sum(body.count(mark, start, end) for mark in (b",", b"{", b"["))


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        raise BadRequest(f"the name {shown(twice)} appears twice in one object of the body; send it once")
    return made


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _written(fields: Mapping[str, JsonValue]) -> bytes:
    """The JSON text of a request, half characters replaced. Raises BadRequest."""
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body cannot be passed on ({error}); send numbers that a double can hold") from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


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


def prepare(body: bytes, route: WireRoute, model: str) -> Prepared:
    """Take a request apart and make the one for the provider. Raises BadRequest with a sentence for the agent."""
    fields = read_object(body)
    is_gemini = route.protocol is WireProtocol.GEMINI
    if route.kind is Kind.GENERATE:
        refuse_hosted(fields, is_gemini=is_gemini)
    refuse_addresses(fields)
    for name in list(fields):
        plain = plain_name(name)
        if plain in _REPRICING:
            del fields[name]
        elif not is_gemini and _SPELLED.get(plain, name) != name:
            raise BadRequest(f"the field {shown(name)} is spelled {_SPELLED[plain]!r}; some servers would read both")
    return _gemini(fields, route) if is_gemini else _other(fields, route, model)


def _gemini(fields: dict[str, JsonValue], route: WireRoute) -> Prepared:
    """The path names the model, and says whether it is a stream."""
    fields.pop("model", None)
    settings = [_mapping(fields, name) for name in ("generationConfig", "generation_config")]
    limit = max((_limit(one, _OUTPUT_LIMITS[WireProtocol.GEMINI]) or 0 for one in settings), default=0) or None
    many = max(_whole(one.get(name)) or 1 for one in settings for name in ("candidateCount", "candidate_count"))
    asked = storable(route.model or "")[:MAX_NAME]
    return Prepared(_written(fields), asked, bool(route.stream), _times(limit, many), many, hides_usage=False)


def _other(fields: dict[str, JsonValue], route: WireRoute, model: str) -> Prepared:
    """The three protocols whose body says everything."""
    asked = fields.get("model")
    stream = fields.get("stream") is True
    fields["model"] = model
    hides_usage = False
    if stream and route.protocol is WireProtocol.OPENAI_CHAT:
        options = _mapping(fields, "stream_options")
        hides_usage = options.get("include_usage") is not True
        fields["stream_options"] = {**options, "include_usage": True}
    limit = _limit(fields, _OUTPUT_LIMITS[route.protocol])
    many = _whole(fields.get("n")) or 1
    return Prepared(
        body=_written(fields),
        asked_model=storable(asked)[:MAX_NAME] if isinstance(asked, str) else "",
        stream=stream,
        output_tokens=_times(limit, many),
        alternatives=many,
        hides_usage=hides_usage,
    )


def _mapping(fields: Mapping[str, JsonValue], name: str) -> dict[str, JsonValue]:
    value = fields.get(name)
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
