"""What a proxy process shares with its kind: say when it is ready, serve until standard input closes.

Standard input closes when the harness ends, kill -9 included.
"""

import asyncio
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


def say_ready() -> None:
    """Tell the harness that the socket can be used."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
