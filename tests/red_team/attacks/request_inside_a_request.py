"""Send the gateway a request in whose body another one hides, by lengths and chunks that disagree."""

import socket

from gateway_fakes import DUMMY
from red_team.frame import Outcome
from red_team.framing import lenient_server, naive_front, requests_in_requests, send, statuses
from red_team.providers import WEB, fetches, gateway, image
from red_team.scene import Scene

AIM = "a call to the provider, with our key, that no filter has seen"
DEFENCE = "a request whose end is not clear is refused; what was read is sent, in a frame of our own"

HEAD = b"Host: gateway\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n" % DUMMY.encode()
BODY = image(WEB)
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HEAD
SECOND = POST + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
HARMLESS = (b"GET /v1/models HTTP/1.1\r\n" + HEAD, POST)


def attempt(scene: Scene) -> Outcome:
    refused = n_sent = 0
    with gateway(scene) as (provider, client, settings):

        def connect() -> socket.socket:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(settings.socket))
            return connection

        for first in HARMLESS:
            for raw in requests_in_requests(first, SECOND).values():
                n_sent += 1
                refused += 400 in statuses(send(connect, raw))
        escaped = [did for request in provider.requests if (did := fetches(request["body"]))]
        alive = client.post("/v1/chat/completions", json={"model": "m", "messages": []}).status_code
    if alive != 200:
        return Outcome(True, f"after it an honest call got {alive}")
    return Outcome(bool(escaped), (escaped or [f"{refused} of {n_sent} refused as malformed, none reached it"])[0])


def control(scene: Scene) -> Outcome:
    def is_allowed(request: bytes) -> bool:
        return request.startswith(b"GET ") or WEB.encode() not in request

    raw = requests_in_requests(HARMLESS[0], SECOND)["a length and chunks"]
    lines = lenient_server(naive_front(raw, is_allowed))
    return Outcome(any(line.startswith(b"POST") for line in lines), f"behind a naive front: {lines}")
