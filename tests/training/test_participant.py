"""What an agent's program knows of its time: the grader's clock counts, not that of the program."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agent2.records import SamplingSettings
from agent2.training.participant import Participant, read_deadline

LONG_S = 100_000.0
"""So long that no machine is slow enough to matter."""


def participant(deadline=None):
    return Participant(
        Path("base"), Path("out"), [], [], SamplingSettings(), 0, "", wall_clock_s=LONG_S, deadline=deadline
    )


@contextmanager
def clock(body):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_time_that_passed_before_the_programs_first_line_counts():
    now = time.monotonic()
    assert 0.7 * LONG_S < participant().seconds_until(0.8, now) <= 0.8 * LONG_S
    late = participant(deadline=now + 0.5 * LONG_S)
    assert 0.2 * LONG_S < late.seconds_until(0.8, now) <= 0.3 * LONG_S
    assert 0.4 * LONG_S < late.seconds_until(1.0, now) <= 0.5 * LONG_S
    assert participant(deadline=now).seconds_until(0.8, now) == 1.0, "one step is always made"
    assert participant(deadline=now + 9 * LONG_S).seconds_until(1.0, now) <= LONG_S, "a budget is a budget"


def test_the_graders_clock_is_read():
    before = time.monotonic()
    with clock(json.dumps({"remaining": LONG_S, "now": 1.0}).encode()) as url:
        deadline = read_deadline(url)
    assert before + LONG_S <= deadline <= time.monotonic() + LONG_S


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"remaining": null}', b'{"remaining": "soon"}', b"\xff"])
def test_a_grader_without_a_clock_leaves_the_programs_own(body):
    with clock(body) as url:
        assert read_deadline(url) is None


def test_a_grader_that_cannot_be_reached_leaves_the_programs_own():
    assert read_deadline("http://127.0.0.1:9") is None
    assert read_deadline("not an address") is None
