"""Benchmarks of a user's own, those of examples/sounds and examples/corridor: checked, learned, and played."""

import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agent2.arena.agents import SPEC_FILE, load_agent
from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import AgentEnd, SubmissionState
from agent2.arena.plan import new_trial
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.home import visible_row
from agent2.cli import app
from agent2.models.bases import ensure_base_model
from agent2.records import Split
from agent2.training.participant import Participant
from agent2.training.visible import VisibleTask
from model_builders import make_model
from trial_builders import quiet

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("corridor", "sounds"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    tmp_path.chmod(0o755)


def copied(name, tmp_path):
    """An example in a folder of its own, without what Python cached beside it."""
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def sounds(tmp_path):
    """A question benchmark; its base model has read every answer, the right one twice as often."""
    folder = copied("sounds", tmp_path)
    (folder / "test.jsonl").write_text("hidden data beside the file\n")
    record = yaml.safe_load((folder / "task.yaml").read_text(encoding="utf-8"))
    train = load_benchmark(f"{folder}/sounds.py:Sounds").items(Split.TRAIN, 2000, None)
    answers = ("moo", "meow", "woof", "quack")
    unsure = [(item.prompt, answer) for item in train for answer in (*answers, item.reference)]
    record["base_model"] = str(make_model(tmp_path / "base", unsure, steps=200))
    (tmp_path / "base" / "model.safetensors").chmod(0o644)  # the sandboxed agent is another user
    (folder / "task.yaml").write_text(yaml.safe_dump(record))
    return folder / "task.yaml"


@pytest.fixture
def corridor(tmp_path):
    """A world with its tiny base."""
    return copied("corridor", tmp_path) / "task.yaml"


@pytest.fixture(params=["sounds", "corridor"])
def task(request):
    return request.getfixturevalue(request.param)


@pytest.mark.slow
def test_a_task_of_the_examples_passes_its_check_and_needs_nothing_but_its_folder(task):
    files = {path.name for path in task.parent.iterdir()} - {"__pycache__"}
    result = CliRunner().invoke(app, ["tasks", "check", str(task)])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "FAILED" not in result.output and "warning" not in result.output, result.output
    assert {path.name for path in task.parent.iterdir()} - {"__pycache__"} == files


def agent_program(kind, is_interactive):
    """A reference agent's own program as a module."""
    folder = load_agent(kind).folder
    names = ("episodes.py" if is_interactive else "question.py", "main.py")
    file = next(folder / name for name in names if (folder / name).exists())
    spec = spec_from_file_location(f"agent_{kind}".replace("-", "_"), file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("corridor", "sft", marks=pytest.mark.thorough),
        pytest.param("corridor", "grpo", marks=pytest.mark.thorough),
        pytest.param("sounds", "sft", marks=pytest.mark.thorough),
        pytest.param("sounds", "grpo", marks=pytest.mark.thorough),
    ],
)
def test_reference_agents_improve_the_tiny_base_of_a_task_of_the_examples(request, tmp_path, name, kind, monkeypatch):
    """Their own programs, with a part of the usual steps of GRPO; what they hand in is measured on dev items."""
    task = request.getfixturevalue(name)
    record = load_task(str(task))
    benchmark = load_benchmark(record.benchmark)
    rows = {
        split: [dict(visible_row(benchmark, item)) for item in benchmark.items(split, n, None)]
        for split, n in ((Split.TRAIN, record.n_items.train), (Split.DEV, 300))
    }
    handed_in = []

    def submit(self, checkpoint, note):
        handed_in.append(checkpoint)
        return {"submission_id": len(handed_in), "score": 0.0, "baseline_score": 0.0}

    monkeypatch.setattr(Participant, "submit", submit)
    base = ensure_base_model(record.base_model, BASE_MODELS)
    for seed in range(2):
        monkeypatch.setenv("AGENT2_SEED", str(seed))
        me = Participant(
            base,
            tmp_path / f"out{seed}",
            rows[Split.TRAIN],
            rows[Split.DEV],
            benchmark.sampling,
            seed,
            "http://none",
            benchmark=record.benchmark,
            max_turns=benchmark.max_turns,
            effort=EFFORT[task.parent.name],
            wall_clock_s=1e6,
        )
        agent_program(kind, benchmark.max_turns > 1).run(me)
        dev = benchmark.items(Split.DEV, 300, None)
        visible = VisibleTask(benchmark, [], dev, me)
        before, after = (visible.evaluate_on_dev(folder).success for folder in (base, handed_in[-1]))
        assert 0.15 < before < 0.5
        assert after > before + 0.15, (kind, seed, before, after)


EFFORT = {"sounds": 0.3, "corridor": 0.2}
"""Share of the usual steps of GRPO."""


def small_agent(kind, folder):
    """A reference agent with a hundredth of its usual steps of GRPO, and at least two."""
    target = folder / kind
    shutil.copytree(load_agent(kind).folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    spec = yaml.safe_load((target / SPEC_FILE).read_text())
    spec["environment"] = {"AGENT2_EFFORT": "0.01"}
    (target / SPEC_FILE).write_text(yaml.safe_dump(spec))
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "n_scored", "sandbox"),
    [
        ("sounds", "sft", 1, "none"),
        pytest.param("sounds", "grpo", 2, "bubblewrap", marks=pytest.mark.thorough),
        pytest.param("sounds", "sft-grpo", 2, "bubblewrap", marks=pytest.mark.thorough),
        pytest.param("sounds", "static-only", 3, "none", marks=pytest.mark.thorough),
        pytest.param("corridor", "sft", 1, "bubblewrap", marks=pytest.mark.thorough),
        pytest.param("corridor", "sft-grpo", 3, "none", marks=pytest.mark.thorough),
    ],
)
def test_a_reference_agent_plays_a_whole_trial_on_it(request, tmp_path, name, kind, n_scored, sandbox):
    """Without a sandbox, too, in a folder whose sockets have longer paths than a unix socket's may be."""
    file = request.getfixturevalue(name)
    sizes = {"train": 100, "dev": 20, "test_public": 30, "test_private": 30}
    overrides = [f"task.n_items.{split}={n}" for split, n in sizes.items()]
    overrides += [f"sandbox={sandbox}"]
    out = tmp_path / ("trials-" + "x" * 100)
    root = new_trial(str(file), str(small_agent(kind, tmp_path / "agents")), 0, out, overrides=overrides)
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    assert [submission.state for submission in evidence.submissions] == [SubmissionState.SCORED] * n_scored
