"""The grading API, and the server that protects it from its clients.

    GET  /health /assignment /time /submissions[?before=id] /submissions/{id} /best     read only
    POST /submit {"model_path", "note"?, "wait"?, "key"?, "gpu"?}           takes a checkpoint in
    POST /judge {"answers": [{"id", "answer"}, ...]}                        verdicts on answers to visible items

Of /judge (tasks of level 2): 200 with `scores` (0 to 1, in order), `charged` and `judgements_left`; 403 when the budget
or the time is over or the task has no judge, and 400 for an id that is not a visible item's; then nothing is charged.

Field names of /submit and /time follow the published benchmark; scores are 0 to 100. Status codes of /submit: 200
scored, or accepted but not to be evaluated (then `score` is null and `error` says why); 202 accepted and not waited
for; 400 refused, with what to change; 403 refused for good (deadline, budget); 408, 413 and 422 for bodies that are
too slow, too large or not of the right form. Every refusal has `error`, one sentence. Private scores, items,
intervals and paths of the host are in no answer. A request sent again with the same `key` (after a lost connection) is
the same submission: it is charged once, and answered once the verdict is there.

Served from a thread of the harness, on a unix socket or on loopback TCP. Does NOT encrypt; TCP is bound to loopback
only and requires the token of `make_app`.

A request's head has to arrive in time, and a client that does not read its answer is cut off (`BoundedProtocol`). A
body has to arrive in time, be at most `MAX_BODY_BYTES` long and nest at most `MAX_DEPTH` deep, before anything parses
it (`Guard`). A request that states its length in two ways is refused, since two readers may see two requests in it
(RFC 9112, section 6.3). A request that waits for a score may stay for hours. Does NOT bound how many requests a
client makes one after the other.
"""

import asyncio
import functools
import json
import logging
import re
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from agent2.arena.evidence import SubmissionRecord, SubmissionState
from agent2.arena.grader.service import MAX_KEY, MAX_NOTE, MAX_PATH, Grader, Receipt
from agent2.errors import Agent2Error, ConfigError, Fault, SubmissionError, nearest_name
from agent2.records import JsonValue
from agent2.sandbox.network import unix_listener
from agent2.scorers.hidden import MAX_ANSWERS

MAX_CONNECTIONS = 128
"""Open at once; a flood of them must not use up the harness's descriptors."""
MAX_BODY_BYTES = 64 << 10
"""The longest path and note, escaped, fit several times."""
MAX_DEPTH = 8
"""Of brackets and braces; a request needs one."""
MAX_COPYING = 4
"""Submissions that are copied at the same time; further ones wait, other routes do not."""
MAX_NUMBER = 2**63 - 1
"""Of a submission, as SQLite can hold it."""
MAX_LISTED = 100
"""Submissions in one answer of GET /submissions: the last ones, or the last before a number."""
POLL_S = 0.1
"""How often a waiting request looks for its verdict."""
START_S = 120.0
"""Longest that the server may take to start, on a busy machine."""
STOP_S = 5.0
"""For the requests in progress, and again for the thread, when the server stops."""
ROUTES = "POST /submit, /judge; GET /health, /assignment, /time, /submissions, /submissions/{id}, /best"
# the closing quote is optional: a string that the body cuts short hides its brackets as a whole one does
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a client may take for its part of an exchange, in seconds."""

    head_s: float = 10.0
    """From the opening of the connection, or from the last answer, to the end of a request's head."""
    body_s: float = 20.0
    """From the end of the head to the end of the body."""
    read_s: float = 30.0
    """How long an answer may wait for its reader."""


PACE = Pace()
"""Of a server whose caller sets none."""


