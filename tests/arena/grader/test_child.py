"""The evaluating child, with a real model, real items and real cards; the harness is really killed.

What the child does with a job is tested in this process, to load torch once; how it lives and dies in its own.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file, save_file

from agent2.arena.evidence import SubmissionState
from agent2.arena.grader import child
from agent2.arena.grader.evaluator import (
    INSIDE_DRAFT,
    ChildEvaluator,
    EvaluatorProgram,
    draft_of,
    evaluation_environment,
    log_of,
    take_up,
)
from agent2.arena.grader.job import EvaluationJob, EvaluationStopped
from agent2.arena.spec import ScoringMachine
from agent2.benchmarks import load_benchmark
from agent2.cards.reader import iter_rollouts, read_header, validate_card
from agent2.errors import Fault, SandboxError
from agent2.executors.gpu_shares import scoring_on
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from agent2.sandbox.backends import ContainedEnd, EndedBy, Unsandboxed, find_sandbox
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.spec import Mount
from chaos import scripted_child
from grading_builders import SECRET, write_checkpoint
from process_looks import outlived

pytestmark = pytest.mark.slow  # loads torch, and starts processes that do


@pytest.fixture
def make_job(tmp_path, base, hidden_items):
    def make(checkpoint: Path, **changes) -> EvaluationJob:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        fields = {
            "checkpoint": checkpoint,
            "base": base,
            "name": "submission-1",
            "benchmark": "arithmetic",
            "split": Split.TEST_PUBLIC,
            "items": hidden_items[Split.TEST_PUBLIC],
            "card": tmp_path / "submission" / "card",
            "scratch": scratch,
            "seed": 0,
        }
        return EvaluationJob(**{**fields, **changes})

    return make


@pytest.fixture
def no_child_stays():
    """Fails a test that leaves a process behind; other tests of this process may have helpers of their own."""
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before


def run_in_child(job: EvaluationJob, timeout_s: float = 600.0):
    return ChildEvaluator(timeout_s)(job, threading.Event())


def test_a_checkpoint_is_scored_with_the_tokenizer_and_template_of_the_base(make_job, base, tmp_path):
    model = write_checkpoint(tmp_path / "model", seed=3)
    (model / "chat_template.jinja").write_text("{{ raise_exception('the submitted template was used') }}")
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": list(range(32))}))
    job = make_job(model)
    outcome = child.run(job)
    assert outcome.fault is None, outcome.reason
    assert outcome.score is not None and (outcome.score.n, outcome.score.n_missing) == (8, 0)
    assert outcome.weights_digest == inspect_checkpoint(model).weights_digest
    assert validate_card(job.card) == []
    rollouts = list(iter_rollouts(job.card))
    assert {r.rollout.item_id for r in rollouts} == {item.id for item in job.items}
    assert max(len(r.rollout.turns[0].action) for r in rollouts) > 1, "the submitted end tokens were not used"
    assert read_header(job.card).protocol.chat_template_digest == inspect_checkpoint(base).chat_template_digest
    again = child.run(make_job(model, scratch=_fresh(tmp_path / "scratch-2")))
    assert again == outcome, "a finished card is read, not played again"


def test_weights_that_are_no_numbers_are_the_submitters_fault(make_job, tmp_path):
    model = write_checkpoint(tmp_path / "model")
    tensors = load_file(model / "model.safetensors")
    tensors["model.norm.weight"][3] = np.nan
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    job = make_job(model)
    outcome = child.run(job)
    assert outcome.fault is Fault.SUBMITTER and outcome.score is None
    assert "model.norm.weight" in outcome.reason
    assert not job.card.exists()


def test_an_adapter_is_merged_before_it_is_scored(make_job, base, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "/somewhere/else",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["q_proj"],
        "bias": "none",
    }
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 16)).astype(np.float32), rng.normal(size=(16, 2)).astype(np.float32)
    save_file({name.format("A"): a, name.format("B"): b}, adapter / "adapter_model.safetensors", {"format": "pt"})
    outcome = child.run(make_job(adapter))
    assert outcome.fault is None, outcome.reason
    assert outcome.weights_digest not in (None, inspect_checkpoint(base).weights_digest)

    save_file(
        {name.format("A"): a, name.format("B"): np.zeros_like(b)},
        adapter / "adapter_model.safetensors",
        {"format": "pt"},
    )
    untrained = child.run(
        make_job(adapter, card=tmp_path / "untrained" / "card", scratch=_fresh(tmp_path / "scratch-2"))
    )
    assert untrained.weights_digest == inspect_checkpoint(base).weights_digest


@pytest.mark.usefixtures("no_child_stays")
def test_an_evaluation_that_overruns_is_an_infrastructure_fault(make_job, base):
    outcome = run_in_child(make_job(base), timeout_s=0.3)
    assert outcome.fault is Fault.INFRASTRUCTURE and outcome.score is None and outcome.is_resumable
    assert "did not end within 0.3 seconds" in outcome.reason


def test_a_child_that_is_killed_is_an_infrastructure_fault(make_job, base):
    killer = threading.Thread(target=lambda: _evaluating_child().kill())
    killer.start()
    outcome = run_in_child(make_job(base))
    killer.join()
    assert outcome.fault is Fault.INFRASTRUCTURE
    assert "was killed by SIGKILL (often: out of memory)" in outcome.reason


def test_a_crash_leaves_a_log_and_a_reason_without_it(make_job, base):
    job = make_job(base)
    program = EvaluatorProgram(("python", "-c", "raise RuntimeError('no such thing')"))
    outcome = ChildEvaluator(600.0, program=program)(job, threading.Event())
    assert outcome.fault is Fault.INFRASTRUCTURE and outcome.score is None
    assert "no such thing" in log_of(job.card).read_text() and "no such thing" not in outcome.reason


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_draft_is_continued_after_a_crash_unless_it_holds_a_damaged_card(make_job, base, is_damaged):
    job = make_job(base)
    card = take_up(job) / INSIDE_DRAFT
    scripted_child.play(job.model_copy(update={"card": card}), answer_s=0.0)
    if is_damaged:
        file = card / "rollouts.parquet"
        file.chmod(0o644)
        file.write_bytes(file.read_bytes()[:-1000])
    crash = EvaluatorProgram(("python", "-c", "raise RuntimeError('no such thing')"))
    outcome = ChildEvaluator(600.0, program=crash)(job, threading.Event())
    assert outcome.fault is Fault.INFRASTRUCTURE and outcome.is_resumable is not is_damaged


def test_a_model_is_scored_in_the_precision_that_the_trial_says_and_the_card_tells(make_job, base):
    job = make_job(base, machine=ScoringMachine(dtype="bfloat16", max_batch=4))
    assert run_in_child(job).fault is None
    assert read_header(job.card).protocol.dtype == "bfloat16"


def test_a_model_is_scored_with_the_gpu_that_the_trial_says_and_no_other(make_job, base, monkeypatch):
    requests = []

    def contained(request, *_, **__):
        requests.append(request)
        return ContainedEnd(EndedBy.ITSELF, 1, b"", 0, None, "it is a test")

    monkeypatch.setattr("agent2.arena.grader.evaluator.run_contained", contained)
    run_in_child(make_job(base, machine=ScoringMachine(gpu=3)))
    run_in_child(make_job(base))
    assert [request.gpus for request in requests] == [(3,), ()]
    assert [EvaluationJob.model_validate_json(request.stdin).machine.device for request in requests] == ["cuda", "cpu"]


def test_a_scoring_waits_for_another_on_the_same_gpu_and_a_stopped_one_waits_no_longer(make_job, base, monkeypatch):
    monkeypatch.setattr("agent2.arena.grader.evaluator.run_contained", lambda *_, **__: pytest.fail("it is not free"))
    stop = threading.Event()
    ended = threading.Event()

    def score():
        with pytest.raises(EvaluationStopped):
            ChildEvaluator(600.0)(make_job(base, machine=ScoringMachine(gpu=3)), stop)
        ended.set()

    with scoring_on(3, lambda: True):
        thread = threading.Thread(target=score)
        thread.start()
        assert not ended.wait(0.3)
        stop.set()
        assert ended.wait(120)
    thread.join()


@pytest.mark.usefixtures("no_child_stays")
def test_stopping_the_grader_ends_the_child(make_job, base):
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    started = time.monotonic()
    with pytest.raises(EvaluationStopped):
        ChildEvaluator(600.0)(make_job(base), stop)
    assert time.monotonic() - started < 200


def test_the_child_inherits_no_key_and_no_secret(make_job, base, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("AGENT2_HOME", "/somewhere/secret")
    environments: list[dict[str, str]] = []

    def look() -> None:
        process = _evaluating_child()
        environments.append(process.environ())
        process.kill()

    watcher = threading.Thread(target=look)
    watcher.start()
    run_in_child(make_job(base))
    watcher.join()
    assert "HF_HOME" in environments[0]
    assert not {"OPENAI_API_KEY", "AGENT2_HOME"} & set(environments[0])
    assert "sk-very-secret" not in " ".join(environments[0].values())


SNOOP = """
import json, os, socket, sys
from pathlib import Path

