"""Serves the grading API from a thread of the harness, on a unix socket or on loopback TCP.

The unix socket may lie at a path longer than the kernel's 108 bytes: it is bound through its folder's
descriptor. Does NOT encrypt; TCP is bound to loopback only and wants the token of `api.make_app`.
"""

import functools
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from agent2.arena.grader.connection import BoundedProtocol, Pace
from agent2.errors import Agent2Error, Fault

PACE = Pace()
START_S = 20.0
STOP_S = 5.0


class ServerError(Agent2Error):
    """The grading API cannot be served."""

    fault = Fault.INFRASTRUCTURE


@dataclass(slots=True)
class GradingServer:
    """A running server."""

    port: int | None
    """Of the TCP socket; None for a unix socket."""
    _server: uvicorn.Server
    _thread: threading.Thread
    _socket: socket.socket
    _path: Path | None

    def stop(self) -> None:
        """Close the socket and end the thread; requests that wait are cut off. May be called twice."""
        self._server.should_exit = True
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(STOP_S)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def serve_on_socket(app: FastAPI, path: Path, pace: Pace = PACE) -> GradingServer:
    """Serve on a unix socket; replaces one that a killed harness left. Raises ServerError if it does not start.

    pace: how slow a client may be; `make_app` bounds its body. Only its owner may connect; a sandbox that runs
    as another user takes the socket over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    path.chmod(0o600)
    return _start(app, listener, pace, path)


def serve_on_loopback(app: FastAPI, port: int = 0) -> GradingServer:
    """Serve on 127.0.0.1; port 0 takes a free one. Raises ServerError if it does not start."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ServerError(f"port {port} of 127.0.0.1 cannot be bound ({error.strerror}); choose another") from error
    return _start(app, listener, PACE, None)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Not what is not HTTP: a client can send it without end."""
    return record.msg != "Invalid HTTP request received."


def _start(app: FastAPI, listener: socket.socket, pace: Pace, path: Path | None) -> GradingServer:
    config = uvicorn.Config(
        app,
        http=functools.partial(BoundedProtocol, pace=pace),  # type: ignore[arg-type]
        ws="none",  # a connection that changes its protocol would be counted and timed by nobody
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        log_config=None,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_worth_a_line)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="grading-api", daemon=True)
    thread.start()
    ends_at = time.monotonic() + START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > ends_at:
            server.should_exit = True
            listener.close()
            raise ServerError(f"the grading API did not start within {START_S:g} seconds; see the log")
        time.sleep(0.01)
    port = None if path is not None else int(listener.getsockname()[1])
    return GradingServer(port, server, thread, listener, path)
