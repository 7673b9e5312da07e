"""Serves the grading API from a thread of the harness, on a unix socket or on loopback TCP.

The unix socket may have a path longer than the kernel's 108 bytes: it is bound through its folder's
descriptor. Does NOT encrypt; TCP is bound to loopback only and wants the token of `api.make_app`.

One HTTP connection of a client that nobody trusts: how many there may be, and how slow each may be.

A request's head has to arrive in time, and a client that does not read its answer is cut off; `guard` bounds
the body. A request that waits for a score is not slow: it may stay for hours. Does NOT
bound how many requests a client makes one after the other.

What stands before every route of the grading API: limits on a body, and over TCP a bearer token.

A body has to arrive in time, be at most `MAX_BODY_BYTES` long and nest at most `MAX_DEPTH` deep; that is
found out before anything parses it. A request that states its length in two ways is refused, since two readers may
see two requests in it (RFC 9112, section 6.3). Does NOT look at fields (see `api`) nor at the head (see `connection`).
"""

import asyncio
import functools
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent2.errors import Agent2Error, Fault

MAX_CONNECTIONS = 128
"""Open at once; a flood of them must not use up the harness's descriptors."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a client may take for its part of an exchange, in seconds."""

    head_s: float = 10.0
    """From the opening of the connection, or from the last answer, to the end of a request's head."""
    body_s: float = 20.0
    """From the end of the head to the end of the body."""
    read_s: float = 30.0
    """How long an answer may wait for its reader."""


class BoundedProtocol(H11Protocol):
    """HTTP that hangs up on connections beyond `MAX_CONNECTIONS` and on clients that are too slow."""

    def __init__(self, *arguments: Any, pace: Pace, **named: Any):
        super().__init__(*arguments, **named)
        self._pace = pace
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its first timer."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._head_timer = self.loop.call_later(self._pace.head_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Stop the timer of the head once a request is being answered."""
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        """Go on to the next request; uvicorn's own timer ends with the first byte of its head."""
        super().on_response_complete()
        self._watch_head()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(self._pace.read_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both timers."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._pace.head_s, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


MAX_BODY_BYTES = 64 << 10
"""The longest path and note, escaped, fit several times."""
MAX_DEPTH = 8
"""Of brackets and braces; a request needs one."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


class Guard:
    """ASGI middleware; answers 400, 401, 408, 413 or 422 itself and hands everything else on."""

    def __init__(self, app: ASGIApp, token: str | None, body_s: float):
        self._app = app
        self._token = None if token is None else f"Bearer {token}".encode()
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            await _refuse(send, 400, "both Content-Length and Transfer-Encoding are set; send one of them")
            return
        if not self._is_known(scope):
            await _refuse(send, 401, "a bearer token is needed; send the header 'Authorization: Bearer ...'")
            return
        try:
            async with asyncio.timeout(self._body_s):
                body = await _read_body(receive)
        except TimeoutError:
            await _refuse(send, 408, f"the body did not arrive within {self._body_s:g} seconds; send it in one piece")
            return
        if body is None:
            await _refuse(
                send, 413, f"the body is longer than {MAX_BODY_BYTES} bytes; send model_path and a short note"
            )
            return
        if depth_of(body) > MAX_DEPTH:
            await _refuse(send, 422, f"the body nests deeper than {MAX_DEPTH}; send one flat JSON object")
            return
        await self._app(scope, _replay(body, receive), send)

    def _is_known(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return secrets.compare_digest(given, self._token)


def depth_of(body: bytes) -> int:
    """How deep brackets nest outside of strings, in text that need not be JSON."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, or None as soon as it is too long, whatever length was announced."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":  # the client is gone
            return b"".join(chunks)
        chunk: bytes = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _refuse(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error, "score": None, "submission_id": None}).encode()
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
