"""Every route with every method, any body, and clients that are slow: what the API must bear without doing harm."""

import asyncio
import json
import socket
import sqlite3
import string
import threading
import time
from contextlib import suppress
from http.client import HTTPResponse
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent2.arena.grader import server as api
from agent2.arena.grader.server import MAX_BODY_BYTES, MAX_DEPTH, ApiInfo, Pace, depth_of, make_app, serve_on_socket
from agent2.arena.grader.service import MAX_NOTE
from agent2.stats.estimates import Estimate
from grading_builders import ScriptedEvaluation, write_checkpoint

INFO = ApiInfo("arithmetic", "/workspace", {"task": "arithmetic"})
BASELINE = Estimate(0.3, 0.2, 0.4, 8, 0)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "SUBMIT")
READING = ("/health", "/assignment", "/time", "/submissions", "/submissions/1", "/best")
UNKNOWN = (
    "/", "/submissions/0", "/submissions/2", "/submissions/-1", "/submissions/1/score", "/submissions/%2e%2e", "/score",
    "/set_baseline", "/baseline", "/reset", "/stop", "/judge", "/docs", "/redoc", "/openapi.json", "/metrics",
    "/submit/", "/submit/1", "/SUBMIT", "/health/%2e%2e/submit", "/best?score=100", "/%00", "/grader.db",
)  # fmt: skip
BODIES = (b"", b'{"model_path": "output/model"}', b'{"score": 100, "state": "scored"}', b"\xff\x00")
JSON_TYPE = {"Content-Type": "application/json"}


@pytest.fixture
def grader(make_grader, trial):
    write_checkpoint(trial.workspace / "output" / "model", seed=1)
    loaded_grader = make_grader()
    loaded_grader.baseline = BASELINE
    loaded_grader.submit("output/model", "the first")
    return loaded_grader


@pytest.fixture
def client(grader):
    return TestClient(make_app(grader, INFO), raise_server_exceptions=False, follow_redirects=False)


def dump(trial) -> list[str]:
    with sqlite3.connect(trial.grader_db) as database:
        return list(database.iterdump())


def test_no_route_with_any_method_changes_anything_and_the_same_look_sees_a_submit(client, grader, trial):
    before = dump(trial)
    n_asked = 0
    for route in (*READING, *UNKNOWN, "/submit"):
        for method in METHODS:
            if (route, method) == ("/submit", "POST"):
                continue
            for body in BODIES:
                answer = client.request(method, route, content=body, headers=JSON_TYPE)
                n_asked += 1
                allowed = {200} if method == "GET" and route in (*READING, "/best?score=100") else {307, 400, 404, 405}
                assert answer.status_code in allowed | {422}, (method, route, body, answer.text)
                assert dump(trial) == before, (method, route, body)
                assert grader.baseline == BASELINE and not grader.is_stopped
    assert n_asked == (len(READING) + len(UNKNOWN) + 1) * len(METHODS) * len(BODIES) - len(BODIES)
    control = client.post("/submit", json={"model_path": "output/model", "wait": False})
    assert control.status_code == 202 and dump(trial) != before


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=20,
    )
    | st.fixed_dictionaries(
        {"model_path": st.text(max_size=50) | st.just("output/model"), "wait": st.just(False)},
        optional={"note": st.text(max_size=30), "gpu": st.integers() | st.lists(st.integers(), max_size=3)},
    )
)
def test_any_body_ends_in_a_refusal_or_in_one_record(client, grader, body):
    n_before = grader.count()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post("/submit", content=content, headers=JSON_TYPE)
    assert answer.status_code in (202, 400, 422), answer.text
    recorded = answer.json().get("submission_id") is not None
    assert grader.count() - n_before == int(recorded)
    assert answer.json()["score"] is None


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(string.printable, max_size=60), query=st.text(string.printable, max_size=40))
def test_any_path_is_answered_without_a_server_error(client, path, query):
    answer = client.get(f"http://testserver/{quote(path, safe='/%:.')}?before={quote(query, safe='&=+%')}")
    assert answer.status_code in (200, 307, 400, 404, 405, 422), answer.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"note": "n" * MAX_NOTE}, 202),
        ({"note": "n" * (MAX_NOTE + 1)}, 422),
        ({"model_path": "p" * 4096}, 400),  # taken as a path, and then there is no such folder
        ({"model_path": "p" * 4097}, 422),
        ({"model_path": ""}, 422),
        ({"gpu": [0, {"a": 1}]}, 202),
        ({"gpu": 10**4000}, 202),
        ({"gpu": None, "wait": None}, 422),
        ({"note": 5}, 422),
        ({"note": "\x00\x1b[2J<script>"}, 202),
    ],
    ids=["note", "note+1", "path", "path+1", "no path", "gpu", "number", "wait", "note type", "control"],
)
def test_each_field_has_its_limit(client, fields, status):
    answer = client.post("/submit", json={"model_path": "output/model", "wait": False} | fields)
    assert answer.status_code == status, answer.text
    assert (answer.json()["error"] is None) == (status == 202)


