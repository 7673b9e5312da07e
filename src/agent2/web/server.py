"""The server of `agent2 view`: shows the results in a folder, and writes nothing but people's notes and spot checks.

Promises: bound to loopback by default; on other addresses readers need a token; a request under another host name is
refused, so that no web page elsewhere can read results through a browser; every answer forbids scripts except the
app's own. Live updates send only what is new.
"""

import asyncio
import hmac
import html
import json
import logging
import re
import secrets
import socket
from collections.abc import AsyncIterator, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths
from agent2.errors import Agent2Error, ConfigError
from agent2.foreign_files import MAX_LOG_BYTES, open_regular
from agent2.web.catalog import Catalog
from agent2.web.entries import CatalogEntry, EntryKind, EntryState, EntrySummary
from agent2.web.judging import rate
from agent2.web.page import LiveLinks, NoSuchPageError, PageAddress, UnreadableResultError
from agent2.web.preload import Preload
from agent2.web.site import ASSETS, Site, read_asset
from agent2.web.trials import event_words, log_after, submission_words

COOKIE = "agent2-view-token"
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
POLL_S = 1.0
"""Between two polls of the files of a running trial."""
MOST_STREAMS = 64
MAX_NOTE, MAX_RATINGS = 50_000, 4_000_000
"""Bytes of a form."""

AsgiScope = MutableMapping[str, Any]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class ReaderGuard:
    """Decides which requests are answered."""

    host: str
    """The address that the server is bound to."""
    token: str | None
    """None: every request that reaches the server."""

    def refusal(self, scope: AsgiScope) -> tuple[int, str] | None:
        """Status and reason, unless the request may be answered."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        # DNS rebinding: a page elsewhere may have its own name resolve to this machine
        if is_loopback(self.host) and not is_loopback(_name_of(headers.get("host", ""))):
            return 421, "this server answers under its own address only"
        if self.token is None or hmac.compare_digest(_cookie(headers).encode(), self.token.encode()):
            return None
        return 403, "open the address that `agent2 view` printed, with its token"

    def accepts(self, token: str) -> bool:
        """Whether this is the server's token."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def _name_of(host: str) -> str:
    """The host of a Host header, without its port."""
    return host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]


def _cookie(headers: dict[str, str]) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


