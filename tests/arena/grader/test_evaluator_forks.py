"""Evaluations that are forked from one server: same cards as of processes of their own, one after another."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file, save_file

from agent2.arena.grader.evaluator import PACKAGED, ChildEvaluator, EvaluatorProgram, evaluation_environment, server_for
from agent2.arena.grader.job import EvaluationJob, ScoringMachine
from agent2.benchmarks import load_benchmark
from agent2.cards.reader import iter_rollouts
from agent2.errors import Fault
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from agent2.sandbox.backends import Contained, Unsandboxed, find_sandbox, run_contained
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.spec import Mount
from grading_builders import SECRET, write_checkpoint

pytestmark = pytest.mark.slow  # loads torch


@pytest.fixture(scope="module")
def server(base) -> Iterator[ForkServer]:
    server = server_for(PACKAGED, inspect_checkpoint(base), threads=1)
    assert server is not None
    yield server
    server.close()


@pytest.fixture
def make_job(tmp_path, base, hidden_items):
    def make(name: str, checkpoint: Path, **changes) -> EvaluationJob:
        (tmp_path / name).mkdir()
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
        }
        return EvaluationJob(**{**fields, **changes})

    return make


def played(job: EvaluationJob, server: ForkServer | None):
    """Outcome, and what the card says apart from how long it took."""
    outcome = ChildEvaluator(600.0, server=server)(job, threading.Event())
    rows = [msgspec.to_builtins(scored) for scored in iter_rollouts(job.card)] if job.card.exists() else []
    return outcome, [_without_times(row) for row in rows]


def _without_times(value):
    if isinstance(value, dict):
        return {key: _without_times(part) for key, part in value.items() if not key.endswith(("_s", "seconds"))}
    return [_without_times(part) for part in value] if isinstance(value, list | tuple) else value


def n_forks(server: ForkServer) -> int:
    return len(psutil.Process(server.pid).children())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_forked_evaluation_makes_the_card_of_a_process_of_its_own(make_job, server, base, tmp_path, dtype):
    items = tuple(load_benchmark("arithmetic").items(Split.TEST_PUBLIC, 40, SECRET))
    models = {"base": base, "model": write_checkpoint(tmp_path / "folder", seed=3)}
    parts = {"items": items, "attempts": 2, "machine": ScoringMachine(dtype=dtype)}
    alone = {name: played(make_job(f"{name}-alone", model, **parts), None) for name, model in models.items()}
    for nth in range(2):  # the second follows one of another model
        for name, model in models.items():
            assert played(make_job(f"{name}-{nth}", model, **parts), server) == alone[name]
    assert alone["base"][0].fault is None and alone["base"][1] != alone["model"][1]
    assert server.pid is not None and n_forks(server) == 0


def test_a_forked_evaluation_that_fails_says_what_one_of_its_own_would_and_leaves_the_next_alone(
    make_job, server, base, tmp_path
):
    model = write_checkpoint(tmp_path / "folder")
    tensors = load_file(model / "model.safetensors")
    tensors["model.norm.weight"][3] = np.nan
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    (model / "model.safetensors").chmod(0o644)
    forked, alone = (played(make_job(name, model), chosen)[0] for name, chosen in (("f", server), ("a", None)))
    assert forked == alone and forked.fault is Fault.SUBMITTER
    assert played(make_job("next", base), server)[0].fault is None


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_are_those_of_a_process_of_its_own_bit_by_bit(base, tmp_path, threads):
    (tmp_path / "code").mkdir(mode=0o755)
    (tmp_path / "code" / "logits.py").write_text("""
import hashlib, os, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(int(os.environ["AGENT2_THREADS"]))
model = AutoModelForCausalLM.from_pretrained("/base")
torch.manual_seed(1)
logits = model(torch.randint(0, 32, (64, 48))).logits
big = torch.randn(700, 900) @ torch.randn(900, 800)
print(torch.get_num_threads(), *(hashlib.sha256(t.detach().numpy().tobytes()).hexdigest() for t in (logits, big)))
""")
    request = Contained(
        ("python", "-P", "/code/logits.py"),
        tmp_path / "scratch",
        tmp_path / "log",
        mounts=(Mount(tmp_path / "code", "/code"), Mount(base, "/base")),
        environment=evaluation_environment("/workspace", threads),
    )
    server = server_for(PACKAGED, inspect_checkpoint(base), threads)
    assert server is not None
    ends = [run_contained(request, find_sandbox(), timeout_s=300, server=chosen) for chosen in (server, server, None)]
    assert server.pid is not None, "it was used, and not given up"
    server.close()
    assert ends[2].stdout.startswith(f"{threads} ".encode()), (tmp_path / "log").read_text()
    assert [end.stdout for end in ends] == [ends[2].stdout] * 3


def test_the_server_imports_all_that_is_slow_to_import(base, server, tmp_path):
    (tmp_path / "code").mkdir(mode=0o755)
    (tmp_path / "code" / "look.py").write_text(
        "import sys; print({'torch', 'transformers.models.llama.modeling_llama'} <= sys.modules.keys())"
    )
    request = Contained(
        ("python", "-P", "/code/look.py"),
        tmp_path / "scratch",
        tmp_path / "log",
        mounts=(Mount(tmp_path / "code", "/code"),),
        environment=evaluation_environment("/workspace", 1),
    )
    assert run_contained(request, find_sandbox(), timeout_s=300, server=server).stdout == b"True\n"


def test_without_a_sandbox_each_evaluation_is_a_process_of_its_own(make_job, server, base):
    outcome = ChildEvaluator(600.0, Unsandboxed(), server=server)(make_job("free", base), threading.Event())
    assert outcome.fault is None
    assert outcome == played(make_job("forked", base), server)[0]


def test_a_program_of_a_test_has_a_server_only_if_it_names_imports(base):
    assert server_for(EvaluatorProgram(("python", "-P", "/child.py")), inspect_checkpoint(base), 1) is None


@pytest.mark.parametrize(
    ("model_type", "module"),
    [
        ("llama", "transformers.models.llama.modeling_llama"),
        ("xlm-roberta", "transformers.models.xlm_roberta.modeling_xlm_roberta"),
        ("os;x", None),
        (None, None),
    ],
)
def test_the_code_of_the_base_model_is_imported_by_its_type(base, model_type, module):
    info = replace(inspect_checkpoint(base), config={"model_type": model_type} if model_type else {})
    server = server_for(PACKAGED, info, 1)
    assert server is not None and server.modules[1:] == ((module,) if module else ())