from agent2.arena.grader.job import answer_job
from agent2.arena.grader.job import EvaluationOutcome
from agent2.errors import Fault

def tried(what):
    try:
        return what() or "done"
    except OSError:
        return "no"

def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        return "done"

def snoop(job):
    told = json.loads(Path(sys.argv[1]).read_text())
    found = {
        "job": len(job.items),
        "forked": "done" if "fork_server" in Path("/proc/self/cmdline").read_text() else "no",
        "secret": tried(lambda: Path(told["secret"]).read_text()),
        "trial": tried(lambda: Path(told["trial"]).read_text()),
        "loopback": tried(lambda: connect(told["port"])),
        "harness": tried(lambda: Path(f"/proc/{told['harness']}/environ").read_bytes() and "done"),
        "base": tried(lambda: (job.base / "config.json").write_text("{}") and "done"),
        "checkpoint": tried(lambda: (job.checkpoint / "new").write_text("x") and "done"),
        "scratch": tried(lambda: (job.scratch / "new").write_text("x") and "done"),
        "draft": tried(lambda: job.card.with_name("new").write_text("x") and "done"),
    }
    return EvaluationOutcome(fault=Fault.SUBMITTER, reason=json.dumps(found))

answer_job(snoop)
"""


def test_the_child_sees_its_job_and_nothing_else_and_without_a_sandbox_it_would(make_job, tmp_path):
    folder = write_checkpoint(tmp_path / "base")
    model = write_checkpoint(tmp_path / "model", seed=1)
    secret, record = tmp_path / "secret", tmp_path / "grader.db"
    secret.write_text("the secret")
    record.write_text("the record")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        facts_file = tmp_path / "told.json"
        facts = {"secret": str(secret), "trial": str(record), "port": listener.getsockname()[1], "harness": os.getpid()}
        facts_file.write_text(json.dumps(facts))
        (tmp_path / "snoop.py").write_text(SNOOP)
        forked = ForkServer(("agent2.arena.grader.job",), evaluation_environment("/workspace", threads=1))
        for sandbox, where, server in (
            (find_sandbox(), "/told.json", None),
            (find_sandbox(), "/told.json", forked),
            (Unsandboxed(), str(facts_file), None),
        ):
            script = "/snoop.py" if where == "/told.json" else str(tmp_path / "snoop.py")
            mounts = (Mount(facts_file, "/told.json"), Mount(tmp_path / "snoop.py", "/snoop.py"))
            program = EvaluatorProgram(("python", "-P", script, where), mounts)
            evaluate = ChildEvaluator(60.0, sandbox, (secret, record), program, server=server)
            results = json.loads(evaluate(make_job(model, base=folder), threading.Event()).reason)
            assert (results["job"], results["scratch"], results["draft"]) == (8, "done", "done")
            others = {name: results[name] for name in ("secret", "trial", "loopback", "harness", "base", "checkpoint")}
            if sandbox.name == "none":
                control = {"secret": "the secret", "trial": "the record", "loopback": "done", "harness": "done"}
                assert others == control | {"base": "done", "checkpoint": "done"}
            else:
                assert set(others.values()) == {"no"}, others
            assert results["forked"] == ("done" if server is not None else "no")
        forked.close()


@pytest.mark.engine
def test_household_items_are_played_in_the_contained_child(make_job, base, tmp_path):
    items = load_benchmark("household").items(Split.TEST_PUBLIC, 2, SECRET)
    script = Path(scripted_child.__file__)
    program = EvaluatorProgram(("python", "-P", "/child.py"), (Mount(script, "/child.py"),))
    job = make_job(base, benchmark="household", items=tuple(items))
    outcome = ChildEvaluator(600.0, program=program)(job, threading.Event())
    assert outcome.fault is None, outcome.reason + log_of(job.card).read_text()[-2000:]
    assert (outcome.score.value, outcome.score.n, outcome.score.n_missing) == (0.0, 2, 0)
    turns = [len(rollout.rollout.turns) for rollout in iter_rollouts(job.card)]
    assert min(turns) > 1, "the world answered"


def test_a_mount_that_would_show_what_is_hidden_is_refused(make_job, base, tmp_path):
    with pytest.raises(SandboxError, match="would show"):
        ChildEvaluator(60.0, find_sandbox(), (base / "config.json",))(make_job(base), threading.Event())


HARNESS = """
    import sys
    from pathlib import Path
    from agent2.arena.agent_phase import Deadline
    from agent2.arena.grader.evaluator import INSIDE_DRAFT, take_up, ChildEvaluator
    from agent2.arena.grader.evaluator import INSIDE_DRAFT, take_up, GraderSettings
    from agent2.arena.grader.service import Grader
    from agent2.arena.trial_folder import TrialPaths
    from agent2.benchmarks import load_benchmark
    from agent2.records import Split

    items = {Split.TEST_PUBLIC: load_benchmark("arithmetic").items(Split.TEST_PUBLIC, 2000, b"s" * 32)}
    deadline = Deadline(1_000.0, 600.0, lambda: 1_100.0)
    settings = GraderSettings(TrialPaths(Path(sys.argv[1])), Path(sys.argv[2]), "arithmetic", items, deadline)
    grader = Grader(settings, ChildEvaluator(600.0))
    if sys.argv[3] == "submit":
        for _ in range(2):
            assert grader.submit("output/model").is_accepted
    grader.start()
    assert grader.drain(600.0)
    grader.stop()