class BoundedProtocol(H11Protocol):
    """HTTP that hangs up on connections beyond `MAX_CONNECTIONS` and on clients that are too slow."""

    def __init__(self, *arguments: Any, pace: Pace, **named: Any):
        super().__init__(*arguments, **named)
        self._pace = pace
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection and start its first timer."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._head_timer = self.loop.call_later(self._pace.head_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Stop the timer of the head once a request is being answered."""
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn's own timer ends with the first byte of its head."""
        super().on_response_complete()
        self._watch_head()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(self._pace.read_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_read_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both timers."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._pace.head_s, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


class Guard:
    """ASGI middleware; answers 400, 401, 408, 413 or 422 itself and hands everything else on."""

    def __init__(self, app: ASGIApp, token: str | None, body_s: float):
        self._app = app
        self._token = None if token is None else f"Bearer {token}".encode()
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # RFC 9112, section 6.3: a proxy and h11 might take a different one for the end of the request
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            await _refuse(send, 400, "both Content-Length and Transfer-Encoding are set; send one of them")
            return
        if not self._is_authorized(scope):
            await _refuse(send, 401, "a bearer token is needed; send the header 'Authorization: Bearer ...'")
            return
        try:
            async with asyncio.timeout(self._body_s):
                body = await _read_body(receive)
        except TimeoutError:
            await _refuse(send, 408, f"the body did not arrive within {self._body_s:g} seconds; send it in one piece")
            return
        if body is None:
            await _refuse(
                send, 413, f"the body is longer than {MAX_BODY_BYTES} bytes; send model_path and a short note"
            )
            return
        if depth_of(body) > MAX_DEPTH:
            await _refuse(send, 422, f"the body nests deeper than {MAX_DEPTH}; send one flat JSON object")
            return
        await self._app(scope, _replay(body, receive), send)

    def _is_authorized(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        authorization = dict(scope["headers"]).get(b"authorization", b"")
        return secrets.compare_digest(authorization, self._token)


def depth_of(body: bytes) -> int:
    """How deep brackets nest outside of strings, in text that need not be JSON."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, or None as soon as it is too long, whatever length was announced."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":  # the client is gone
            return b"".join(chunks)
        chunk: bytes = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once and then whatever comes."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay


async def _refuse(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error, "score": None, "submission_id": None}).encode()
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ServerError(Agent2Error):
    """The grading API cannot be served."""

    fault = Fault.INFRASTRUCTURE


@dataclass(slots=True)
class GradingServer:
    """A running server."""

    port: int | None
    """Of the TCP socket; None for a unix socket."""
    _server: uvicorn.Server
    _thread: threading.Thread
    _socket: socket.socket
    _path: Path | None

    def stop(self) -> None:
        """Close the socket and end the thread; requests that wait are cut off. May be called twice."""
        self._server.should_exit = True
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(STOP_S)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def serve_on_socket(app: FastAPI, path: Path, pace: Pace = PACE) -> GradingServer:
    """Serve on a unix socket; replaces one that a killed harness left. Raises ServerError if it does not start.

    pace: how slow a client may be; `make_app` bounds its body. Only its owner may connect; a sandbox that runs
    as another user takes the socket over.
    """
    return _start(app, unix_listener(path), pace, path)


def serve_on_loopback(app: FastAPI, port: int = 0) -> GradingServer:
    """Serve on 127.0.0.1; port 0 takes a free one. Raises ServerError if it does not start."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ServerError(f"port {port} of 127.0.0.1 cannot be bound ({error.strerror}); choose another") from error
    return _start(app, listener, PACE, None)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for bytes that are not HTTP, which a client can send without end, and for requests that the end cut off."""
    if record.msg == "Invalid HTTP request received." or str(record.msg).startswith("Cancel %s running task"):
        return False
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _start(app: FastAPI, listener: socket.socket, pace: Pace, path: Path | None) -> GradingServer:
    config = uvicorn.Config(
        app,
        http=functools.partial(BoundedProtocol, pace=pace),  # type: ignore[arg-type]
        ws="none",  # a connection that became a websocket would escape the count and the timers
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        log_config=None,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_worth_logging)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="grading-api", daemon=True)
    thread.start()
    ends_at = time.monotonic() + START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > ends_at:
            server.should_exit = True
            listener.close()
            raise ServerError(f"the grading API did not start within {START_S:g} seconds; see the log")
        time.sleep(0.01)
    port = None if path is not None else int(listener.getsockname()[1])
    return GradingServer(port, server, thread, listener, path)


@dataclass(frozen=True, slots=True)
class ApiInfo:
    """What the API tells about its trial; all of it is visible to the agent."""

    task: str
    workspace: str
    """As the agent sees it."""
    assignment: JsonValue
    """What GET /assignment answers."""
    gpus: tuple[int, ...] = ()
    """The agent's, by the numbers that it uses."""


class SubmitBody(BaseModel):
    """The body of POST /submit."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_path: Annotated[StrictStr, Field(min_length=1, max_length=MAX_PATH)]
    """Folder in the workspace, relative to it or as the agent sees it."""
    note: Annotated[StrictStr, Field(max_length=MAX_NOTE)] = ""
    wait: StrictBool = True
    """Answer when the verdict is there; else at once."""
    key: Annotated[StrictStr, Field(max_length=MAX_KEY)] = ""
    """Idempotency key, chosen by the sender: a new one with each submission, the same one to send it again."""
    gpu: JsonValue = None
    """Taken for agents of the published benchmark; ignored."""


class AnswerBody(BaseModel):
    """One answer of POST /judge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[StrictStr, Field(max_length=MAX_KEY)]
    """Of the row in train.jsonl or dev.jsonl."""
    answer: StrictStr


class JudgeBody(BaseModel):
    """The body of POST /judge."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    answers: Annotated[list[AnswerBody], Field(min_length=1, max_length=MAX_ANSWERS)]


def make_app(grader: Grader, info: ApiInfo, token: str | None = None, body_s: float = PACE.body_s) -> FastAPI:
    """The API of one trial.

    token: demanded as a bearer token; None where the socket is the identity. body_s: longest that a body may take.
    """
    app = FastAPI(title="agent2 grading API", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_reading_routes(grader, info))
    app.include_router(_submit_route(grader))
    app.include_router(_judge_route(grader))
    app.add_exception_handler(RequestValidationError, _explain_bad_body)
    app.add_exception_handler(StarletteHTTPException, _explain_refusal)
    app.add_middleware(Guard, token=token, body_s=body_s)
    return app


def _reading_routes(grader: Grader, info: ApiInfo) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health")
    def health() -> dict[str, JsonValue]:
        # in the published benchmark's API those to choose from for scoring, which here the task decides
        gpus: list[JsonValue] = list(info.gpus)
        return {"status": "healthy", "task": info.task, "workspace": info.workspace, "available_gpus": gpus}

    @routes.get("/assignment")
    def assignment() -> JsonValue:
        return info.assignment

    @routes.get("/time")
    def read_clock() -> dict[str, JsonValue]:
        deadline = grader.deadline
        last = grader.page(MAX_NUMBER, 1)
        return {
            "start_time": deadline.started_at,
            "timeout_s": deadline.wall_clock_s,
            "last_submit_time": last[0].received_at if last else None,
            "end_time": deadline.ends_at,
            "now": deadline.now(),
            "remaining": deadline.remaining(),
        }

    @routes.get("/submissions")
    def submissions(before: int = MAX_NUMBER) -> JSONResponse:
        rows = grader.page(max(0, min(before, MAX_NUMBER)), MAX_LISTED)
        listed = [_describe(grader, row) for row in rows]
        return JSONResponse({"submissions": listed, "total_submissions": grader.count()})

    @routes.get("/submissions/{number}")
    def submission(number: int) -> dict[str, JsonValue]:
        record = grader.get(number) if 1 <= number <= MAX_NUMBER else None
        if record is None:
            raise HTTPException(404, f"there is no submission {number}; GET /submissions lists all")
        return _describe(grader, record)

    @routes.get("/best")
    def best() -> dict[str, JsonValue]:
        return {"best": _best(grader), "baseline_score": _baseline(grader)}

    return routes


def _submit_route(grader: Grader) -> APIRouter:
    routes = APIRouter()
    copying = asyncio.Semaphore(MAX_COPYING)

    @routes.post("/submit")
    async def submit(body: SubmitBody, request: Request) -> JSONResponse:
        try:
            async with copying:
                receipt = await asyncio.to_thread(grader.submit, body.model_path, body.note, body.key)
        except SubmissionError as error:
            return JSONResponse({"submission_id": None, "score": None, "error": str(error)}, 403)
        record = await _await_verdict(grader, receipt.number, request if body.wait else None)
        if record is None:
            raise HTTPException(500, "the submission is not in the record; report this to the organisers")
        answer = await asyncio.to_thread(_answer, grader, record)
        return JSONResponse(answer, _status_code(receipt, record))

    return routes


def _judge_route(grader: Grader) -> APIRouter:
    routes = APIRouter()

    @routes.post("/judge")
    def judge(body: JudgeBody) -> JSONResponse:
        try:
            verdicts = grader.judge([(answer.id, answer.answer) for answer in body.answers])
        except (ConfigError, SubmissionError) as error:
            status = 400 if isinstance(error, ConfigError) else 403
            return JSONResponse({"scores": None, "error": str(error)}, status)
        return JSONResponse(
            {
                "scores": list(verdicts.scores),
                "charged": verdicts.n_charged,
                "judgements_left": verdicts.n_left,
                "error": None,
            }
        )

    return routes


async def _await_verdict(grader: Grader, number: int, request: Request | None) -> SubmissionRecord | None:
    """The submission once it has a verdict; as it is when the client is gone or the grader stops.

    request: the one that waits; None: it does not wait.
    """
    while True:
        n_verdicts = grader.n_verdicts
        record = await asyncio.to_thread(grader.get, number)
        if record is None or record.state is not SubmissionState.ACCEPTED or request is None:
            return record
        while grader.n_verdicts == n_verdicts:  # polls a number in memory, not the grader's file
            if grader.is_stopped or await request.is_disconnected():
                return record
            await asyncio.sleep(POLL_S)


def _status_code(receipt: Receipt, record: SubmissionRecord) -> int:
    if receipt.is_closed:
        return 403
    if record.state is SubmissionState.REJECTED:
        return 400
    return 202 if record.state is SubmissionState.ACCEPTED else 200


def _answer(grader: Grader, record: SubmissionRecord) -> dict[str, JsonValue]:
    """The answer to POST /submit."""
    return _describe(grader, record) | {"best": _best(grader), "total_submissions": grader.count()}


def _describe(grader: Grader, record: SubmissionRecord) -> dict[str, JsonValue]:
    score, baseline = _percent(record), _baseline(grader)
    finished_at = record.finished_at if record.finished_at is not None else grader.deadline.now()
    return {
        "submission_id": record.number,
        "timestamp": datetime.fromtimestamp(record.received_at, UTC).isoformat(),
        "model_path": record.model_path,
        "note": record.note,
        "state": record.state.value,
        "score": score,
        "baseline_score": baseline,
        "improvement": None if score is None or baseline is None else round(score - baseline, 6),
        # whole seconds: how long a model took over the hidden items is a message from it to the agent
        "elapsed_seconds": round(finished_at - record.received_at),
        "is_base_copy": record.is_base_copy,
        "fault": None if record.fault is None else record.fault.value,
        "error": record.reason or None,
        "remarks": grader.remarks(record.number),
    }


def _best(grader: Grader) -> dict[str, JsonValue] | None:
    record = grader.best()
    if record is None:
        return None
    return {"submission_id": record.number, "score": _percent(record), "model_path": record.model_path}


def _percent(record: SubmissionRecord) -> float | None:
    return None if record.score is None else round(100 * record.score.value, 6)


def _baseline(grader: Grader) -> float | None:
    return None if grader.baseline is None else round(100 * grader.baseline.value, 6)


async def _explain_refusal(request: Request, error: Exception) -> JSONResponse:
    """An unknown route, method or submission, and a body that no parser takes, in the form of every refusal."""
    if not isinstance(error, StarletteHTTPException):
        raise error
    sentence = str(error.detail)
    if error.status_code == 405 or sentence == "Not Found":
        sentence = f"{request.method} {request.url.path[:200]} is not a route of the grading API; {ROUTES}"
    return JSONResponse({"error": sentence, "score": None, "submission_id": None}, error.status_code, error.headers)


def _is_judging(request: Request) -> bool:
    return request.url.path == "/judge"


def _fields(request: Request, location: Sequence[object]) -> Sequence[str]:
    """The known fields at the location of an unknown one: ("body", name), or ("body", "answers", number, name)."""
    model = SubmitBody if not _is_judging(request) else JudgeBody if len(location) <= 2 else AnswerBody
    return list(model.model_fields)


async def _explain_bad_body(request: Request, error: Exception) -> JSONResponse:
    """One sentence for a request of the wrong form: names the field, and the nearest known one."""
    if not isinstance(error, RequestValidationError):
        raise error
    problem = error.errors()[0]
    name = str(problem["loc"][-1])
    if problem["type"] == "extra_forbidden":
        fields = sorted(_fields(request, problem["loc"]))
        nearest = nearest_name(name, fields)
        hint = f"did you mean {nearest!r}?" if nearest is not None else f"known fields: {', '.join(fields)}"
        sentence = f"unknown field {name!r}; {hint}"
    elif problem["type"] == "json_invalid" or tuple(problem["loc"]) == ("body",):
        form = '{"answers": [{"id": ..., "answer": ...}]}' if _is_judging(request) else '{"model_path": "output/model"}'
        sentence = f"the body is not a JSON object; send {form} with the header 'Content-Type: application/json'"
    else:
        sentence = f"field {name!r}: {problem['msg']}"
    return JSONResponse({"error": sentence, "score": None, "submission_id": None}, 422)