class GuardedApp:
    """The app behind its guard, with the headers of every answer."""

    def __init__(self, app: Any, guard: ReaderGuard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        refused = self._guard.refusal(scope)
        if refused is not None and refused[0] == 403 and self._guard.accepts(token):
            # from the address into a cookie, so that no link or page contains the token
            cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
            answer = Response(status_code=303, headers={"location": "/", "set-cookie": cookie})
        elif refused is not None:
            answer = HTMLResponse(f"<!doctype html><title>refused</title><p>{html.escape(refused[1])}", refused[0])
        else:
            await self._app(scope, receive, send_with_headers)
            return
        await answer(scope, receive, send_with_headers)


class _Views:
    """What is answered under each address of a site."""

    def __init__(self, site: Site, preload: Preload) -> None:
        self._site = site
        self._preload = preload
        self._links = LiveLinks()
        self._streams = asyncio.Semaphore(MOST_STREAMS)

    def not_found(self, reason: object) -> Response:
        return HTMLResponse(self._site.problem("Not found", str(reason), self._links), 404)

    def page(self, request: Request) -> Response:
        query = _query_of(request)
        route = PageAddress(**{"kind": "home", **request.path_params}, query=query)
        try:
            with self._preload.making_page():
                return HTMLResponse(self._site.html(route, LiveLinks(route)))
        except NoSuchPageError as error:
            return self.not_found(error)
        except UnreadableResultError as error:
            return HTMLResponse(self._site.problem("This cannot be shown", str(error), self._links), 422)

    def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return self.not_found("there is no such file")
        return Response(read_asset(name), media_type=ASSETS[name][1])

    def figure(self, request: Request) -> Response:
        try:
            svg = self._site.figure(PageAddress("figure", request.path_params["id"]))
        except Agent2Error as error:
            return self.not_found(error)
        return Response(svg, media_type="image/svg+xml")

    def picture(self, request: Request) -> Response:
        try:
            png = self._site.picture(PageAddress("picture", **request.path_params, query=_query_of(request)))
        except Agent2Error as error:
            return self.not_found(error)
        return Response(png, media_type="image/png")

    def download(self, request: Request) -> Response:
        query = _query_of(request)
        route = PageAddress(**request.path_params, part=query.pop("part", ""), query=query)
        try:
            text = self._site.standalone(route)
        except Agent2Error as error:
            return self.not_found(error)
        # the address is the reader's input, and a header must not contain its line ends or quotes
        name = re.sub(r"[^\w-]+", "", "-".join(filter(None, (route.kind, route.id, route.part))), flags=re.ASCII)
        return HTMLResponse(text, headers={"content-disposition": f'attachment; filename="{name}.html"'})

    async def add_note(self, request: Request) -> Response:
        route = PageAddress("rollout", **request.path_params, query=dict(request.query_params))

        def add(form: dict[str, str]) -> Response:
            turn = self._site.add_note(route, form)
            return _redirect(self._links.to("rollout", route.id, route.part, **route.query) + f"#{turn or 'notes'}")

        return await _saved(request, self._site, MAX_NOTE, add)

    async def keep_ratings(self, request: Request) -> Response:
        route = PageAddress("spotcheck", **request.path_params)

        def save(form: dict[str, str]) -> Response:
            refused_form = rate(self._site, route, form)
            if refused_form is not None:
                return HTMLResponse(refused_form, 422)
            return _redirect(self._links.to("spotcheck", route.id, "agreement"))

        return await _saved(request, self._site, MAX_RATINGS, save)

    async def live_home(self, request: Request) -> Response:
        return _stream(self._streams, lambda: _list_news(self._site.states, request, only_running=True))

    async def live_list(self, request: Request) -> Response:
        kind = EntryKind(request.url.path.split("/")[2])
        catalog = self._site.catalog
        entry = catalog.get(request.path_params["id"], kind)
        if entry is None:
            return self.not_found(f"there is no such {kind.value}")
        parts = EntryKind.CARD if kind is EntryKind.EVALUATION else EntryKind.TRIAL

        def summaries() -> list[EntrySummary]:
            return [catalog.summary(member) for member in (entry, *catalog.children(entry, parts))]

        return _stream(self._streams, lambda: _list_news(summaries, request))

    async def live_trial(self, request: Request) -> Response:
        entry = self._site.catalog.get(request.path_params["id"], EntryKind.TRIAL)
        if entry is None:
            return self.not_found("there is no such trial")
        after, log = (_byte_offset(request.query_params.get(name, "")) for name in ("after", "log"))
        return _stream(self._streams, lambda: _trial_news(self._site, entry, after, log, request))


def make_view_app(site: Site, guard: ReaderGuard, preload: Preload | None = None) -> GuardedApp:
    """All pages of a site as an ASGI app. preload: what prepares the site meanwhile."""
    views = _Views(site, preload or Preload(site))
    app = Starlette(
        routes=[
            Route("/static/{name}", views.asset),
            Route("/figure/{id}", views.figure),
            Route("/picture/{id}/{part}", views.picture),
            Route("/download/{kind}", views.download),
            Route("/download/{kind}/{id}", views.download),
            Route("/note/{id}/{part}", views.add_note, methods=["POST"]),
            Route("/spotcheck/{id}", views.keep_ratings, methods=["POST"]),
            Route("/live/home", views.live_home),
            Route("/live/trial/{id}", views.live_trial),
            Route("/live/evaluation/{id}", views.live_list),
            Route("/live/sweep/{id}", views.live_list),
            Route("/", views.page),
            Route("/{kind}", views.page),
            Route("/{kind}/{id}", views.page),
            Route("/{kind}/{id}/{part}", views.page),
        ],
        exception_handlers={404: lambda request, error: views.not_found("there is no such page")},
    )
    return GuardedApp(app, guard)


def _query_of(request: Request) -> dict[str, str]:
    """The query of an address; of a name that occurs again the last value, of `run` all of them."""
    query = dict(request.query_params)
    if runs := [run for run in request.query_params.getlist("run") if run]:
        query["run"] = ",".join(runs)
    return query


def _redirect(address: str) -> Response:
    return Response(status_code=303, headers={"location": address})


async def _saved(request: Request, site: Site, max_bytes: int, save: Callable[[dict[str, str]], Response]) -> Response:
    """The answer of `save` to the fields of a form, or the reason why nothing was saved. max_bytes: of the form."""
    body = await _small_body(request, max_bytes)
    links = LiveLinks()
    if body is None or not is_own_form(request.headers.get("sec-fetch-site"), request.headers.get("origin")):
        reason = f"forms are taken from this app's own pages only, up to {max_bytes:,} bytes"
        return HTMLResponse(site.problem("Not saved", reason, links), 403)
    form = {name: values[0] for name, values in parse_qs(body, errors="replace").items()}
    try:
        return await asyncio.to_thread(save, form)
    except NoSuchPageError as error:
        return HTMLResponse(site.problem("Not found", str(error), links), 404)
    except (Agent2Error, OSError) as error:
        written = "\n".join(value for name, value in form.items() if name in ("label", "author", "comment"))
        return HTMLResponse(site.problem("Not saved", str(error), links, written), 422)


async def _small_body(request: Request, max_bytes: int) -> str | None:
    """The body of a form; None if it is too long or not ASCII, as an encoded form is."""
    data = b""
    # in pieces, so that a form that is too long is never in memory as a whole
    async for piece in request.stream():
        data += piece
        if len(data) > max_bytes:
            return None
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        return None


def is_own_form(site: str | None, origin: str | None) -> bool:
    """Whether a form was sent by a page of this server or by a program, not by another web page.

    site: the header `Sec-Fetch-Site`, which browsers send and no page can change. A request with `Origin` alone comes
    from an old browser and is refused.
    """
    return site == "same-origin" if site is not None else origin is None


def _stream(streams: asyncio.Semaphore, news: Callable[[], AsyncIterator[str]]) -> Response:
    """Server-sent events; refused when too many readers have one open."""
    if streams.locked():
        return Response("too many live pages are open; close some", 503)

    async def events() -> AsyncIterator[str]:
        async with streams:
            yield "retry: 3000\n\n"
            async for event in news():
                yield event

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(name: str, **fields: object) -> str:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n"


async def _list_news(
    list_summaries: Callable[[], list[EntrySummary]], request: Request, *, only_running: bool = False
) -> AsyncIterator[str]:
    """Changed messages of the results of a list; ends with `changed` when one appears or changes its state.

    only_running: messages of running results only.
    """

    def look() -> tuple[list[tuple[str, str]], dict[str, str]]:
        summaries = list_summaries()
        messages = {
            summary.entry.id: summary.message
            for summary in summaries
            if not only_running or summary.state is EntryState.RUNNING
        }
        return sorted((summary.entry.id, summary.state.value) for summary in summaries), messages

    states, sent = await asyncio.to_thread(look)
    while not await request.is_disconnected():
        await asyncio.sleep(2 * POLL_S)
        now, messages = await asyncio.to_thread(look)
        if now != states:
            yield _event("changed")
            return
        for key, message in messages.items():
            if sent.get(key) != message:
                sent[key] = message
                yield _event("row", list="", text=message, key=key)


async def _trial_news(site: Site, entry: CatalogEntry, after: int, log: int, request: Request) -> AsyncIterator[str]:
    """New events of a trial's log, new lines of the agent's log, changed submissions; ends with `changed`."""
    paths = TrialPaths(entry.path)
    sent: dict[str, str] = {}
    first = site.catalog.summary(entry)
    message = first.message
    while not await request.is_disconnected():
        rows, after = await asyncio.to_thread(_rows_after, paths.trial_log, after)
        for row in rows:
            yield _event("row", list="event", text=event_words(row), key="")
        for key, submission in (await asyncio.to_thread(_submission_lines, paths)).items():
            if sent.get(key) != submission:
                sent[key] = submission
                yield _event("row", list="submission", text=submission, key=key)
        text, log = await asyncio.to_thread(log_after, paths.agent_log, log)
        if text:
            yield _event("text", list="log", text=text)
        now = await asyncio.to_thread(site.catalog.summary, entry)
        if now.state is not first.state:
            yield _event("changed")
            return
        if now.message != message:
            message = now.message
            yield _event("row", list="", text=message, key=entry.id)
        await asyncio.sleep(POLL_S)


def _byte_offset(text: str) -> int:
    """A byte offset from an address; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _rows_after(path: Path, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a log from a byte offset on, and the offset after them."""
    try:
        with open_regular(path) as log:
            log.seek(offset)
            data = log.read(MAX_LOG_BYTES)
    except OSError:
        return [], offset
    # an incomplete last line is read again when its end is there
    whole = data[: data.rfind(b"\n") + 1]
    rows = []
    for line in whole.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows, offset + len(whole)


def _submission_lines(paths: TrialPaths) -> dict[str, str]:
    try:
        return {str(submission.number): submission_words(submission) for submission in read_submissions_of(paths)}
    except Exception:  # boundary: the grader may be writing; the next poll sees it
        return {}


def view_folder(
    folder: Path, host: str, port: int, *, shows_hidden: bool, ready: Callable[[str], None], token: str | None = None
) -> None:
    """Serve a folder until interrupted. ready: called with the address as soon as the server answers.

    token: needed on a host that others reach and for hidden items; a random one where none is passed.
    Raises ConfigError if there is no such folder, or the address is in use or not this machine's.
    """
    if token is not None and len(token) < 12:
        raise ConfigError(f"--token has {len(token)} characters; give 12 or more, or leave it out to get a random one")
    if token is not None and re.search(r"[^A-Za-z0-9._~-]", token):
        raise ConfigError("--token: only letters, digits and . _ ~ - can be part of an address and a cookie")
    if token is None and (shows_hidden or not is_loopback(host)):
        token = secrets.token_urlsafe(24)
    site = Site(Catalog(folder), shows_hidden=shows_hidden)
    preload = Preload(site)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # bound here and not by uvicorn: errors get a reason, and `--port 0` is known before the server runs
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(256)
        except OverflowError as error:
            raise ConfigError(f"--port {port}: a port is 0 to 65535; 0 takes a free one") from error
        except (UnicodeError, TypeError) as error:  # raised by Python for what cannot be a host name
            raise ConfigError(f"--host {host}: is not the name or address of a host") from error
        except OSError as error:
            raise ConfigError(
                f"--host {host} --port {port}: cannot be used ({error.strerror}); "
                "choose another with --port, or 0 for a free one"
            ) from error
        bound_port = listener.getsockname()[1]
        address = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            make_view_app(site, ReaderGuard(host, token), preload), log_level="warning", access_log=False,
            lifespan="off", timeout_graceful_shutdown=1,
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        preload.load_first()
        preload.start()
        ready(f"http://{address}:{bound_port}/" + (f"?token={token}" if token is not None else ""))
        uvicorn.Server(config).run(sockets=[listener])