"""


def test_a_harness_killed_in_the_middle_of_an_evaluation_loses_nothing_and_scores_nothing_twice(
    trial, base, make_grader
):
    write_checkpoint(trial.workspace / "output" / "model", seed=5)
    arguments = [sys.executable, "-c", textwrap.dedent(HARNESS), str(trial.root), str(base)]
    lines = draft_of(trial.submission_card(1)) / "card" / "rollouts.jsonl"
    with subprocess.Popen([*arguments, "submit"]) as harness:
        try:
            _wait_until(lambda: harness.poll() is not None or _count_lines(lines) >= 1)
            children = psutil.Process(harness.pid).children(recursive=True)  # may take long on a busy machine
            _wait_until(lambda: harness.poll() is not None or _count_lines(lines) >= 20)
            assert harness.poll() is None, "it ended before it could be killed"
        finally:
            harness.kill()
    assert outlived(children) == [], "the child dies with the harness"
    assert 20 <= _count_lines(lines) < 2000, "killed in the middle"

    shutil.rmtree(trial.workspace / "output" / "model")
    subprocess.run([*arguments, "resume"], check=True)
    records = make_grader().all()
    assert [record.state for record in records] == [SubmissionState.SCORED] * 2
    assert [record.score.n for record in records] == [2000, 2000]
    resumed, whole = (
        [(r.rollout.item_id, r.rollout.answer) for r in iter_rollouts(trial.submission_card(number))]
        for number in (1, 2)
    )
    assert len(resumed) == len(dict(resumed)) == 2000, "no item is played twice"
    answers = dict(whole)
    n_equal = sum(answer == answers[item_id] for item_id, answer in resumed)
    assert n_equal >= 1980, "one checkpoint draws the same answers, resumed or not, up to float noise"
    assert validate_card(trial.submission_card(1)) == []


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _evaluating_child() -> psutil.Process:
    """The innermost process of the evaluation, once it runs."""
    processes: list[psutil.Process] = []

    def look() -> bool:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[-1:] == ["agent2.arena.grader.child"] and "HF_HOME" in process.environ():
                    processes.append(process)
        return bool(processes)

    _wait_until(look)
    return processes[-1]


def _wait_until(is_so, timeout_s: float = 300.0) -> None:
    ends_at = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < ends_at, "waited in vain"
        time.sleep(0.005)
