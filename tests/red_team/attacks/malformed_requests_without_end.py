"""Send what is no HTTP, or breaks off, to the gateway and the grading API, again and again: each may be logged."""

import logging
import socket
import time
from pathlib import Path

from gateway_fakes import DUMMY
from red_team.frame import Outcome
from red_team.framing import send
from red_team.naive import in_time
from red_team.providers import gateway
from red_team.scene import Scene
from socket_paths import short_path

AIM = "logs of the harness that fill the disk"
DEFENCE = "what is no HTTP is answered and not logged; a body that breaks off is one of the first thousand refusals"

N_REQUESTS, MOST_BYTES = 200, 4_000
RAW = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx"
HEAD = b"Host: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n" % DUMMY.encode()
BROKEN_OFF = [
    b"POST %s HTTP/1.1\r\n%sContent-Length: 99\r\n\r\n{" % (path, HEAD) for path in (b"/v1/responses", b"/submit")
]
PLAIN_SERVER = f"""
import asyncio, io, logging, socket
from aiohttp import web
log = io.StringIO()
logging.basicConfig(stream=log)
async def run():
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    for _ in range({N_REQUESTS}):
        reader, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write({RAW!r})
        await reader.read()
        writer.close()
asyncio.run(run())
print(len(log.getvalue()))
"""


def attempt(scene: Scene) -> Outcome:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("uvicorn").addHandler(handler)
    try:
        with gateway(scene) as (_, _, settings):
            for place in (settings.socket, scene.paths.grader_socket):
                answers = [send(lambda place=place: _connect(place), RAW) for _ in range(N_REQUESTS)]
                if not all(b" 400 " in answer for answer in answers):
                    raise RuntimeError(f"{place.name}: answered {answers[-1][:80]!r}")
                for raw in BROKEN_OFF * (N_REQUESTS // 2):
                    with _connect(place) as client:
                        client.sendall(raw)
            time.sleep(2)
            size = sum(path.stat().st_size for path in settings.record.glob("*.log")) + sum(map(len, messages))
    finally:
        logging.getLogger("uvicorn").removeHandler(handler)
    return Outcome(size > MOST_BYTES, f"{size} bytes in logs after {4 * N_REQUESTS} of them")


def control(scene: Scene) -> Outcome:
    size = in_time(PLAIN_SERVER)
    return Outcome(size.isdigit() and int(size) > MOST_BYTES, f"{size} bytes in the log of a plain server")


def _connect(place: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(short_path(place))
    return client
