"""The packaged agents as the programs that they are, in a process of their own, with a grader that keeps score."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent2.arena.agents import load_agent
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.arithmetic import Arithmetic
from agent2.benchmarks.home import visible_row
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from model_builders import make_model

pytestmark = pytest.mark.slow


@contextmanager
def grader(refuse=False):
    """A grader that takes everything (or nothing) and remembers what it was given."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append({**body, "weights": inspect_checkpoint(Path(body["model_path"])).weights_digest})
            scored = {"submission_id": len(received), "score": 12.5, "baseline_score": 10.0, "error": None}
            answer = {"submission_id": None, "score": None, "error": "too late"} if refuse else scored
            data = json.dumps(answer).encode()
            self.send_response(403 if refuse else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model that has seen some arithmetic."""
    practised = [(item.prompt, item.reference) for item in Arithmetic().items(Split.TRAIN, 400, None)]
    return make_model(tmp_path_factory.mktemp("base") / "base", practised, steps=100)


def run_agent(name, workspace, url, base, effort="0.1"):
    """With a tenth of the usual reinforcement learning."""
    for split, n in ((Split.TRAIN, 400), (Split.DEV, 40)):
        rows = [json.dumps(visible_row(Arithmetic(), item)) for item in Arithmetic().items(split, n, None)]
        (workspace / f"{split.value}.jsonl").write_text("\n".join(rows) + "\n")
    assignment = {"benchmark": "arithmetic", "scoring": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 12}}
    return start(name, workspace, url, assignment, base, {"AGENT2_EFFORT": effort})


def run_household_agent(name, workspace, url, base):
    """With few games and little training."""
    benchmark = load_benchmark("household")
    for split, n in ((Split.TRAIN, 12), (Split.DEV, 4)):
        rows = [json.dumps(benchmark.visible_row(item)) for item in benchmark.items(split, n, None)]
        (workspace / f"{split.value}.jsonl").write_text("\n".join(rows) + "\n")
    scoring = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 12, "max_turns": 12}
    assignment = {"environment": "household", "benchmark": "household", "scoring": scoring}
    return start(name, workspace, url, assignment, base, {"AGENT2_EFFORT": "0.02"})


def start(name, workspace, url, assignment, base, more=None):
    """Run an agent's program as the arena does, without the sandbox."""
    agent = load_agent(name)
    (workspace / "assignment.json").write_text(json.dumps(assignment))
    environment = {
        "PATH": os.environ["PATH"],
        "WORKSPACE": str(workspace),
        "HOME": str(workspace),
        "TASK": "arithmetic",
        "MODEL_PATH": str(base),
        "DATA_PATH": str(workspace),
        "OUTPUT_DIR": str(workspace / "output"),
        "GRADING_SERVER_URL": url,
        "AGENT2_SEED": "3",
        "HF_HUB_OFFLINE": "1",
        **(more or {}),
    }
    command = [sys.executable, *(part.replace("/agent", str(agent.folder)) for part in agent.spec.command[1:])]
    return subprocess.run(
        command, env=environment, cwd=workspace, capture_output=True, text=True, timeout=1500, check=False
    )


def test_nop_submits_nothing(tmp_path, base):
    with grader() as (url, received):
        done = run_agent("nop", tmp_path, url, base)
    assert (done.returncode, received) == (0, [])


def test_base_copy_submits_the_weights_of_the_base(tmp_path, base):
    with grader() as (url, received):
        done = run_agent("base-copy", tmp_path, url, base)
    assert done.returncode == 0, done.stderr
    assert [submission["weights"] for submission in received] == [inspect_checkpoint(base).weights_digest]


LATER = [
    pytest.param(name, n, marks=pytest.mark.thorough)
    for name, n in (("sft-grpo", 2), ("rloo", 1), ("dpo", 2), ("best-of-n", 2))
]


@pytest.mark.parametrize(
    ("name", "n_submissions"),
    [("sft", 1), ("grpo", 2), pytest.param("static-only", 3, marks=pytest.mark.thorough), *LATER],
)
def test_the_recipes_plan_train_measure_and_submit(tmp_path, base, name, n_submissions):
    with grader() as (url, received):
        done = run_agent(name, tmp_path, url, base)
    assert done.returncode == 0, done.stderr
    digests = {submission["weights"] for submission in received} | {inspect_checkpoint(base).weights_digest}
    assert len(received) == n_submissions
    assert len(digests) == n_submissions + 1
    design = json.loads((tmp_path / "output" / "design.json").read_text())
    assert set(design) == {"algorithm", "hyperparameters", "data_preprocessing", "evaluation_protocol"}
    planned = {
        "sft": "SFT",
        "grpo": "GRPO",
        "sft-grpo": "SFT, then GRPO",
        "static-only": "SFT on static data",
        "rloo": "RLOO",
        "dpo": "DPO",
        "best-of-n": "rejection sampling: SFT on the best of several attempts",
    }
    assert design["algorithm"] == planned[name]
    assert '"seed": 3' in json.dumps(design["hyperparameters"])
    assert min(log.stat().st_size for log in (tmp_path / "output").rglob("train_log.jsonl")) > 0
    assert "of 40 dev items" in done.stdout
    assert "12.5 (base model 10.0)" in done.stdout


def test_self_edit_imitates_accepted_answers_as_they_are_where_no_edit_helps(tmp_path, base):
    with grader() as (url, received):
        done = run_agent("self-edit", tmp_path, url, base, effort="1")
    assert done.returncode == 0, done.stderr
    assert 1 <= len(received) <= 4
    assert received[0]["weights"] != inspect_checkpoint(base).weights_digest
    assert "round 1, " in received[0]["note"]
    assert "edits that helped so far: none" in done.stdout


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("static-only", ["static data only, learning rate 3e-05"] + ["static data only"] * 2),
        pytest.param("sft", ["sft on"], marks=pytest.mark.thorough),
        pytest.param("grpo", ["warm-up on", "online RL, learning", "online RL, settling"], marks=pytest.mark.thorough),
        pytest.param("sft-grpo", ["sft on", "online RL, learning", "online RL, settling"], marks=pytest.mark.thorough),
    ],
)
def test_the_household_recipes_plan_play_measure_and_submit(tmp_path, monkeypatch, name, notes):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    base = ensure_base_model("tiny-household", BASE_MODELS)
    with grader() as (url, received):
        done = run_household_agent(name, tmp_path, url, base)
    assert done.returncode == 0, done.stderr
    assert [submission["note"].startswith(note) for submission, note in zip(received, notes, strict=True)] == [
        True
    ] * len(notes)
    assert (
        len({submission["weights"] for submission in received} | {inspect_checkpoint(base).weights_digest})
        == len(notes) + 1
    )
    design = json.loads((tmp_path / "output" / "design.json").read_text())
    assert set(design) == {"algorithm", "hyperparameters", "data_preprocessing", "evaluation_protocol"}
    assert "of 4 dev items" in done.stdout


def test_a_refused_submission_ends_the_program_with_the_reason(tmp_path, base):
    with grader(refuse=True) as (url, _):
        done = run_agent("base-copy", tmp_path, url, base)
    assert done.returncode == 1
    assert "too late" in done.stderr
