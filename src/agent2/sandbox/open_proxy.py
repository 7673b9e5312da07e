"""The proxy of the network policy `open`: any public host, for programs that use HTTP(S)_PROXY.

Runs outside, as a process of its own, behind a unix socket that the sandbox reaches as a loopback port; the sandbox
itself still has no network. Tunnels (CONNECT) and plain HTTP go to public addresses only: loopback, private and
link-local ones and those of this machine, where other graders and metadata services live, are refused, by the address
that a name resolves to. Each connection leaves a line in the record with its host and bytes. Settings come as JSON on
the first line of standard input; it ends when standard input closes.

What travels inside a tunnel is not seen, so nothing that the program sends or fetches can be told afterwards:
reports flag the policy. No UDP, no name lookup inside, no way through another proxy of the host.
"""

import asyncio
import ipaddress
import json
import socket
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import psutil

from agent2.sandbox.registries import Settings
from agent2.sandbox.until_closed import say_ready, serve_until_closed

MAX_HEAD = 1 << 16
HEAD_S = 30.0
CONNECT_S = 30.0
MAX_CONNECTIONS = 256
MAX_RECORDS = 200_000
CHUNK = 1 << 16

Address = tuple[str, int]


class OpenLaunch(Settings):
    """What the process reads first."""

    socket: Path
    record: Path
    """Lines of JSON; appended."""
    allow_private: bool = False
    """Also addresses that are not public."""


class ProxyRefusal(Exception):
    """A request that is answered with a status and a sentence; it never leaves this module."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class OpenProxy:
    """Answers connections from inside."""

    def __init__(self, launch: OpenLaunch, record: IO[str]) -> None:
        self._launch = launch
        self._record = record
        self._n_records = 0
        self._gate = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one connection."""
        task = asyncio.create_task(self._handle(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all connections; they are in the record then."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, sent, received, refused = "", [0], [0], None
        try:
            async with self._gate:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
                (host, port), first = _destination(head)
                upstream_reader, upstream = await self._connect(host, port)
                if first is None:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    upstream.write(first)
                try:
                    await asyncio.gather(_copy(reader, upstream, sent), _copy(upstream_reader, writer, received))
                finally:
                    upstream.close()
        except ProxyRefusal as error:
            refused = str(error)
            writer.write(f"HTTP/1.1 {error.status}\r\nConnection: close\r\n\r\nproxy: {error}\n".encode())
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            refused = f"{type(error).__name__}: {error}"[:200]
        finally:
            self._write(host, sent[0], received[0], refused)
            writer.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address of the host that is allowed; the name is looked up once, so it cannot change."""
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), CONNECT_S)
        except (OSError, UnicodeError) as error:  # the second: no name that could be looked up
            raise ProxyRefusal("502 Bad Gateway", f"{host} has no address: {error}") from error
        addresses = [(str(one[4][0]), int(one[4][1])) for one in found]
        if not self._launch.allow_private:
            own = {one.address for interface in psutil.net_if_addrs().values() for one in interface}
            addresses = [one for one in addresses if is_public(one[0]) and one[0] not in own]
        if not addresses:
            raise ProxyRefusal("403 Forbidden", f"{host} is not a public address")
        last: OSError | TimeoutError = TimeoutError("no answer")
        for address, number in addresses[:4]:
            try:
                return await asyncio.wait_for(asyncio.open_connection(address, number), CONNECT_S)
            except (OSError, TimeoutError) as error:
                last = error
        raise ProxyRefusal("502 Bad Gateway", f"{host} does not answer: {last}")

    def _write(self, host: str, sent: int, received: int, refused: str | None) -> None:
        if self._n_records >= MAX_RECORDS:
            return
        self._n_records += 1
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"at": at, "host": host[:255], "sent": sent, "received": received}
        if refused is not None:
            line["refused"] = refused
        if self._n_records == MAX_RECORDS:
            line["note"] = "the record is full; later connections are not in it"
        self._record.write(json.dumps(line) + "\n")
        self._record.flush()


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet."""
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(number, ipaddress.IPv6Address):
        inner = number.ipv4_mapped or number.sixtofour or (number.teredo[1] if number.teredo else None)
        if inner is not None:
            return is_public(str(inner))
        if number in ipaddress.ip_network("64:ff9b::/96"):  # the last 32 bits are an IPv4 address
            return is_public(str(ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)))
    return number.is_global and not number.is_multicast


def _destination(head: bytes) -> tuple[Address, bytes | None]:
    """Host and port of a request, and what to send there first; None for a tunnel. Raises Refusal."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3:
        raise ProxyRefusal("400 Bad Request", "this is not an HTTP request")
    method, target, version = words
    tunnel = method == "CONNECT"
    try:
        parts = urlsplit(f"//{target}" if tunnel else target)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ProxyRefusal("400 Bad Request", f"{target[:200]!r} is not an address") from error
    if not host or (not tunnel and parts.scheme != "http"):
        raise ProxyRefusal(
            "400 Bad Request", f"{target[:200]!r} is not an address of a host; use http://HOST/ or CONNECT"
        )
    if tunnel:
        return (host, port or 443), None
    path = parts.path or "/"
    path = f"{path}?{parts.query}" if parts.query else path
    kept = [one for one in rest.split(b"\r\n") if one and not one.lower().startswith((b"proxy-", b"connection:"))]
    first = b"\r\n".join([f"{method} {path} {version}".encode("latin-1"), *kept, b"Connection: close", b"", b""])
    return (host, port or 80), first


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: list[int]) -> None:
    while data := await reader.read(CHUNK):
        count[0] += len(data)
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def serve(launch: OpenLaunch, stop: asyncio.Event) -> None:
    """Answer on the socket until `stop` is set."""
    with launch.record.open("a", encoding="utf-8") as file:
        proxy = OpenProxy(launch, file)
        server = await asyncio.start_unix_server(proxy.accept, str(launch.socket), limit=MAX_HEAD)
        say_ready()
        await stop.wait()
        server.close()
        await proxy.close()


def main() -> None:
    """Serve until standard input closes."""
    launch = OpenLaunch.model_validate_json(sys.stdin.buffer.readline())
    serve_until_closed(partial(serve, launch))


if __name__ == "__main__":
    main()
