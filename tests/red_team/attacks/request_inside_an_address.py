"""Ask the package proxy for an address that holds a line break and a second request, or hide one in a body."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent2.sandbox.spec import Network, PackageSettings, Registry
from red_team.frame import Outcome
from red_team.framing import lenient_server, naive_front, requests_in_requests
from red_team.scene import Scene

AIM = "an upload to a registry that may only be read"
DEFENCE = "of a request only method and address are taken, as they were sent; a new one is made of them"

FIRST = b"GET /pypi/a/ HTTP/1.1\r\nHost: a\r\n"
SECOND = b"POST /legacy/ HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nsecret"
BREAK = "%20HTTP/1.1%0d%0aHost:%20a%0d%0a%0d%0aPOST%20/legacy/%20HTTP/1.1%0d%0aHost:%20a%0d%0aX:%20"
ADDRESSES = [
    f"/pypi/a/?b={BREAK}",
    f"/pypi/a/{BREAK}",
    "/pypi/..%2f..%2flegacy/",
    "http://a/pypi/a/",
    "/pypi/a/#/../..",
]
PROGRAM = """
import base64, json, os, socket
n_answered = 0
for raw in json.loads(os.environ["TARGETS"])["raw"]:
    with socket.create_connection(("127.0.0.1", 8431)) as client:
        client.settimeout(5)
        try:
            client.sendall(base64.b64decode(raw))
            while part := client.recv(65536):
                n_answered += part.count(b"HTTP/1.")
                client.settimeout(0.3)
        except OSError:
            pass
print("answers:", n_answered)
"""


def raws() -> list[bytes]:
    plain = [b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % address.encode() for address in ADDRESSES]
    return [*plain, *requests_in_requests(FIRST, SECOND).values()]


def attempt(scene: Scene) -> Outcome:
    requests: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _recorder(requests)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}"
        registry = Registry(name="pypi", origin=origin, prefix="/simple/", is_index=True)
        encoded = [base64.b64encode(raw).decode() for raw in raws()]
        ran = scene.run(
            PROGRAM,
            network=Network.PACKAGES,
            packages=PackageSettings(registries=(registry,)),
            more={"raw": encoded},
        )
        server.shutdown()
    if "answers:" not in ran.log or not requests:
        raise RuntimeError(f"nothing was asked of the registry: {ran.log[-300:]}")
    wrong = [line for line in requests if not line.startswith("GET /simple/")]
    return Outcome(
        bool(wrong), f"the registry got {wrong or 'nothing but'} {requests[:2]} from {len(encoded)} requests"[:200]
    )


def control(scene: Scene) -> Outcome:
    raw = requests_in_requests(FIRST, SECOND)["a length and chunks"]
    lines = lenient_server(naive_front(raw, lambda request: request.startswith(b"GET ")))
    return Outcome(any(line.startswith(b"POST") for line in lines), f"behind a naive proxy: {lines}")


def _recorder(requests: list[str]) -> type[BaseHTTPRequestHandler]:
    class Recorder(BaseHTTPRequestHandler):
        """A registry that keeps connections open and answers everything."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(f"{self.command} {self.path}")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_POST = do_PUT = do_GET

        def send_error(self, *_: object, **__: object) -> None:
            requests.append(f"malformed: {self.requestline}")
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Recorder
