"""A provider on loopback that says what a test tells it to, and an agent that talks to the gateway's socket."""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web

from agent2.llm.gateway.settings import GatewaySettings
from agent2.llm.gateway.supervisor import Gateway
from agent2.llm.records import ProviderEndpoint, WireProtocol
from socket_paths import short_path

KEY = "sk-real-0123456789abcdef-secret"
DUMMY = "sk-agent2-00000000000000000000000000000000"
PRICES = """\
date: 2026-01-01
models:
  priced: {input: 1.0, cached_input: 0.1, cache_write: 1.25, cache_write_1h: 2.0, output: 10.0, source: made up}
"""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CHAT_USAGE = {
    "prompt_tokens": 1000,
    "completion_tokens": 50,
    "total_tokens": 1050,
    "prompt_tokens_details": {"cached_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 10},
}
RESPONSES_USAGE = {
    "input_tokens": 1000,
    "input_tokens_details": {"cached_tokens": 100},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 10},
    "total_tokens": 1050,
}
ANTHROPIC_USAGE = {
    "input_tokens": 700,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 200,
    "cache_creation": {"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
    "output_tokens": 50,
}
GEMINI_USAGE = {
    "promptTokenCount": 1000,
    "candidatesTokenCount": 40,
    "cachedContentTokenCount": 100,
    "thoughtsTokenCount": 10,
    "totalTokenCount": 1050,
}


def sse(*events: Any, done: bool = False, named: bool = False) -> bytes:
    """Events as a stream's bytes."""
    text = "".join((f"event: {e['type']}\n" if named else "") + f"data: {json.dumps(e)}\n\n" for e in events)
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def chat_chunks(text: str = "hello", usage: Any = CHAT_USAGE) -> list[dict[str, Any]]:
    """A chat stream: text, finish, usage."""
    base = {"id": "chatcmpl-abcdef123", "object": "chat.completion.chunk", "created": 1, "model": "priced"}
    return [
        {**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {**base, "choices": [], "usage": usage},
    ]


def answer_stream(protocol: WireProtocol, text: str = "hello") -> bytes:
    """A whole stream of a protocol."""
    if protocol is WireProtocol.OPENAI_CHAT:
        return sse(*chat_chunks(text), done=True)
    if protocol is WireProtocol.OPENAI_RESPONSES:
        response = {"id": "resp_1", "status": "completed", "output": [{"type": "message", "content": text}]}
        return sse(
            {"type": "response.created", "response": {**response, "status": "in_progress", "usage": None}},
            {"type": "response.output_text.delta", "delta": text},
            {"type": "response.completed", "response": {**response, "usage": RESPONSES_USAGE}},
            named=True,
        )
    if protocol is WireProtocol.ANTHROPIC:
        start = {**ANTHROPIC_USAGE, "output_tokens": 1}
        return sse(
            {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": start}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}},
            {"type": "message_stop"},
            named=True,
        )
    parts = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    early = {**GEMINI_USAGE, "candidatesTokenCount": 1}
    return sse(
        {"candidates": [parts], "usageMetadata": early},
        {"candidates": [{**parts, "finishReason": "STOP"}], "usageMetadata": GEMINI_USAGE},
    )


def answer_whole(protocol: WireProtocol, text: str = "hello") -> dict[str, Any]:
    """A whole answer of a protocol."""
    if protocol is WireProtocol.OPENAI_CHAT:
        return {"id": "c", "choices": [{"message": {"role": "assistant", "content": text}}], "usage": CHAT_USAGE}
    if protocol is WireProtocol.OPENAI_RESPONSES:
        return {"id": "resp_1", "status": "completed", "output": [{"content": text}], "usage": RESPONSES_USAGE}
    if protocol is WireProtocol.ANTHROPIC:
        return {"id": "m", "type": "message", "content": [{"type": "text", "text": text}], "usage": ANTHROPIC_USAGE}
    return {"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": GEMINI_USAGE}


class FakeProvider:
    """Answers each request with the next handler, or, when none is left, in the protocol's own way."""

    def __init__(self) -> None:
        self.handlers: deque[Handler] = deque()
        self.requests: list[dict[str, Any]] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(120)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)

    def then(self, *handlers: Handler) -> None:
        """Answer the next requests so."""
        self.handlers.extend(handlers)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=2**28)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self._loop.run_until_complete(web.SockSite(runner, listener).start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        recorded = {"path": request.path, "query": dict(request.query), "headers": dict(request.headers), "body": body}
        self.requests.append(recorded)
        if self.handlers:
            return await self.handlers.popleft()(request)
        return usual(request, body)


def usual(request: web.Request, body: bytes) -> web.Response:
    """The answer of a provider that is well."""
    path = request.path
    if path.endswith("count_tokens"):
        return web.json_response({"input_tokens": 123})
    if path.endswith("countTokens"):
        return web.json_response({"totalTokens": 123})
    if path.endswith("/chat/completions"):
        protocol = WireProtocol.OPENAI_CHAT
    elif path.endswith("/responses"):
        protocol = WireProtocol.OPENAI_RESPONSES
    elif path.endswith("/messages"):
        protocol = WireProtocol.ANTHROPIC
    else:
        protocol = WireProtocol.GEMINI
    stream = "streamGenerateContent" in path or json.loads(body).get("stream")
    if stream:
        return web.Response(body=answer_stream(protocol), headers={"content-type": "text/event-stream"})
    return web.json_response(answer_whole(protocol))


def saying(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Handler:
    """A handler that answers with a status."""

    async def handler(_: web.Request) -> web.Response:
        return web.json_response(
            body if body is not None else {"error": {"message": "told so"}}, status=status, headers=headers
        )

    return handler


def streaming(*pieces: bytes, wait_s: float = 0.0, cut: bool = False) -> Handler:
    """A handler that streams pieces, with a pause before each, and then ends well or breaks off."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await asyncio.sleep(wait_s)
            await response.write(piece)
        if cut and request.transport is not None:
            await asyncio.sleep(0.05)
            request.transport.abort()
        return response

    return handler


def held(until: threading.Event, handler: Handler) -> Handler:
    """A handler that answers as soon as the test lets it."""

    async def wait(request: web.Request) -> web.StreamResponse:
        assert await asyncio.to_thread(until.wait, 120)
        return await handler(request)

    return wait


PATHS = {
    WireProtocol.OPENAI_CHAT: "/v1/chat/completions",
    WireProtocol.OPENAI_RESPONSES: "/v1/responses",
    WireProtocol.ANTHROPIC: "/v1/messages",
    WireProtocol.GEMINI: "/v1beta/models/gemini-small:generateContent",
}


def request_of(
    protocol: WireProtocol, text: str = "hi", *, stream: bool = False, **fields: Any
) -> tuple[str, dict[str, Any]]:
    """Path and body of a request."""
    message = [{"role": "user", "content": text}]
    if protocol is WireProtocol.GEMINI:
        path = PATHS[protocol]
        if stream:
            path = path.replace(":generateContent", ":streamGenerateContent") + "?alt=sse"
        return path, {"contents": [{"role": "user", "parts": [{"text": text}]}], **fields}
    body: dict[str, Any] = {"model": "small-helper", **fields}
    body["input" if protocol is WireProtocol.OPENAI_RESPONSES else "messages"] = message
    if protocol is WireProtocol.ANTHROPIC:
        body.setdefault("max_tokens", 100)
    if stream:
        body["stream"] = True
    return PATHS[protocol], body


def agent(settings: GatewaySettings, key: str = DUMMY) -> httpx.Client:
    """A client of the gateway, with the trial's dummy key."""
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=short_path(settings.socket)),
        base_url="http://gateway",
        headers={"authorization": f"Bearer {key}"},
        timeout=120,
    )


def gateway_settings(root: Path, url: str | None, **fields: Any) -> GatewaySettings:
    """Settings of a gateway whose provider is at `url`."""
    prices = root / "prices.yaml"
    prices.write_text(PRICES)
    endpoints = (
        () if url is None else tuple(ProviderEndpoint(protocol=p, base_url=url, api_key=KEY) for p in WireProtocol)
    )
    defaults: dict[str, Any] = {
        "socket": root / "llm.sock",
        "record": root / "llm",
        "endpoints": endpoints,
        "model": "priced",
        "dummy_key": DUMMY,
        "prices": prices,
    }
    return GatewaySettings(**{**defaults, **fields})


@contextmanager
def running(settings: GatewaySettings) -> Iterator[tuple[Gateway, httpx.Client]]:
    """A gateway process and an agent's client of it."""
    with Gateway.start(settings) as gateway, agent(settings) as client:
        yield gateway, client


def hang_up_when(is_so: Callable[[], bool], settings: GatewaySettings, request: tuple[str, dict[str, Any]]) -> None:
    """Make a request as the agent does, and hang up without its answer as soon as something is so."""
    with agent(settings) as client:
        built = client.build_request("POST", request[0], json=request[1])
    lines = [f"POST {built.url.raw_path.decode()} HTTP/1.1", *(f"{name}: {it}" for name, it in built.headers.items())]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(short_path(settings.socket))
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + built.content)
        wait_for(is_so)


def settle(settings: GatewaySettings) -> None:
    """Until the gateway has seen all that was sent to it before, and who has hung up.

    It has one thread, and takes connections, and what they bring, in the order in which it came.
    """
    for _ in range(2):
        with agent(settings) as client:
            assert client.get("/health").status_code == 200


def wait_for(is_so: Callable[[], bool]) -> None:
    """Until something is so; two minutes at most."""
    ends_at = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.02)
