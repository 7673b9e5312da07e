"""Network policies: what `none`, `packages` and `open` add to a program's ports and variables, and the open proxy.

The sandbox never gets a network of its own. A policy that allows something starts a proxy outside, in a process of its
own that holds no secret, and offers it as one more loopback port; programs find it by their usual variables. The proxy
ends with the sandbox and with the harness: its standard input closes then, kill -9 included.

`python -m agent2.sandbox.network` is the proxy of the policy `open`: any public host, for programs that use
HTTP(S)_PROXY. Tunnels (CONNECT) and plain HTTP go to public addresses only: loopback, private and link-local ones and
those of this machine, where other graders and metadata services live, are refused, by the address that a name resolves
to. Each connection leaves a line in the record with its host and bytes. What travels inside a tunnel is not seen, so
nothing that the program sends or fetches can be reconstructed afterwards: reports flag the policy. No UDP, no name
lookup inside, no way through another proxy of the host. `agent2.sandbox.package_proxy` serves the policy `packages`.
"""

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import psutil

from agent2.errors import SandboxError
from agent2.sandbox.spec import HOME, Network, PackageSettings, ProxyLaunch, SandboxSpec, Settings, package_environment

PORT = 8431
"""Loopback port inside that leads to the proxy."""
BASE = f"http://127.0.0.1:{PORT}"
MAX_HEAD = 1 << 16
"""Bytes of a request's head."""
HEAD_S = 30.0
"""From the opening of a connection to the end of its head."""
CONNECT_S = 30.0
"""To look up a name, and again for each address."""
MAX_CONNECTIONS = 256
"""Open at once; further ones wait."""
MAX_RECORDS = 200_000
"""Lines of the record; an agent must not fill the disk with it."""
CHUNK = 1 << 16
START_S = 120.0
"""Longest that a proxy may take to start."""
END_S = 5.0
"""From the end of its standard input until it is killed."""
Address = tuple[str, int]
PASSED_ON = ("PATH", "LANG", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Of the harness's variables; lower-case ones, too. No key is among them."""


def serve_until_closed(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `serve` in an event loop; its event is set when standard input closes."""

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def watch() -> None:
            sys.stdin.buffer.read()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=watch, daemon=True).start()
        await serve(stop)

    asyncio.run(run())


def ignore_malformed_requests() -> None:
    """Do not log bytes that are not HTTP, which aiohttp logs with a trace: a client can send them without end."""
    logging.getLogger("aiohttp.server").addFilter(_is_not_malformed_request)


def _is_not_malformed_request(record: logging.LogRecord) -> bool:
    return not record.exc_info or type(record.exc_info[1]).__module__ != "aiohttp.http_exceptions"


def unix_listener(path: Path) -> socket.socket:
    """A bound unix socket to which only its owner may connect; replaces one that a killed harness left behind.

    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The kernel takes socket paths of at most 107 bytes; a trial's folder may be longer, its descriptor's path is not.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    path.chmod(0o600)
    return listener


def report_ready() -> None:
    """Tell the harness that the socket can be used."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


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
        host, sent, received, refused = "", [0], [0], None  # lists, which `_copy` adds to while the connection is open
        try:
            async with self._gate:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
                (host, port), request = _destination(head)
                upstream_reader, upstream = await self._connect(host, port)
                if request is None:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    upstream.write(request)
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
            results = await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), CONNECT_S)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that is empty or too long
            raise ProxyRefusal("502 Bad Gateway", f"{host} has no address: {error}") from error
        addresses = [(str(result[4][0]), int(result[4][1])) for result in results]
        if not self._launch.allow_private:
            own_addresses = {
                interface_address.address
                for interface in psutil.net_if_addrs().values()
                for interface_address in interface
            }
            # not even this machine's public ones: services for this machine alone may listen there
            addresses = [address for address in addresses if is_public(address[0]) and address[0] not in own_addresses]
        if not addresses:
            raise ProxyRefusal("403 Forbidden", f"{host} is not a public address")
        last_error: OSError | TimeoutError = TimeoutError("no answer")
        for address, port_number in addresses[:4]:
            try:
                return await asyncio.wait_for(asyncio.open_connection(address, port_number), CONNECT_S)
            except (OSError, TimeoutError) as error:
                last_error = error
        raise ProxyRefusal("502 Bad Gateway", f"{host} does not answer: {last_error}")

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
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo[1] if parsed.teredo else None)
        if inner is not None:
            return is_public(str(inner))
        if parsed in ipaddress.ip_network("64:ff9b::/96"):  # NAT64, RFC 6052: the last 32 bits are an IPv4 address
            return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed.is_global and not parsed.is_multicast


def _destination(head: bytes) -> tuple[Address, bytes | None]:
    """Host and port of a request, and the head to send there; None for a tunnel. Raises ProxyRefusal."""
    line, _, fields = head.partition(b"\r\n")
    request_line = line.decode("latin-1").split(" ")
    if len(request_line) != 3:
        raise ProxyRefusal("400 Bad Request", "this is not an HTTP request")
    method, target, version = request_line
    is_tunnel = method == "CONNECT"
    try:
        parts = urlsplit(f"//{target}" if is_tunnel else target)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ProxyRefusal("400 Bad Request", f"{target[:200]!r} is not an address") from error
    if not host or (not is_tunnel and parts.scheme != "http"):
        raise ProxyRefusal(
            "400 Bad Request", f"{target[:200]!r} is not an address of a host; use http://HOST/ or CONNECT"
        )
    if is_tunnel:
        return (host, port or 443), None
    path = parts.path or "/"
    path = f"{path}?{parts.query}" if parts.query else path
    # one request on each connection: a second one could be for another host, which was not checked
    headers = [
        header
        for header in fields.split(b"\r\n")
        if header and not header.lower().startswith((b"proxy-", b"connection:"))
    ]
    request = b"\r\n".join([f"{method} {path} {version}".encode("latin-1"), *headers, b"Connection: close", b"", b""])
    return (host, port or 80), request


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
        report_ready()
        await stop.wait()
        server.close()
        await proxy.close()


def main() -> None:
    """Serve until standard input closes."""
    launch = OpenLaunch.model_validate_json(sys.stdin.buffer.readline())
    serve_until_closed(partial(serve, launch))


@dataclass(slots=True)
class ProxyProcess:
    """The running proxy of one sandbox."""

    process: subprocess.Popen[bytes]
    folder: Path

    def close(self) -> None:
        """End the proxy."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder)


def with_network(spec: SandboxSpec) -> tuple[SandboxSpec, ProxyProcess | None]:
    """The spec with the port and the variables of its policy, and what to close when the program has ended.

    Raises SandboxError if the port is taken or the proxy does not start.
    """
    if spec.network is Network.NONE:
        return spec, None
    if PORT in spec.ports:
        raise SandboxError(f"port {PORT} is the one of the network policy {spec.network}; choose another")
    settings = PackageSettings() if spec.packages is None else spec.packages
    record = spec.log.with_name(f"{spec.log.name}.network.jsonl") if spec.network_log is None else spec.network_log
    folder = Path(tempfile.mkdtemp(prefix="agent2-net-"))
    socket = folder / "s"
    try:
        if spec.network is Network.PACKAGES:
            launch = ProxyLaunch(socket=socket, record=record, base=BASE, settings=settings)
            process = _start("agent2.sandbox.package_proxy", launch.model_dump_json(), record)
            variables = package_environment(BASE, settings.registries, Path(HOME) / ".cache")
        else:
            process = _start(
                "agent2.sandbox.network", OpenLaunch(socket=socket, record=record).model_dump_json(), record
            )
            variables = {"NODE_USE_ENV_PROXY": "1"}
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                variables[name] = variables[name.lower()] = BASE
            for name in ("NO_PROXY", "no_proxy"):
                variables[name] = "127.0.0.1,localhost"
    except BaseException:
        shutil.rmtree(folder)
        raise
    ports = {**spec.ports, PORT: socket}
    return replace(spec, ports=ports, environment={**variables, **spec.environment}), ProxyProcess(process, folder)


def _start(module: str, settings: str, record: Path) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {name.lower(): os.environ[name.lower()] for name in PASSED_ON if name.lower() in os.environ}
    record.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, "NETRC": os.devnull},
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(settings.encode() + b"\n")
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    if ready and process.stdout.readline() == b"ready\n":
        return process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    raise SandboxError(f"{module} did not start (status {process.returncode}); look at its standard error")


if __name__ == "__main__":
    main()
