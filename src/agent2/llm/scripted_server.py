"""A scripted LLM server: plays an LLM from a script, for tests of agents, gateway and replay without any provider.

`python -m agent2.llm.scripted_server --script FILE` serves until it is stopped; the first line printed is its URL.
Answers like a provider: GET /v1/models, POST /v1/chat/completions, /v1/responses, /v1/messages (and its
count_tokens), /v1beta/models/MODEL:generateContent, :streamGenerateContent, :countTokens. With a key, a request
that does not carry it gets 401. Each request leaves one line in the log: which step it got, its usage, never its
text or its key. Does NOT keep anything between requests.
"""

import argparse
import asyncio
import gzip
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import uvicorn
import zstandard
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from agent2.errors import Agent2Error
from agent2.llm.gateway.routes import RequestKind, find_route, models_body, request_key
from agent2.llm.protocols import FORMATS, WireFormat
from agent2.llm.records import WireProtocol
from agent2.llm.scripted_replies import Script, ScriptedReply, decide, load_script

COUNTED_TOKENS = 123
"""The answer of the paths that count tokens; nothing is billed for them."""
MAX_BODY = 64 * 2**20
KEY_VARIABLE = "SCRIPTED_LLM_KEY"
"""If set, requests must carry this key."""


def make_app(script: Script, log: Path | None = None, key: str | None = None) -> FastAPI:
    """The server's application.

    log: file to append one JSON line a request to. key: what a request must carry, in any of the protocols' headers.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/{path:path}")
    async def get(path: str) -> Response:
        route = find_route("GET", f"/{path}", {})
        if route is not None:
            return JSONResponse(models_body(route.protocol, script.model, is_one=False))
        if path in {"", "health"}:
            return JSONResponse({"ok": True})
        return _error(404, f"/{path} is not served")

    @app.post("/{path:path}")
    async def post(path: str, request: Request) -> Response:
        if key is not None and not secrets.compare_digest(request_key(request.headers, request.query_params), key):
            _note(log, {"path": f"/{path}", "status": 401})
            return _error(401, "wrong key")
        route = find_route("POST", f"/{path}", request.headers)
        if route is None:
            return _error(404, f"/{path} is not served")
        if route.kind is RequestKind.COUNT:
            name = "totalTokens" if route.protocol is WireProtocol.GEMINI else "input_tokens"
            return JSONResponse({name: COUNTED_TOKENS})
        try:
            body = _decoded(await request.body(), request.headers.get("content-encoding", ""))
        except (ValueError, OSError, zstandard.ZstdError) as error:
            return _error(400, f"the body is not a JSON object: {error}")
        wire_format = FORMATS[route.protocol]
        reply = decide(script, wire_format.parse_request(body))
        is_streamed = bool(body.get("stream") if route.stream is None else route.stream)
        _note(log, _line(path, route.protocol, body, reply, is_streamed))
        await asyncio.sleep(reply.delay_s)
        if not is_streamed:
            return JSONResponse(wire_format.build_answer(body, reply.answer))
        lines = _event_lines(wire_format, wire_format.build_events(body, reply.answer))
        return StreamingResponse(_paced(lines), media_type="text/event-stream")

    return app


def _line(
    path: str, protocol: WireProtocol, body: Mapping[str, Any], reply: ScriptedReply, is_streamed: bool
) -> dict[str, Any]:
    return {
        "path": f"/{path}",
        "protocol": protocol.value,
        "status": 200,
        "step": reply.step,
        "model": body.get("model"),
        "stream": is_streamed,
        "tools": len(reply.answer.calls),
        "usage": reply.usage.model_dump(),
    }


def _event_lines(wire_format: WireFormat, events: Iterator[dict[str, Any]]) -> Iterator[str]:
    for event in events:
        head = f"event: {event['type']}\n" if wire_format.has_named_events else ""
        yield f"{head}data: {json.dumps(event)}\n\n"
    if wire_format.ends_with_done:
        yield "data: [DONE]\n\n"


async def _paced(lines: Iterator[str]) -> AsyncIterator[str]:
    """One write for each event, so that readers see a stream and not one block."""
    for line in lines:
        yield line
        await asyncio.sleep(0)


def _decoded(raw: bytes, encoding: str) -> dict[str, Any]:
    if encoding == "gzip":
        raw = gzip.decompress(raw)
    elif encoding == "zstd":
        raw = zstandard.ZstdDecompressor().decompress(raw, max_output_size=MAX_BODY)
    body = json.loads(raw)
    if not isinstance(body, dict):
        raise ValueError(f"it holds a {type(body).__name__}")
    return body


def _error(status: int, message: str) -> Response:
    """An error in a form that the client libraries of all four protocols understand."""
    error = {"type": "invalid_request_error", "message": message, "code": status, "status": "FAILED"}
    return JSONResponse({"type": "error", "error": error}, status)


def _note(log: Path | None, line: dict[str, Any]) -> None:
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **line}) + "\n")


def main() -> None:
    """Serve a script on a loopback port or a unix socket."""
    parser = argparse.ArgumentParser(
        prog="python -m agent2.llm.scripted_server",
        description="Serves until it is stopped; the first line printed is its URL.",
    )
    parser.add_argument("--script", required=True, help="YAML file with the steps, or arithmetic, the packaged one")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0: a free one")
    parser.add_argument("--socket", type=Path, help="unix socket, instead of a port")
    parser.add_argument("--log", type=Path, help="file to which one JSON line per request is appended")
    arguments = parser.parse_args()
    try:
        app = make_app(load_script(arguments.script), arguments.log, os.environ.get(KEY_VARIABLE))
    except Agent2Error as error:
        sys.exit(f"{parser.prog}: {error}")
    listener, url = _listen(arguments.port, arguments.socket)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int, path: Path | None) -> tuple[socket.socket, str]:
    if path is not None:
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        return listener, f"unix:{path}"
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()  # before the address is printed: its reader may connect at once
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


if __name__ == "__main__":
    main()
