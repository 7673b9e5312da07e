"""The gateway's process: `python -m agent2.arena.gateway.main`.

Reads one line of JSON (`GatewayLaunch`) from standard input and serves on the listening socket that it was started
with. The keys are in that line and nowhere else: not in an argument, a variable or a file. Standard input
stays open: when it ends, the harness has stopped the gateway or is gone, and the process ends too, after a
few seconds for the calls under way.
"""

import asyncio
import logging
import random
import socket
import sys

import aiohttp
from aiohttp import web
from pydantic import SecretStr

from agent2.arena.gateway.drivers import load_prices
from agent2.arena.gateway.ledger import CallLedger
from agent2.arena.gateway.proxy import Proxy
from agent2.arena.gateway.recording import ExchangeRecorder, Scrubber, ScrubbingFormatter
from agent2.arena.gateway.replay import ReplayPlayer
from agent2.arena.gateway.settings import GatewaySettings
from agent2.arena.gateway.upstream import Upstream
from agent2.config import StrictModel
from agent2.errors import Agent2Error
from agent2.sandbox.until_closed import ignore_malformed_requests

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""For the calls under way when the gateway is stopped."""
KEEP_ALIVE_S = 600.0


class GatewayLaunch(StrictModel):
    """What the process is told."""

    settings: GatewaySettings
    """Without its keys."""
    keys: tuple[str, ...]
    """Of the endpoints, in their order."""
    redact: tuple[str, ...]
    listener: int
    """File descriptor of the listening socket."""

    def complete(self) -> GatewaySettings:
        """The settings with their keys."""
        endpoints = tuple(
            endpoint.model_copy(update={"api_key": SecretStr(key)})
            for endpoint, key in zip(self.settings.endpoints, self.keys, strict=True)
        )
        redact = tuple(SecretStr(text) for text in self.redact)
        return self.settings.model_copy(update={"endpoints": endpoints, "redact": redact})


def main() -> int:
    """Serve until standard input ends."""
    launch = GatewayLaunch.model_validate_json(sys.stdin.buffer.readline())
    scrubber = Scrubber([*launch.keys, *launch.redact])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ScrubbingFormatter(scrubber))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    ignore_malformed_requests()
    listener = socket.socket(fileno=launch.listener)
    listener.setblocking(False)
    try:
        asyncio.run(_serve(launch.complete(), listener, scrubber))
    except Agent2Error as error:
        logger.error("%s", error)
        return 2
    return 0


async def _serve(settings: GatewaySettings, listener: socket.socket, scrubber: Scrubber) -> None:
    prices = load_prices(settings.prices)
    player = ReplayPlayer(settings.replay) if settings.replay else None
    recorder = ExchangeRecorder(settings.record, scrubber, settings.max_bodies_mib)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
    try:
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            upstream = Upstream(settings, session, random.Random())
            ledger = CallLedger(settings, recorder, prices)
            proxy = Proxy(settings, ledger, recorder, upstream, scrubber, player)
            app = web.Application(client_max_size=int(settings.max_request_mib * 2**20))
            app.router.add_route("*", "/{path:.*}", proxy.handle)
            runner = web.AppRunner(
                app,
                access_log=None,
                auto_decompress=False,
                handle_signals=False,
                keepalive_timeout=KEEP_ALIVE_S,
                shutdown_timeout=GRACE_S,
            )
            await runner.setup()
            await web.SockSite(runner, listener, backlog=1024).start()
            logger.info("serving model %s", settings.model)
            await _end_of_input()
            await runner.cleanup()
    finally:
        recorder.close()


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while await reader.read(4096):
        pass


if __name__ == "__main__":
    sys.exit(main())
