"""The API is asked over a real unix socket, served by uvicorn from a thread."""

import contextlib
import itertools
import json
import re
import socket
import struct
import threading
import time
from pathlib import Path

import httpx
import pytest

from agent2.arena.grader.server import (
    MAX_CONNECTIONS,
    PACE,
    ApiInfo,
    Pace,
    make_app,
    serve_on_loopback,
    serve_on_socket,
)
from agent2.arena.spec import Deadline
from agent2.errors import Fault, SubmissionError
from agent2.records import SamplingSettings
from agent2.stats.estimates import Estimate
from agent2.training.participant import Participant, post_with_retries
from grading_builders import ScriptedEvaluation, broken, scored, write_checkpoint

pytestmark = pytest.mark.slow  # each test starts a server

INFO = ApiInfo("arithmetic", "/workspace", {"task": "arithmetic", "seed": 0}, gpus=(0, 1))
BASELINE = Estimate(0.3, 0.2, 0.4, 8, 0)


@pytest.fixture
def serve(make_grader, trial, tmp_path, monkeypatch):
    """A client of a served grader; the socket's path is relative, for the client's sake."""
    closing = []
    monkeypatch.chdir(tmp_path)

    def make(evaluate=None, pace=PACE, **changes):
        write_checkpoint(trial.workspace / "output" / "model", seed=1)
        grader = make_grader(evaluate, **changes)
        grader.baseline = BASELINE
        grader.start()
        server = serve_on_socket(make_app(grader, INFO), trial.grader_socket, pace)
        client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(trial.grader_socket.relative_to(tmp_path))),
            base_url="http://grader",
            timeout=120,
        )
        closing.extend([client.close, server.stop])
        client.grader = grader
        client.stop_server = server.stop
        return client

    yield make
    for close in closing:
        close()


def test_submit_answers_with_the_fields_of_the_published_benchmark(serve):
    client = serve(ScriptedEvaluation([scored(0.5), scored(0.75)]))
    client.post("/submit", json={"model_path": "output/model"})
    response = client.post("/submit", json={"model_path": "/workspace/output/model", "gpu": 0, "note": "second"})
    answer = response.json()
    assert response.status_code == 200
    assert answer["submission_id"] == 2 and answer["total_submissions"] == 2
    assert (answer["score"], answer["baseline_score"], answer["improvement"]) == (75.0, 30.0, 45.0)
    assert answer["best"] == {"submission_id": 2, "score": 75.0, "model_path": "/workspace/output/model"}
    assert answer["error"] is None and answer["model_path"] == "/workspace/output/model"
    assert answer["timestamp"] == "1970-01-01T00:18:20+00:00"
    assert answer["elapsed_seconds"] >= 0


def test_a_refused_submission_is_a_400_with_the_same_fields_and_no_score(serve):
    response = serve().post("/submit", json={"model_path": "../../etc"})
    answer = response.json()
    assert response.status_code == 400
    assert answer["score"] is None and answer["improvement"] is None and answer["best"] is None
    assert "contains '..'" in answer["error"] and answer["state"] == "rejected" and answer["submission_id"] == 1


def test_a_failed_evaluation_has_an_error_and_no_score(serve):
    client = serve(ScriptedEvaluation([broken(Fault.SUBMITTER, "tensor 'x' holds NaN")]))
    response = client.post("/submit", json={"model_path": "output/model"})
    answer = response.json()
    assert response.status_code == 200
    assert answer["score"] is None and answer["error"] == "tensor 'x' holds NaN" and answer["fault"] == "submitter"


def test_after_the_deadline_submit_is_a_403(serve):
    client = serve(deadline=Deadline(0.0, 1.0, lambda: 2.0))
    response = client.post("/submit", json={"model_path": "output/model"})
    assert response.status_code == 403
    assert "the deadline is over" in response.json()["error"]


def test_without_waiting_the_answer_comes_at_once_and_can_be_polled(serve):
    evaluate = ScriptedEvaluation([scored(0.5)])
    evaluate.may_go_on.clear()
    client = serve(evaluate)
    response = client.post("/submit", json={"model_path": "output/model", "wait": False})
    assert response.status_code == 202
    assert response.json()["state"] == "accepted" and response.json()["score"] is None
    assert client.get("/submissions/1").json()["state"] == "accepted"
    evaluate.may_go_on.set()
    client.grader.wait(1, 120)
    assert client.get("/submissions/1").json()["score"] == 50.0
    assert client.get("/submissions").json()["total_submissions"] == 1
    assert client.get("/best").json() == {
        "best": {"submission_id": 1, "score": 50.0, "model_path": "output/model"},
        "baseline_score": 30.0,
    }