def nested(depth: int) -> bytes:
    return b'{"model_path": "output/model", "wait": false, "gpu": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_a_body_that_nests_200_deep_is_refused_before_it_is_parsed(client, grader):
    assert client.post("/submit", content=nested(MAX_DEPTH), headers=JSON_TYPE).status_code == 202
    for depth in (MAX_DEPTH + 1, 200, 20_000):
        answer = client.post("/submit", content=nested(depth), headers=JSON_TYPE)
        assert answer.status_code == 422 and f"nests deeper than {MAX_DEPTH}" in answer.json()["error"]
    assert grader.count() == 2


def test_without_the_guard_the_same_deep_body_is_parsed(grader):
    bare = FastAPI()
    bare.include_router(api._submit_route(grader))
    answer = TestClient(bare).post("/submit", content=nested(200), headers=JSON_TYPE)
    assert answer.status_code == 202, "the control: it is the guard that refuses"


def test_brackets_in_texts_do_not_count_as_depth():
    assert depth_of(b'{"note": "' + b"[" * 50 + b'", "gpu": [1, 2]}') == 2
    assert depth_of(rb'{"note": "a \" [[[["}') == 1
    assert depth_of(b'{"note": "never closed [[[[') == 1
    assert depth_of(b"]" * 9 + b"[") <= 1


def test_a_body_of_1_gb_is_refused_after_its_first_piece(grader):
    sent = 0

    def stream():
        nonlocal sent
        for _ in range(1024):
            sent += 1 << 20
            yield b"x" * (1 << 20)

    async def receive_in_pieces():
        return {"type": "http.request", "body": next(pieces), "more_body": True}

    pieces = stream()
    statuses = []

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": "/submit", "headers": [], "query_string": b"", "raw_path": b""}
    asyncio.run(make_app(grader, INFO)(scope, receive_in_pieces, send))
    assert statuses == [413]
    assert sent <= MAX_BODY_BYTES + (1 << 20)


def test_the_list_of_submissions_is_told_in_pages(make_grader):
    grader = make_grader()
    n_all = api.MAX_LISTED + 7
    for _ in range(n_all):
        grader.submit("nothing")
    client = TestClient(make_app(grader, INFO))
    last = client.get("/submissions").json()
    assert [row["submission_id"] for row in last["submissions"]] == list(range(8, n_all + 1))
    assert last["total_submissions"] == n_all
    first = client.get("/submissions", params={"before": 8}).json()
    assert [row["submission_id"] for row in first["submissions"]] == list(range(1, 8))
    for odd in (-1, 0, 10**30):
        assert client.get("/submissions", params={"before": odd}).status_code == 200


def test_refusals_by_the_framework_have_the_form_of_every_refusal(client):
    for method, route in (("GET", "/submit"), ("POST", "/best"), ("GET", "/nothing")):
        answer = client.request(method, route).json()
        assert answer == {
            "error": f"{method} {route} is not a route of the grading API; {api.ROUTES}",
            "score": None,
            "submission_id": None,
        }


PACE = Pace(head_s=2.0, body_s=2.0, read_s=2.0)


