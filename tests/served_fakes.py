"""Endpoints on this machine for tests: one that behaves as badly as it is told, and a real server of a library."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from agent2.sandbox.backends import free_port


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """So many bytes of the body are sent, then the connection is closed."""
    delay_s: float = 0.0
    piece_s: float = 0.0
    """Above 0: the body is sent in pieces of ten bytes, so long apart."""


def chat(text: Any, finish: str = "stop", **more: Any) -> Reply:
    """A good answer."""
    message = {"role": "assistant", "content": text}
    return Reply(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}).encode())


def error(status: int, message: str = "no", **headers: str) -> Reply:
    """An answer that says no."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps({"error": {"message": message}}).encode(), status, named)


@dataclass
class Served:
    """What runs, and what it was asked."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    most_at_once: int = 0
    """Requests that waited for an answer at the same time."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """A request that is accepted, its connection remembered."""
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def go_away(self) -> None:
        """Close what listens and every connection: one that was kept alive would still be answered."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the play."""


@contextmanager
def endpoint(reply: Callable[[dict[str, Any], int], Reply]) -> Iterator[Served]:
    """Serve `reply(body, number of the request from 0)` on a free port; the one-token probe is number 0."""
    lock = threading.Lock()
    at_once = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal at_once
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(served.bodies)
                served.bodies.append(body)
                served.paths.append(self.path)
                served.keys.append(self.headers.get("authorization"))
                at_once += 1
                served.most_at_once = max(served.most_at_once, at_once)
            try:
                answer = reply(body, number)
                threading.Event().wait(answer.delay_s)
            finally:
                with lock:  # before it is sent: who has the answer may ask again before this thread goes on
                    at_once -= 1
            self._send(answer)

        def _send(self, answer: Reply) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            for start in range(0, len(answer.body), 10) if answer.piece_s else ():
                self.wfile.write(answer.body[start : start + 10])
                self.wfile.flush()
                threading.Event().wait(answer.piece_s)
            if answer.piece_s:
                return
            self.wfile.write(answer.body if answer.cut_after is None else answer.body[: answer.cut_after])
            self.close_connection = answer.cut_after is not None

        def log_message(self, *arguments: Any) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_address[1]}/v1")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield served
    finally:
        server.go_away()


@contextmanager
def transformers_serve(model: Path, folder: Path) -> Iterator[str]:
    """`transformers serve` with one model, on a free port of this machine, until the block is left."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(model), "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    log = folder / "serve.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--host", "127.0.0.1"], env=environment, stdout=written, stderr=written
        )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _wait_until_healthy(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(2500):
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not start: {log.read_text()}")