def test_a_request_that_the_end_cuts_off_leaves_no_traceback_in_the_log(serve, caplog):
    evaluate = ScriptedEvaluation()
    evaluate.may_go_on.clear()
    client = serve(evaluate)

    def submit():
        with contextlib.suppress(httpx.HTTPError):
            client.post("/submit", json={"model_path": "output/model"})

    waiting = threading.Thread(target=submit)
    waiting.start()
    while not client.get("/submissions").json()["total_submissions"]:
        time.sleep(0.01)
    client.stop_server()
    evaluate.may_go_on.set()
    waiting.join(120)
    assert not waiting.is_alive() and not [record for record in caplog.records if record.name == "uvicorn.error"]


def test_other_routes_answer_while_submissions_wait(serve):
    evaluate = ScriptedEvaluation()
    evaluate.may_go_on.clear()
    client = serve(evaluate)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.post("/submit", json={"model_path": "output/model"})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert client.get("/health").status_code == 200
    assert not answers
    evaluate.may_go_on.set()
    for thread in threads:
        thread.join(120)
    assert sorted(answer.json()["submission_id"] for answer in answers) == list(range(1, 9))
    assert {answer.json()["score"] for answer in answers} == {50.0}


def test_health_assignment_and_time_tell_the_facts(serve):
    client = serve()
    assert client.get("/health").json() == {
        "status": "healthy", "task": "arithmetic", "workspace": "/workspace", "available_gpus": [0, 1]
    }  # fmt: skip
    assert client.get("/assignment").json() == INFO.assignment
    expected = {
        "start_time": 1000.0, "timeout_s": 600.0, "end_time": 1600.0, "now": 1100.0, "remaining": 500.0
    }  # fmt: skip
    assert client.get("/time").json() == expected | {"last_submit_time": None}
    client.post("/submit", json={"model_path": "nothing"})
    assert client.get("/time").json()["last_submit_time"] == 1100.0


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"modelpath": "m", "model_path": "m"}, "unknown field 'modelpath'; did you mean 'model_path'?"),
        ({"model_path": "m", "score": 100}, "unknown field 'score'"),
        ({"model_path": 7}, "field 'model_path': Input should be a valid string"),
        ({"model_path": "m", "wait": "yes"}, "field 'wait': Input should be a valid boolean"),
        ({}, "field 'model_path': Field required"),
        (["m"], "the body is not a JSON object"),
    ],
)
def test_a_body_of_the_wrong_form_is_a_422_that_names_the_field(serve, body, sentence):
    client = serve()
    response = client.post("/submit", json=body)
    assert response.status_code == 422
    assert sentence in response.json()["error"]
    assert client.grader.all() == []


def test_text_that_is_no_json_and_bodies_too_large_are_refused(serve):
    client = serve()
    for content_type in ("application/json", "application/x-www-form-urlencoded"):
        response = client.post("/submit", content=b"{", headers={"Content-Type": content_type})
        assert response.status_code == 422
        assert "with the header 'Content-Type: application/json'" in response.json()["error"]
    response = client.post("/submit", content=json.dumps({"model_path": "m", "note": "n" * 70_000}))
    assert response.status_code == 413
    chunked = client.post("/submit", content=(b"x" * 10_000 for _ in range(10)))
    assert chunked.status_code == 413
    assert client.grader.all() == []


def test_a_lone_surrogate_in_a_path_is_no_server_error(serve):
    response = serve().post("/submit", content=b'{"model_path": "output/\\ud800"}')
    assert response.status_code in (400, 422)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_no_route_but_submit_changes_anything(serve, method):
    client = serve()
    for route in ("/health", "/assignment", "/time", "/submissions", "/submissions/1", "/best", "/set_baseline"):
        response = client.request(method, route, json={"score": 100})
        assert response.status_code in (404, 405), route
    assert client.grader.all() == [] and client.grader.baseline == BASELINE


def test_an_unknown_submission_is_a_404(serve):
    client = serve()
    for number in ("1", "0", "-1", str(2**80)):
        assert client.get(f"/submissions/{number}").status_code == 404
    assert client.get("/submissions/x").status_code == 422


def test_answers_hold_no_items_and_no_paths_of_the_host(serve, trial, base, hidden_items):
    client = serve(ScriptedEvaluation([scored(0.5), broken(Fault.MODEL, f"{trial.snapshot(2)} is odd")]))
    texts = [client.post("/submit", json={"model_path": "output/model"}).text for _ in range(2)]
    texts += [client.get(route).text for route in ("/health", "/assignment", "/time", "/submissions", "/best")]
    for text in texts:
        assert str(trial.root) not in text and str(base) not in text
        assert not any(item.prompt in text or item.id in text for items in hidden_items.values() for item in items)


