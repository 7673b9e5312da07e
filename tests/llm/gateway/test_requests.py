import asyncio
import gzip
import zlib

import pytest
import zstandard
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from agent2.llm.gateway.requests import BodyMemory, RequestDeclined


def request(body: bytes, encoding: str = ""):
    loop = asyncio.get_running_loop()
    payload = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    payload.feed_data(body)
    payload.feed_eof()
    headers = {"content-length": str(len(body))}
    if encoding:
        headers["content-encoding"] = encoding
    return make_mocked_request("POST", "/", headers=headers, payload=payload, client_max_size=2**20)


def test_bodies_wait_until_there_is_memory_for_them():
    async def run() -> list[int]:
        memory, held, held_over_time = BodyMemory(size=100), 0, []

        async def serve() -> None:
            nonlocal held
            async with memory.body(request(b"x" * 40), 1.0) as body:
                held += len(body)
                held_over_time.append(held)
                await asyncio.sleep(0.01)
                held -= len(body)

        await asyncio.gather(*(serve() for _ in range(9)))
        async with memory.body(request(b"x" * 500), 1.0) as body:  # larger than all the memory: served when it is alone
            assert len(body) == 500
        return held_over_time

    held_over_time = asyncio.run(run())
    assert len(held_over_time) == 9 and max(held_over_time) == 80


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", lambda text: zlib.compress(text, wbits=zlib.MAX_WBITS | 16)),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
    ],
)
def test_packed_bodies_are_unpacked_up_to_the_limit(encoding, pack):
    async def read(text: bytes) -> bytes:
        async with BodyMemory().body(request(pack(text), encoding), 0.001) as body:
            return body

    assert asyncio.run(read(b"hello" * 100)) == b"hello" * 100
    with pytest.raises(RequestDeclined, match=r"larger than 0\.001 MiB"):
        asyncio.run(read(b"hello" * 10_000))
    with pytest.raises(RequestDeclined, match="is not valid gzip"):
        asyncio.run(read_as_gzip())


async def read_as_gzip() -> None:
    async with BodyMemory().body(request(b"nothing packed", "gzip"), 1.0):
        pass


async def unpacked(body: bytes, encoding: str, mib: float = 1.0) -> bytes:
    async with BodyMemory().body(request(body, encoding), mib) as plain:
        return plain


def test_every_member_of_a_packed_body_is_read():
    two = gzip.compress(b'{"a": 1, ', mtime=0) + gzip.compress(b'"b": 2}', mtime=0)
    assert asyncio.run(unpacked(two, "gzip")) == b'{"a": 1, "b": 2}'
    frames = zstandard.compress(b'{"a": 1, ') + zstandard.compress(b'"b": 2}')
    assert asyncio.run(unpacked(frames, "zstd")) == b'{"a": 1, "b": 2}'
    bomb = gzip.compress(b" " * 2**19, mtime=0) * 40
    with pytest.raises(RequestDeclined, match="larger than 1 MiB"):
        asyncio.run(unpacked(bomb, "gzip"))


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello" * 99, mtime=0)[:-5]),
        ("gzip", gzip.compress(b"hello" * 99, mtime=0) + b"more"),
        ("deflate", zlib.compress(b"hello" * 99)[:-5]),
        ("zstd", zstandard.compress(b"hello" * 99) + b"more"),
    ],
)
def test_half_a_packed_body_and_one_with_something_behind_it_are_refused(encoding, packed):
    with pytest.raises(RequestDeclined, match=f"is not valid {encoding}"):
        asyncio.run(unpacked(packed, encoding))
