"""Benchmarks from outside the package in the arena: checked, run in the real sandbox, and kept out of the workspace."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import SubmissionState
from agent2.arena.plan import new_trial, replay_trial, resolve_trial
from agent2.arena.scoring import LoadedTask, card_key
from agent2.arena.task_check import check_task
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from agent2.benchmarks import code_folders, load_benchmark
from agent2.cards.reader import read_header
from agent2.errors import ConfigError, SandboxError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from plugin_builders import install_quiz_pack, worked, write_gsm, write_quiz, write_rows
from trial_builders import SUBMIT_COPY, quiet, write_agent, write_task


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    tmp_path.chmod(0o755)


def task_on(folder, benchmark, **changes):
    """A task file on a benchmark of one's own, with a random base model."""
    folder.mkdir(exist_ok=True)
    sizes = {"train": 20, "dev": 3, "test_public": 8, "test_private": 8}
    return write_task(folder, name="own", benchmark=benchmark, n_items=sizes, **changes)


def failed(path):
    task = load_task(str(path))
    return {finding.name: finding.detail for finding in check_task(task) if finding.ok is False}


def test_a_task_takes_its_benchmark_from_its_own_folder_and_is_sound(tmp_path, monkeypatch):
    write_gsm(tmp_path / "tasks" / "shop", n_train=100)
    write_quiz(tmp_path / "tasks")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("./shop", "./quiz.py:Quiz"):
        assert failed(task_on(tmp_path / "tasks", name)) == {}


def test_a_task_whose_questions_are_in_train_and_test_is_not_sound(tmp_path):
    write_gsm(tmp_path / "shop", n_train=35)  # of which 23 are taken: of 16 hidden ones at least 4 are among these
    write_rows(tmp_path / "shop" / "test.jsonl", [worked(k) for k in range(35)])
    names = failed(task_on(tmp_path, "./shop"))
    assert any(name.startswith("test_p") for name in names) or any(name.startswith("disjointness") for name in names)


def test_the_key_of_a_cached_base_score_changes_with_the_source_of_a_plug_in(tmp_path):
    write_quiz(tmp_path / "p")
    path = task_on(tmp_path / "p", "./quiz.py:Quiz")
    task, base = load_task(str(path)), inspect_checkpoint(tmp_path / "p" / "base")

    def key():
        loaded = LoadedTask(task, load_benchmark(task.benchmark), b"s" * 32)
        return card_key(loaded, base, Split.TEST_PUBLIC, 1)

    before = key()
    assert key() == before
    text = (tmp_path / "p" / "quiz.py").read_text()
    (tmp_path / "p" / "quiz.py").write_text(text.replace("gap <= self.tolerance", "gap <= 10**9"))
    assert key() != before


def test_a_recording_does_not_choose_what_code_is_run_here(tmp_path):
    write_quiz(tmp_path / "p")
    root = new_trial(str(task_on(tmp_path / "p", "./quiz.py:Quiz")), "nop", 0, tmp_path / "trials")
    record = json.loads((root / "trial.json").read_text())
    driver = {"name": "x", "model": "x", "provider": "x", "endpoints": {"openai-chat": "http://127.0.0.1:9/v1"}}
    (root / "trial.json").write_text(json.dumps(record | {"driver": "x", "driver_record": driver}))
    (root / "llm").mkdir()
    (root / "llm" / "exchanges.jsonl").touch()
    (tmp_path / "p" / "quiz.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for name in (f"{tmp_path}/p/quiz.py:Quiz", "quiz:Quiz", f"{tmp_path}/p"):
        task = record["task"] | {"benchmark": name}
        (root / "trial.json").write_text(json.dumps(record | {"driver": "x", "driver_record": driver, "task": task}))
        with pytest.raises(ConfigError, match=r"a recording does not choose what is run .* add --set task\.benchmark"):
            replay_trial(root, tmp_path / "again")
    assert not (tmp_path / "ran").exists()


def test_a_plug_in_beside_the_installation_secret_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "p" / "home"))
    write_quiz(tmp_path / "p")
    with pytest.raises(SandboxError, match=r"would show .*secret"):
        resolve_trial(str(task_on(tmp_path / "p", "./quiz.py:Quiz")), "nop", 0)


LOOK = """
import os, subprocess
command = ["grep", "-rlE", "sells 10[0-9][0-9] jars", "/workspace", "/agent", "/home", "/tmp"]
found = subprocess.run(command, capture_output=True, text=True)
print("HIDDEN SEEN" if found.stdout else "nothing hidden", found.stdout)
"""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["data", "file"])
def test_a_trial_on_a_benchmark_of_ones_own_is_scored_in_the_sandbox(tmp_path, kind):
    write_quiz(tmp_path / "p")
    write_gsm(tmp_path / "p" / "shop", n_train=100)
    name = {"data": "./shop", "file": "./quiz.py:Quiz"}[kind]
    agent = write_agent(tmp_path / "copier", LOOK + SUBMIT_COPY)
    root = new_trial(str(task_on(tmp_path / "p", name)), str(agent), 0, tmp_path / "trials")
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert [submission.state for submission in evidence.submissions] == [SubmissionState.SCORED]
    assert "nothing hidden" in evidence.agent_log_tail
    header = read_header(root / "cards" / "base-test_public")
    assert header.protocol.benchmark.partition("-v")[2] == load_benchmark(f"{tmp_path / 'p'}/{name[2:]}").version


