"""What stands before every route of the grading API: limits on a body, and over TCP a bearer token.

A body has to arrive in time, be at most `MAX_BODY_BYTES` long and nest at most `MAX_DEPTH` deep; that is
found out before anything parses it. A request that states its length in two ways is refused, since two readers may
see two requests in it (RFC 9112, section 6.3). Does NOT look at fields (see `api`) nor at the head (see `connection`).
"""

import asyncio
import json
import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
