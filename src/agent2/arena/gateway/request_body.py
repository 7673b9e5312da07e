"""The body of an agent's request: decompressed, and limited in size."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import zstandard
from aiohttp import web

from agent2.arena.gateway.answers import Problem
from agent2.errors import shown

MAX_HELD = 256 * 2**20
"""Bytes of bodies that are held at the same time: the gateway's memory is not the sandbox's."""


class Declined(Exception):
    """A request that is answered without a call; the sentence is for the agent."""

    def __init__(self, problem: Problem, sentence: str):
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
        raise Declined(Problem.BAD_REQUEST, f"the body is not valid {encoding} ({error}); send it plain") from error
    except (ConnectionError, web.RequestPayloadError) as error:
        raise Declined(Problem.BAD_REQUEST, "the body broke off; send all of it") from error
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
            raise Declined(Problem.BAD_REQUEST, f"content-encoding {shown(encoding)} is not understood; send it plain")


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
    return Declined(Problem.TOO_LARGE, f"the request is larger than {max_mib:g} MiB; send less")