def test_a_socket_with_a_long_path_is_served(serve, make_grader, tmp_path, monkeypatch):
    folder = tmp_path / ("d" * 120)
    grader = make_grader()
    server = serve_on_socket(make_app(grader, INFO), folder / "grader.sock")
    try:
        monkeypatch.chdir(folder)
        client = httpx.Client(transport=httpx.HTTPTransport(uds="grader.sock"), base_url="http://grader", timeout=120)
        assert client.get("/health").status_code == 200
    finally:
        server.stop()
    assert not (folder / "grader.sock").exists()


def resetting_port(target, n_resets):
    """A loopback port that passes requests on, and resets the first connections once the grader has the request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one(client, is_reset):
        with client, socket.create_connection(("127.0.0.1", target)) as upstream:
            head, _, body = client.recv(65536).partition(b"\r\n\r\n")
            length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
            while len(body) < length:
                body += client.recv(65536)
            upstream.sendall(head + b"\r\n\r\n" + body)
            if is_reset:
                time.sleep(0.3)  # the attempt is being taken in
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            while data := upstream.recv(65536):
                client.sendall(data)

    def run():
        for number in itertools.count():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve_one, args=(client, number < n_resets), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    return listener


def test_a_reference_agents_submission_survives_reset_connections_and_is_charged_once(make_grader, trial, tmp_path):
    write_checkpoint(trial.workspace / "output" / "model", seed=1)
    grader = make_grader(ScriptedEvaluation([scored(0.5)]), max_submissions=1)
    grader.baseline = BASELINE
    grader.start()
    server = serve_on_loopback(make_app(grader, INFO))
    try:
        with resetting_port(server.port, n_resets=2) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            me = Participant(tmp_path, tmp_path, [], [], SamplingSettings(), 0, url)
            answer = me.submit(Path("output/model"), "a note")
        assert (answer["submission_id"], answer["score"], grader.count()) == (1, 50.0, 1)
        with pytest.raises(SubmissionError, match=r"submission of output/model has no score: the budget of 1"):
            Participant(tmp_path, tmp_path, [], [], SamplingSettings(), 0, f"http://127.0.0.1:{server.port}").submit(
                Path("output/model"), "another submission"
            )
    finally:
        server.stop()


def test_a_grader_that_is_gone_is_an_error_that_names_it():
    with socket.socket() as silent:  # held, so that nobody else can listen there
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        message = rf"127\.0\.0\.1:{port}/submit: the grader cannot be reached: .*refused"
        with pytest.raises(SubmissionError, match=message):
            post_with_retries(f"http://127.0.0.1:{port}/submit", {"key": "k"}, pauses_s=(0.01, 0.01))


def test_a_socket_left_by_a_killed_harness_is_replaced(serve, trial, tmp_path, monkeypatch):
    trial.grader_socket.parent.mkdir()
    monkeypatch.chdir(trial.grader_socket.parent)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind("grader.sock")
    monkeypatch.chdir(tmp_path)
    assert serve().get("/health").status_code == 200


def test_over_tcp_a_bearer_token_is_demanded(make_grader):
    server = serve_on_loopback(make_app(make_grader(), INFO, token="secret-token"))
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client:
            assert client.get("/health").status_code == 401
            wrong = client.get("/health", headers={"Authorization": "Bearer secret-tokem"})
            assert wrong.status_code == 401 and "bearer token" in wrong.json()["error"]
            right = client.get("/health", headers={"Authorization": "Bearer secret-token"})
            assert right.status_code == 200
    finally:
        server.stop()


def test_a_flood_of_connections_is_cut_off_and_the_api_answers_afterwards(serve, trial, tmp_path):
    client = serve(pace=Pace(head_s=600))
    held = []
    for _ in range(MAX_CONNECTIONS + 100):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(trial.grader_socket.relative_to(tmp_path)))
        connection.setblocking(False)
        held.append(connection)

    def is_cut(connection: socket.socket) -> bool:
        try:
            return connection.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    ends_at = time.monotonic() + 120
    while (n_cut := sum(is_cut(connection) for connection in held)) < 100 and time.monotonic() < ends_at:
        time.sleep(0.1)
    time.sleep(0.5)
    assert n_cut == sum(is_cut(connection) for connection in held) == 100
    for connection in held:
        connection.close()
    while True:
        try:
            assert client.get("/health").status_code == 200
            break
        except httpx.TransportError:  # the server has not seen yet that they are gone
            assert time.monotonic() < ends_at + 60
            time.sleep(0.1)


def test_only_the_owner_may_use_the_socket(serve, trial):
    serve()
    assert trial.grader_socket.stat().st_mode & 0o777 == 0o600