@pytest.mark.slow
@pytest.mark.thorough
def test_an_agent_gets_the_modules_that_a_benchmarks_file_imports_and_no_data(tmp_path):
    """What `sft` and `grpo` do first: load the benchmark from the workspace."""
    write_quiz(tmp_path / "p")
    (tmp_path / "p" / "hidden.jsonl").write_text("hidden\n")
    program = """
    import json
    from agent2.benchmarks import load_benchmark
    found = load_benchmark(json.load(open("assignment.json"))["benchmark"])
    print("LOADED", found.version, found.scorer().name)
    """
    agent = write_agent(tmp_path / "loader", program)
    root = new_trial(str(task_on(tmp_path / "p", "./quiz.py:Quiz")), str(agent), 0, tmp_path / "trials")
    run_trial(root, quiet)
    version = load_benchmark(f"{tmp_path}/p/quiz.py:Quiz").version
    assert f"LOADED {version} closely" in read_evidence(root).agent_log_tail
    files = {path.name for path in (root / "workspace" / "data").iterdir() if path.is_file()}
    assert files == {"quiz.py", "doubling.py", "train.jsonl", "dev.jsonl"}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["installed", pytest.param("file", marks=pytest.mark.thorough)])
def test_a_package_or_a_file_brings_benchmark_scorer_world_agent_suite_and_base(tmp_path, monkeypatch, way):
    """Built and installed by pip, or as it is: `eval`, `tasks check` and `run` take all of it by name."""
    if way == "installed":
        site = install_quiz_pack(tmp_path / "source", tmp_path / "site", SUBMIT_COPY)
        monkeypatch.syspath_prepend(str(site))
        assert code_folders("quiz") == [site]
        quiz, suite, agent, base = "quiz", "quiz_suite", "copier", "tiny-quiz"
        scorer, world = "closely", "desk"
    else:
        site = tmp_path / "p"
        quiz, suite, agent, base = (
            f"{site}/{name}" for name in ("quiz.py:Quiz", "places.py:SUITE", "places.py:AGENT", "base.py:BASE")
        )
        scorer, world = f"{site}/quiz.py:Closely", f"{site}/quiz.py:Desk"
    write_quiz(tmp_path / "p", SUBMIT_COPY)  # of the installed package: for its players
    environment = {**os.environ, "PYTHONPATH": str(site) if way == "installed" else ""}

    def agent2(*arguments):
        command = [sys.executable, "-m", "agent2", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    sides = ("--checkpoint", "scripted:p/players.py:right", "--baseline", "scripted:p/players.py:wrong")
    for number, contract in enumerate((quiz, suite)):
        output = agent2("eval", contract, *sides, "--role", "nightly", "--out", tmp_path / f"evaluation{number}")
        assert "0.0% -> 100.0%" in output
    sizes = {"train": 20, "dev": 3, "test_public": 8, "test_private": 8}
    path = write_task(tmp_path / "p", name="own", benchmark=quiz, n_items=sizes, base_model=base)
    agent2("tasks", "check", path, "--model", "none")
    report = json.loads(agent2("run", path, "--agent", agent, "--out", tmp_path / "trials", "--json"))
    assert report["trial"]["task"]["base_model"] == base
    (root,) = (tmp_path / "trials").iterdir()
    assert [submission.state for submission in read_evidence(root).submissions] == [SubmissionState.SCORED]
    if way == "installed":
        names = [row["agent"] for row in json.loads(agent2("agents", "list", "--json"))]
        assert "copier" in names and "tiny-quiz" in json.loads(agent2("models", "list", "--json"))
        assert "quiz_suite" in [row["suite"] for row in json.loads(agent2("suite", "list", "--json"))]
    shop = write_gsm(tmp_path / "shop", n_train=100)
    text = (shop / "benchmark.yaml").read_text()
    chosen = f"scorer: {{name: '{scorer}', tolerance: 1}}\nenvironment: {world}"
    text = text.replace("scorer: {name: final_answer}", chosen).replace(
        "answer: answer", r"answer: {field: answer, pattern: '([0-9]+)\*'}"
    )
    (shop / "benchmark.yaml").write_text(text)
    benchmark = load_benchmark(str(shop))
    assert benchmark.environment_version().startswith("desk-v2.0+")
    assert benchmark.scorer().version.startswith("1.0+") and yaml.safe_load(text)["environment"] == world
