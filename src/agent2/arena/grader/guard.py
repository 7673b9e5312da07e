"""What stands before every route of the grading API: a size limit for bodies and, over TCP, a bearer token."""

import json
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 64 << 10
"""The longest path and note, escaped, fit several times."""


class Guard:
    """ASGI middleware; answers 401 or 413 itself and hands everything else on."""

    def __init__(self, app: ASGIApp, token: str | None = None):
        self._app = app
        self._token = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._is_known(scope):
            await _refuse(send, 401, "a bearer token is needed; send the header 'Authorization: Bearer ...'")
            return
        body = await _read_body(receive)
        if body is None:
            await _refuse(
                send, 413, f"the body is longer than {MAX_BODY_BYTES} bytes; send model_path and a short note"
            )
            return
        await self._app(scope, _replay(body, receive), send)

    def _is_known(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        return secrets.compare_digest(given, self._token)


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, or None as soon as it is too long, whatever length was announced."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":  # the client is gone
            return body
        chunk: bytes = message.get("body", b"")
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _refuse(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error, "score": None, "submission_id": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
