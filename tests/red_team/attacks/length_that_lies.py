"""Announce a short body to the grading API and send a long one, or hide a second submission in the first."""

import json
import re
import socket

from agent2.arena.grader.server import MAX_BODY_BYTES
from red_team.frame import Outcome
from red_team.framing import requests_in_requests, send, statuses
from red_team.scene import Scene
from socket_paths import short_path

AIM = "a grader that reads more than it allows, or an answer to a request that nobody sees"
DEFENCE = "bytes are counted as they come, and a request whose end is not clear is refused"

HEAD = b"POST /submit HTTP/1.1\r\nHost: grader\r\nContent-Type: application/json\r\n"
MARK = "hidden in another"
BODY = json.dumps({"model_path": "output/nowhere", "note": MARK, "wait": False}).encode()
SECOND = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
UNCLEAR = ("a length and chunks", "chunks and a short length")
LONG = b'{"model_path": "%s"}' % (b"x" * (4 * MAX_BODY_BYTES))


def attempt(scene: Scene) -> Outcome:
    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(short_path(scene.paths.grader_socket))
        return client

    kinds = dict(requests_in_requests(HEAD, SECOND))
    del kinds["a trailer of framing"]  # which ends where everybody sees its end: the second one is the agent's next
    statuses_by_kind = {kind: statuses(send(connect, raw)) for kind, raw in kinds.items()}
    for kind in ("chunks", *UNCLEAR):
        statuses_by_kind[f"{kind}, too long"] = statuses(send(connect, too_long(kind)))
    with scene.client() as client:
        alive = client.get("/health").status_code
        held = client.get("/submissions").text
    if alive != 200:
        return Outcome(True, f"after it /health says {alive}")
    taken = [kind for kind, codes in statuses_by_kind.items() if any(code < 400 or code >= 500 for code in codes)]
    seen_twice = [kind for kind, codes in statuses_by_kind.items() if len(codes) > 1]
    if MARK in held or taken or seen_twice:
        return Outcome(True, f"taken: {taken}, a second request seen: {seen_twice}")
    codes_seen = sorted({code for codes in statuses_by_kind.values() for code in codes})
    return Outcome(False, f"{len(statuses_by_kind)} sent, none taken, no second request seen: {codes_seen}")


def control(scene: Scene) -> Outcome:
    """A limit that believes the announced length, in front of a reader that believes the chunks."""
    head, _, body = too_long(UNCLEAR[0]).partition(b"\r\n\r\n")
    announced = re.search(rb"Content-Length: (\d+)", head)
    is_let_in = announced is not None and int(announced[1]) <= MAX_BODY_BYTES
    size = int(body.partition(b"\r\n")[0], 16)
    return Outcome(is_let_in and size > MAX_BODY_BYTES, f"a limit on the announced length lets {size} bytes in")


def too_long(kind: str) -> bytes:
    """A body over the limit in one chunk, with a short length beside it where the kind says so."""
    length = b"Content-Length: 4\r\n" if kind in UNCLEAR else b""
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(LONG), LONG)
    return HEAD + length + b"Transfer-Encoding: chunked\r\n\r\n" + chunk
