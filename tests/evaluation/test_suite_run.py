import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent2.analysis.outcome import read_outcome
from agent2.cards.reader import read_header
from agent2.contract.suite import EvaluationRole
from agent2.errors import ConfigError, Fault, SamplerFailed
from agent2.evaluation.suite_folder import card_path, read_payloads
from agent2.evaluation.suite_run import run_suite, short_fields
from agent2.models.sources import ScriptedSampler
from agent2.records import Completion, StopReason
from agent2.reports.eval_pages import write_eval_report
from suite_fakes import make_request, write_players

REPORT_FILES = ("report.yaml", "report.json", "report.md", "report.html", "change.svg")
THREE_ATTEMPTS = ("n: 1, max_tokens: 16", "n: 3, max_tokens: 16")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.fixture
def request_of(tmp_path):
    write_players(tmp_path)
    return partial(make_request, tmp_path)


def never():
    raise AssertionError("nothing is left to play")


def test_the_lock_names_what_the_session_ran_on(request_of):
    request = request_of()
    run_suite(request)
    lock = json.loads((request.out / "lock.json").read_text())
    assert {side: sampler["kind"] for side, sampler in lock["samplers"].items()} == {
        "baseline": "scripted",
        "checkpoint": "scripted",
    }
    assert lock["suite_digest"] == request.suite.digest
    assert lock["started_at"] <= lock["finished_at"]


def test_a_finished_evaluation_is_not_played_again(request_of):
    request = request_of()
    run_suite(request)
    progress = []
    sides = {name: replace(getattr(request, name), opener=never) for name in ("baseline", "checkpoint")}
    run_suite(replace(request, **sides), lambda message, done=None, total=None: progress.append((message, done, total)))
    assert ("strong (checkpoint) on sums", 60, 60) in progress


def test_another_evaluation_leaves_the_folder_alone(request_of):
    request = request_of()
    run_suite(request)
    before = {path: path.read_bytes() for path in request.out.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="contains another evaluation"):
        run_suite(request_of(new="one_sided"))
    assert {path: path.read_bytes() for path in request.out.rglob("*") if path.is_file()} == before


def test_a_model_that_goes_away_in_the_middle_leaves_what_was_played(request_of):
    request = request_of()
    requests = iter(range(10_000))

    def reply(messages):
        if next(requests) >= 70:
            return Completion("", stop_reason=StopReason.FAULT, fault=Fault.INFRASTRUCTURE, reason="gone")
        first, _, right = messages[-1].content.split()
        return str(int(first) + int(right))

    with pytest.raises(SamplerFailed, match="run the same command again"):
        run_suite(replace(request, checkpoint=replace(request.checkpoint, opener=lambda: ScriptedSampler(reply, 1))))
    assert read_header(card_path(request.out, "checkpoint", "sums", "dev")).checkpoint_name == "strong"
    run_suite(request)
    assert {benchmark.summaries["checkpoint"].n_missing for benchmark in read_outcome(request.out).benchmarks} == {0}


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from suite_fakes import find_benchmark
from agent2.contract.suite_files import load_suite
from agent2.models.sources import find_checkpoint

def progress(message, done=None, total=None):
    if message == {message!r} and done == {done}:
        os.kill(os.getpid(), signal.SIGKILL)

sides = [find_checkpoint("scripted:{players}:" + name) for name in ("weak", "strong")]
run_suite(SuiteRequest(load_suite({suite!r}), *sides, Path({out!r}), find_benchmark=find_benchmark), progress)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "done", "changes"),
    [
        ("strong (checkpoint) on sums", 25, []),
        ("weak (baseline) on doubles", 59, []),
        ("strong (checkpoint) on doubles", 100, [THREE_ATTEMPTS]),
    ],
)
def test_killed_with_9_and_resumed_the_report_is_byte_identical(request_of, tmp_path, message, done, changes):
    whole, cut = request_of(*changes, out="whole"), request_of(*changes, out="cut")
    fields = {"tests": str(Path(__file__).parents[1]), "players": str(tmp_path / "players.py"), "message": message}
    suite = str(tmp_path / "quiz_regression.yaml")
    program = KILLED.format(**fields, done=done, suite=suite, out=str(cut.out))
    killed = subprocess.run([sys.executable, "-c", program], env={**os.environ}, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    with pytest.raises(ConfigError, match="not finished"):
        read_outcome(cut.out)
    for request in (whole, cut):
        run_suite(request)
        write_eval_report(read_outcome(request.out), request.out)
    for name in REPORT_FILES:
        assert (whole.out / name).read_bytes() == (cut.out / name).read_bytes(), name


def test_short_fields_of_a_payload_are_numbers_truth_values_and_short_lines():
    payload = {"subject": "algebra", "level": 3, "is_hard": True, "options": ["a", "b"], "text": "a\nb", "no": None}
    assert short_fields(payload) == {"subject": "algebra", "level": "3", "is_hard": "true"}
    assert short_fields({"long": "a" * 121, "short": "a" * 120}) == {"short": "a" * 120}
    assert len(short_fields({f"field-{number}": number for number in range(99)})) == 16


@pytest.mark.parametrize(("role", "is_kept"), [(EvaluationRole.DEV, True), (EvaluationRole.NIGHTLY, False)])
def test_payloads_of_visible_items_alone_are_kept(request_of, monkeypatch, role, is_kept):
    monkeypatch.setattr("agent2.evaluation.suite_run.short_fields", lambda payload: {"subject": "sums"})
    request = request_of(role=role)
    run_suite(request)
    payloads = read_payloads(request.out)
    assert bool(payloads) is is_kept
    assert all(fields == {"subject": "sums"} for items in payloads.values() for fields in items.values())
