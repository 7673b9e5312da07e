"""Requests whose end two readers of HTTP see at different places, so that one of them finds a second request inside.

The controls send them through a front that one would write in an afternoon: it believes Content-Length, looks at what
it takes for requests, and passes their bytes on. Behind it reads a server that believes Transfer-Encoding.
"""

import re
import socket
from collections.abc import Callable, Mapping

Connect = Callable[[], socket.socket]
PATIENCE_S, MORE_S = 5.0, 0.3
"""How long a server may take for its first answer, and for a further one; a reader that wants more bytes is left."""


def requests_in_requests(first: bytes, second: bytes) -> Mapping[str, bytes]:
    """How it is framed -> bytes to send. first: a request's lines, without the empty one; second: a whole request."""
    n, chunk = len(second), b"%x\r\n%s\r\n0\r\n\r\n" % (len(second), second)

    def framed(*headers: bytes, body: bytes) -> bytes:
        return first + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + body

    length = b"Content-Length: %d"
    ended = b"0\r\n\r\n" + second
    chunked = b"Transfer-Encoding: chunked"
    return {
        "a length and chunks": framed(length % len(ended), chunked, body=ended),
        "chunks and a short length": framed(length % chunk.find(b"\n"), chunked, body=chunk),
        "two lengths": framed(length % 0, length % n, body=second),
        "two lengths, the long one first": framed(length % n, length % 0, body=second),
        "a list of lengths": framed(b"Content-Length: %d, 0" % n, body=second),
        "a signed length": framed(b"Content-Length: +%d" % n, body=second),
        "a length with an underscore": framed(b"Content-Length: %d_%d" % divmod(n, 10), body=second),
        "an encoding that nobody knows": framed(length % len(ended), b"Transfer-Encoding: xchunked", body=ended),
        "two encodings": framed(length % len(ended), chunked, b"Transfer-Encoding: identity", body=ended),
        "a blank before the colon": framed(length % len(ended), b"Transfer-Encoding : chunked", body=ended),
        "a folded line": framed(length % len(ended), b"Transfer-Encoding:\r\n chunked", body=ended),
        "a line feed in a value": framed(length % len(ended), b"A: b\nTransfer-Encoding: chunked", body=ended),
        "a line feed in a chunk's extension": framed(chunked, body=b"5;a=\nb\r\n" + b"0\r\n\r\n" + second),
        "a return in a chunk's extension": framed(chunked, body=b"5;a=\rb\r\n" + b"0\r\n\r\n" + second),
        "a signed chunk": framed(chunked, body=b"+0\r\n\r\n" + second),
        "a chunk in C's notation": framed(chunked, body=b"0x0\r\n\r\n" + second),
        "a chunk longer than it says": framed(chunked, body=b"1\r\nab0\r\n\r\n" + second),
        "a trailer of framing": framed(chunked, body=b"0\r\nContent-Length: %d\r\n\r\n%s" % (n, second)),
    }


def send(connect: Connect, raw: bytes) -> bytes:
    """What a server answers until it hangs up or says nothing more."""
    answered = b""
    with connect() as client:
        client.settimeout(PATIENCE_S)
        try:
            client.sendall(raw)
            while part := client.recv(65536):
                answered += part
                client.settimeout(MORE_S)
        except OSError:
            pass  # hung up on, or waited for
    return answered


def statuses(answered: bytes) -> list[int]:
    """Status of each answer, in their order."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3})", answered)]


def naive_front(raw: bytes, is_allowed: Callable[[bytes], bool]) -> bytes:
    """The bytes that reach the server behind: those of allowed requests, delimited by Content-Length."""
    passed = b""
    while raw:
        head, _, remainder = raw.partition(b"\r\n\r\n")
        lengths = re.findall(rb"(?im)^content-length: *(\d+)\r?$", head)
        n = int(lengths[-1]) if lengths else 0
        request = head + b"\r\n\r\n" + remainder[:n]
        passed += request if is_allowed(request) else b""
        raw = remainder[n:]
    return passed


def lenient_server(raw: bytes) -> list[bytes]:
    """First lines of the requests that a server finds which believes Transfer-Encoding."""
    lines = []
    while raw:
        head, _, remainder = raw.partition(b"\r\n\r\n")
        lines.append(head.partition(b"\r\n")[0])
        if b"chunked" in head.lower():
            remainder = remainder.partition(b"0\r\n\r\n")[2]
        else:
            length = re.search(rb"(?im)^content-length: *(\d+)\r?$", head)
            remainder = remainder[int(length[1]) if length else 0 :]
        raw = remainder
    return lines
