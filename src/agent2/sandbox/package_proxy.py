"""The package proxy: reads allowed registries for a sandbox that has no network. `python -m ... package_proxy`.

Runs outside, as a process of its own, behind a unix socket that the sandbox reaches as a loopback port. Only GET and
HEAD; only addresses below an allowed registry; redirects only to allowed addresses; answers are bounded, one by
one and together; each request leaves a line in the record. Reads its settings (JSON) from the first line of standard
input and ends when standard input closes, so also when the harness is killed.

Does not look into packages: what a registry serves can be fetched, whatever it is, and the names that are asked
for tell the registry something. Sends no credentials of ours.
"""

import asyncio
import json
import sys
from datetime import UTC, datetime
from functools import partial
from typing import IO

import aiohttp
from aiohttp import web
from yarl import URL

from agent2.sandbox.network import ignore_malformed_requests, report_ready, serve_until_closed
from agent2.sandbox.spec import (
    GIB,
    MIB,
    PackageSettings,
    ProxyLaunch,
    Registry,
    find_target,
    inside_address,
    rewrite_links,
)

PASSED_ON = ("Accept", "User-Agent", "If-None-Match", "If-Modified-Since")
PASSED_BACK = ("Content-Type", "ETag", "Last-Modified", "X-PyPI-Last-Serial")
MAX_INDEX_MIB = 64
"""Pages whose links are rewritten are held in memory."""
MAX_RECORDS = 200_000
MAX_RECORDED_URL = 500
MAX_AT_ONCE = 16
CHUNK = 1 << 16


class PackageRecorder:
    """Writes each request and its result."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._left = MAX_RECORDS
        self.total = 0
        """Bytes passed on so far."""

    def write(self, method: str, url: str, status: int, size: int, refused: str | None = None) -> None:
        """One line; the last one says that the record is full."""
        if self._left <= 0:
            return
        self._left -= 1
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": method[:16],
            "url": url[:MAX_RECORDED_URL],
            "status": status,
            "bytes": size,
        }
        if refused is not None:
            line["refused"] = refused
        if self._left == 0:
            line["note"] = "the record is full; later requests are not in it"
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


class PackageProxy:
    """Answers requests from inside."""

    def __init__(self, launch: ProxyLaunch, session: aiohttp.ClientSession, record: PackageRecorder) -> None:
        self._launch = launch
        self._session = session
        self._record = record
        self._gate = asyncio.Semaphore(MAX_AT_ONCE)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request of any method."""
        if request.method not in {"GET", "HEAD"}:
            return self._refuse(request, 405, f"{request.method} is not allowed; only GET and HEAD")
        path, _, query = request.raw_path.partition("?")  # as sent: decoded, it could end the line of the next request
        target = find_target(path, query, self._settings.registries)
        if isinstance(target, str):
            return self._refuse(request, 403, target)
        if self._record.total >= self._settings.max_total_gib * GIB:
            return self._refuse(request, 403, f"{self._settings.max_total_gib:g} GiB were fetched, which is all")
        async with self._gate:
            try:
                return await self._fetch(request, target.registry, target.url)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                return self._refuse(request, 502, f"the registry does not answer: {type(error).__name__}: {error}")

    @property
    def _settings(self) -> PackageSettings:
        return self._launch.settings

    async def _fetch(self, request: web.BaseRequest, registry: Registry, url: str) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        headers["Accept-Encoding"] = "identity"  # links are rewritten in plain text
        async with self._session.request(
            request.method, URL(url, encoded=True), headers=headers, allow_redirects=False
        ) as answer:
            back = {name: answer.headers[name] for name in PASSED_BACK if name in answer.headers}
            if answer.status in {301, 302, 303, 307, 308}:
                return self._redirect(request, answer)
            is_page = registry.is_index and _holds_links(answer.content_type)
            limit = int((MAX_INDEX_MIB if is_page else self._settings.max_file_mib) * MIB)
            if answer.content_length is not None and answer.content_length > limit:
                return self._refuse(request, 403, f"{answer.content_length} bytes are more than the limit of {limit}")
            if request.method == "HEAD" or answer.status in {204, 304}:
                self._record.write(request.method, url, answer.status, 0)
                return web.Response(status=answer.status, headers=back)
            if is_page:
                return await self._page(request, url, answer, back)
            return await self._stream(request, url, answer, back)

    def _redirect(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.Response:
        location = str(answer.url.join(URL(answer.headers.get("Location", ""))))
        address = inside_address(location, self._launch.base, self._settings.registries)
        if address is None:
            return self._refuse(request, 403, f"the registry redirects to {location[:200]}, which is not allowed")
        self._record.write(request.method, str(answer.url), answer.status, 0)
        return web.Response(status=answer.status, headers={"Location": address})

    async def _page(
        self, request: web.BaseRequest, url: str, answer: aiohttp.ClientResponse, back: dict[str, str]
    ) -> web.Response:
        page = bytearray()
        async for chunk in answer.content.iter_chunked(CHUNK):
            page += chunk
            if len(page) > MAX_INDEX_MIB * MIB:
                return self._refuse(request, 403, f"the page is larger than {MAX_INDEX_MIB} MiB")
        self._record.total += len(page)
        self._record.write(request.method, url, answer.status, len(page))
        body = rewrite_links(bytes(page), self._launch.base, self._settings.registries)
        return web.Response(status=answer.status, headers=back, body=body)

    async def _stream(
        self, request: web.BaseRequest, url: str, answer: aiohttp.ClientResponse, back: dict[str, str]
    ) -> web.StreamResponse:
        limit = int(self._settings.max_file_mib * MIB)
        response = web.StreamResponse(status=answer.status, headers=back)
        if answer.content_length is not None:
            response.content_length = answer.content_length
        size, refused = 0, None
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_chunked(CHUNK):
                size += len(chunk)
                self._record.total += len(chunk)
                if size > limit or self._record.total > self._settings.max_total_gib * GIB:
                    refused = "cut off: more than the limit"
                    if request.transport is not None:
                        request.transport.abort()
                    break
                await response.write(chunk)
        finally:
            self._record.write(request.method, url, answer.status, size, refused)
        return response

    def _refuse(self, request: web.BaseRequest, status: int, reason: str) -> web.Response:
        self._record.write(request.method, request.path_qs, status, 0, reason)
        return web.json_response({"error": f"package proxy: {reason}"}, status=status)


def _holds_links(content_type: str) -> bool:
    return content_type.startswith("text/") or content_type.endswith("json")


async def serve(launch: ProxyLaunch, stop: asyncio.Event) -> None:
    """Answer on the socket until `stop` is set."""
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=launch.settings.timeout_s, sock_read=launch.settings.timeout_s
    )
    session = aiohttp.ClientSession(
        timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=True, auto_decompress=True
    )
    with launch.record.open("a", encoding="utf-8") as file:
        async with session:
            server = web.Server(PackageProxy(launch, session, PackageRecorder(file)).handle)
            runner = web.ServerRunner(server)
            await runner.setup()
            await web.UnixSite(runner, str(launch.socket)).start()
            report_ready()
            await stop.wait()
            await runner.cleanup()


def main() -> None:
    """Serve until standard input closes."""
    launch = ProxyLaunch.model_validate_json(sys.stdin.buffer.readline())
    ignore_malformed_requests()
    serve_until_closed(partial(serve, launch))


if __name__ == "__main__":
    main()