@pytest.fixture
def connect(make_grader, trial, tmp_path, monkeypatch):
    """Raw connections to a served grader that allows two seconds for everything."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(trial.workspace / "output" / "model", seed=1)
    evaluate = ScriptedEvaluation()
    grader = make_grader(evaluate)
    grader.start()
    server = serve_on_socket(make_app(grader, INFO, body_s=PACE.body_s), trial.grader_socket, PACE)
    opened = []

    def make() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(200)
        connection.connect(str(trial.grader_socket.relative_to(tmp_path)))
        opened.append(connection)
        return connection

    make.evaluate, make.grader, make.server = evaluate, grader, server
    yield make
    evaluate.may_go_on.set()
    for connection in opened:
        connection.close()
    server.stop()


def read_answer(connection: socket.socket) -> tuple[int, dict]:
    answer = HTTPResponse(connection)
    answer.begin()
    return answer.status, json.loads(answer.read())


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


GET = b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n"
HEAD = b"POST /submit HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def drip(connection: socket.socket, data: bytes, every_s: float) -> float:
    """Send a byte at a time until the other side hangs up; seconds until then."""
    began = time.monotonic()
    for byte in data:
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            break
        time.sleep(every_s)
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "after an answer"])
def test_a_client_that_drips_its_head_is_cut_off(connect, before):
    connection = connect()
    connection.sendall(before)
    if before:
        assert read_answer(connection)[0] == 200
    assert drip(connection, b"GET /health HTTP/1.1\r\nX: " + b"x" * 4000, 0.05) < 100
    assert read_all(connection) == b""


@pytest.mark.slow
def test_a_client_that_says_nothing_is_cut_off(connect):
    began = time.monotonic()
    assert read_all(connect()) == b""
    assert time.monotonic() - began < 100


@pytest.mark.slow
def test_a_client_that_drips_its_body_is_told_and_cut_off(connect):
    connection = connect()
    connection.sendall(HEAD % 4000)
    drip(connection, b"x" * 4000, 0.05)
    assert b"408" in read_all(connection).splitlines()[0]
    assert connect.grader.count() == 0


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answers_is_cut_off(connect):
    connection = connect()
    for _ in range(30):
        connect.grader.submit("nothing", "n" * 2_000)
    request = b"GET /submissions HTTP/1.1\r\nHost: g\r\n\r\n"
    began = time.monotonic()
    with pytest.raises(OSError):
        while time.monotonic() - began < 200:
            connection.sendall(request * 20)
    assert time.monotonic() - began < 150


@pytest.mark.slow
def test_who_waits_for_a_score_is_not_slow_and_who_leaves_is_forgotten(connect):
    connect.evaluate.may_go_on.clear()
    body = b'{"model_path": "output/model"}'
    patient, leaving = connect(), connect()
    for connection in (patient, leaving):
        connection.sendall(HEAD % len(body) + body)
    leaving.close()
    time.sleep(3 * PACE.head_s)
    ends_at = time.monotonic() + 120
    while len(connect.server._server.server_state.tasks) != 1:
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    threading.Timer(0.1, connect.evaluate.may_go_on.set).start()
    status, answer = read_answer(patient)
    assert status == 200 and answer["score"] == 50.0


@pytest.mark.slow
def test_slow_clients_leave_room_for_others(connect):
    held = [connect() for _ in range(120)]
    for connection in held:
        with suppress(ConnectionError):  # the first may be cut off before the last has begun
            connection.sendall(b"GET /hea")
    ends_at = time.monotonic() + 120
    while True:
        late_connection = connect()
        try:
            late_connection.sendall(GET)
            answer = late_connection.recv(65536)
        except ConnectionError:
            answer = b""
        if answer:
            break
        assert time.monotonic() < ends_at
    assert answer.startswith(b"HTTP/1.1 200")
    assert all(read_all(connection) == b"" for connection in held)


def test_a_request_that_states_its_length_in_two_ways_is_refused_and_the_connection_closed(
    grader, trial, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the path of a unix socket may be too long for the kernel
    server = serve_on_socket(make_app(grader, INFO), trial.grader_socket)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(trial.grader_socket.relative_to(tmp_path)))
            head = b"POST /submit HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            client.sendall(head + b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            answered = b""
            while part := client.recv(4096):
                answered += part
    finally:
        server.stop()
    assert answered.count(b"HTTP/1.1 ") == 1
    assert b"400 Bad Request" in answered and b"send one of them" in answered
