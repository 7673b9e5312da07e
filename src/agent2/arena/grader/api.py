"""The grading API: what an agent may ask of the grader over HTTP.

    GET  /health /assignment /time /submissions[?before=id] /submissions/{id} /best     read only
    POST /submit {"model_path", "note"?, "wait"?, "gpu"?}                   the only route that changes anything

Field names of /submit and /time follow the published benchmark; scores are 0 to 100. Status codes of /submit:
200 scored, or accepted but not to be evaluated (then `score` is null and `error` says why); 202 accepted and
not waited for; 400 refused, with what to change; 403 refused for good (deadline, budget); 408, 413 and 422
for bodies that are too slow, too large or not of the right form. Every refusal has `error`, one sentence.
Private scores, items, intervals and paths of the host are in no answer.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from starlette.exceptions import HTTPException as StarletteHTTPException

from agent2.arena.evidence import SubmissionRecord, SubmissionState
from agent2.arena.grader.server import Guard, Pace
from agent2.arena.grader.service import MAX_NOTE, Grader, Receipt
from agent2.errors import SubmissionError, nearest_name
from agent2.records import JsonValue

PACE = Pace()
POLL_S = 0.1
"""How often a waiting request looks for its verdict."""
MAX_COPYING = 4
"""Submissions that are taken in at the same time; others wait, other routes do not."""
MAX_NUMBER = 2**63 - 1
"""Of a submission, as SQLite can hold it."""
MAX_LISTED = 100
"""Submissions in one answer of GET /submissions: the last ones, or the last before a number."""

ROUTES = "POST /submit; GET /health, /assignment, /time, /submissions, /submissions/{id}, /best"


@dataclass(frozen=True, slots=True)
class ApiFacts:
    """What the API tells besides submissions; all of it is visible to the agent."""

    task: str
    workspace: str
    """As the agent sees it."""
    assignment: JsonValue
    """What GET /assignment answers."""
    available_gpus: Sequence[int] = ()


class SubmitBody(BaseModel):
    """The body of POST /submit."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_path: Annotated[StrictStr, Field(min_length=1, max_length=4096)]
    """Folder in the workspace, relative to it or as the agent sees it."""
    note: Annotated[StrictStr, Field(max_length=MAX_NOTE)] = ""
    wait: StrictBool = True
    """Answer when the verdict is there; else at once."""
    gpu: JsonValue = None
    """Taken for agents of the published benchmark; ignored."""


def make_app(grader: Grader, facts: ApiFacts, token: str | None = None, body_s: float = PACE.body_s) -> FastAPI:
    """The API of one trial.

    token: demanded as a bearer token; None where the socket is the identity. body_s: longest that a body may take.
    """
    app = FastAPI(title="agent2 grading API", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_reading_routes(grader, facts))
    app.include_router(_submit_route(grader))
    app.add_exception_handler(RequestValidationError, _explain_bad_body)
    app.add_exception_handler(StarletteHTTPException, _explain_refusal)
    app.add_middleware(Guard, token=token, body_s=body_s)
    return app


def _reading_routes(grader: Grader, facts: ApiFacts) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health")
    def health() -> dict[str, JsonValue]:
        return {
            "status": "healthy",
            "task": facts.task,
            "workspace": facts.workspace,
            "available_gpus": list(facts.available_gpus),
        }

    @routes.get("/assignment")
    def assignment() -> JsonValue:
        return facts.assignment

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
                receipt = await asyncio.to_thread(grader.submit, body.model_path, body.note)
        except SubmissionError as error:
            return JSONResponse({"submission_id": None, "score": None, "error": str(error)}, 403)
        record = await _await_verdict(grader, receipt.number, request if body.wait else None)
        if record is None:
            raise HTTPException(500, "the submission is not in the record; tell the organisers")
        answer = await asyncio.to_thread(_answer, grader, record)
        return JSONResponse(answer, _status_code(receipt, record))

    return routes


async def _await_verdict(grader: Grader, number: int, waiting: Request | None) -> SubmissionRecord | None:
    """The submission once it has a verdict; as it is when nobody waits (any more) or the grader stops."""
    while True:
        n_verdicts = grader.n_verdicts
        record = await asyncio.to_thread(grader.get, number)
        if record is None or record.state is not SubmissionState.ACCEPTED or waiting is None:
            return record
        while grader.n_verdicts == n_verdicts:
            if grader.is_stopped or await waiting.is_disconnected():
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


async def _explain_bad_body(request: Request, error: Exception) -> JSONResponse:
    """One sentence for a request of the wrong form: names the field, and the nearest known one."""
    if not isinstance(error, RequestValidationError):
        raise error
    problem = error.errors()[0]
    name = str(problem["loc"][-1])
    if problem["type"] == "extra_forbidden":
        known = sorted(SubmitBody.model_fields)
        near = nearest_name(name, known)
        hint = f"did you mean {near!r}?" if near is not None else f"known fields: {', '.join(known)}"
        sentence = f"unknown field {name!r}; {hint}"
    elif problem["type"] == "json_invalid" or tuple(problem["loc"]) == ("body",):
        sentence = (
            'the body is not a JSON object; send {"model_path": "output/model"} with the header '
            "'Content-Type: application/json'"
        )
    else:
        sentence = f"field {name!r}: {problem['msg']}"
    return JSONResponse({"error": sentence, "score": None, "submission_id": None}, 422)
