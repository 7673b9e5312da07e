"""What a proxy process shares with its kind: say when it is ready, serve until standard input closes, log little.

Standard input closes when the harness ends, kill -9 included.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable


def serve_until_closed(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `serve` in an event loop; its event is set when standard input closes."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watch() -> None:
            sys.stdin.buffer.read()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=watch, daemon=True).start()
        await serve(stop)

    asyncio.run(run())


def ignore_malformed_requests() -> None:
    """Log nothing about what is not HTTP, which aiohttp tells with a trace: a client can send it without end."""
    logging.getLogger("aiohttp.server").addFilter(_is_no_malformed_request)


def _is_no_malformed_request(record: logging.LogRecord) -> bool:
    return not record.exc_info or type(record.exc_info[1]).__module__ != "aiohttp.http_exceptions"


def say_ready() -> None:
    """Tell the harness that the socket can be used."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
