import asyncio
import zlib

import pytest
import zstandard
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from agent2.arena.gateway.intake import BodyRoom, Declined


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
        room, held, seen = BodyRoom(size=100), 0, []

        async def serve() -> None:
            nonlocal held
            async with room.body(request(b"x" * 40), 1.0) as body:
                held += len(body)
                seen.append(held)
                await asyncio.sleep(0.01)
                held -= len(body)

        await asyncio.gather(*(serve() for _ in range(9)))
        async with room.body(request(b"x" * 500), 1.0) as body:  # larger than all the room: alone it may
            assert len(body) == 500
        return seen

    seen = asyncio.run(run())
    assert len(seen) == 9 and max(seen) == 80


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
        async with BodyRoom().body(request(pack(text), encoding), 0.001) as body:
            return body

    assert asyncio.run(read(b"hello" * 100)) == b"hello" * 100
    with pytest.raises(Declined, match=r"larger than 0\.001 MiB"):
        asyncio.run(read(b"hello" * 10_000))
    with pytest.raises(Declined, match="is no gzip"):
        asyncio.run(read_as_gzip())


async def read_as_gzip() -> None:
    async with BodyRoom().body(request(b"nothing packed", "gzip"), 1.0):
        pass
