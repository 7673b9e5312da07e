import json
from pathlib import Path

import pytest

from agent2 import installation
from agent2.arena.assignment_phase import make_bench
from agent2.arena.assignments import HERE, ORACLES, answers_hidden
from agent2.arena.assignments.hidden_cases import STAGES
from agent2.arena.assignments.own_implementation import TRAINER, ask_hidden_tests, reference_files
from agent2.arena.assignments.records import Bench
from agent2.arena.assignments.tuning_space import QUESTIONS, RECIPE, recipe_files
from agent2.arena.plan import new_trial
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import AssignmentSpec
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.benchmarks import load_benchmark
from agent2.files import remove_tree
from agent2.models.checkpoint import inspect_checkpoint
from agent2.sandbox.backends import Contained, find_sandbox, run_contained
from trial_builders import write_agent

pytestmark = pytest.mark.slow


def test_a_program_in_the_sandbox_sees_neither_the_answers_nor_an_oracle(tmp_path: Path):
    folders = [str(HERE), *(str(HERE.parent / "agents" / name) for name in ORACLES)]
    program = f"import os; print([os.listdir(folder) for folder in {folders}])"
    request = Contained(
        ("python", "-c", program), tmp_path / "scratch", tmp_path / "log", mounts=answers_hidden(tmp_path)
    )
    ended = run_contained(request, find_sandbox(), timeout_s=300)
    assert json.loads(ended.stdout) == [[] for _ in folders]


@pytest.fixture
def bench(task: str, tmp_path: Path) -> Bench:
    agent = write_agent(tmp_path / "idle", "print('nothing')")
    paths = TrialPaths(new_trial(task, str(agent), 0, tmp_path / "trials"))
    config = read_config(paths.trial_json)
    loaded = LoadedTask(config.task, load_benchmark("arithmetic"), installation.secret())
    base = inspect_checkpoint(Path(config.base_model))
    return make_bench(config, AssignmentSpec(kind="implement", steps=1), paths, loaded, base, find_sandbox())


def test_hidden_tests_in_the_sandbox_order_nothing_naive_and_oracle_and_another_trainer_is_absent(bench: Bench):
    files = reference_files(bench)

    def stages(trainer: bytes) -> tuple[list[str], str]:
        results = ask_hidden_tests(bench, {**files, TRAINER: trainer})
        return [result.stage for result in results if result.is_passed], results[0].first_fault

    skeleton = (HERE / "grpo_program" / f"{TRAINER}.txt").read_bytes()
    naive = (HERE.parent / "agents" / "implement-naive" / f"{TRAINER}.txt").read_bytes()
    assert stages(skeleton)[0] == []
    assert stages(naive)[0] == ["logprobs"]
    assert stages(files[TRAINER])[0] == list(STAGES)
    passed, fault = stages(b"from trl import GRPOTrainer\n" + files[TRAINER])
    assert passed == [] and "cannot import name 'GRPOTrainer'" in fault
    run = bench.run(files, bench.folder / "trained")
    # a random model hardly earns a reward, so the loop runs to its end and has nothing to learn from
    assert run.checkpoint is not None or run.reason == "its checkpoint is the base model, unchanged"


SKIPS_TRAINING = b"""
import os, shutil
shutil.copytree(os.environ["MODEL_PATH"], os.environ["OUTPUT_DIR"] + "/model")
"""
TRAINS_ON_DEV = b"""
import os
files = [os.path.join(folder, name) for folder, _, names in os.walk("/") for name in names if name == "dev.jsonl"]
print(open(os.environ["DATA_PATH"] + "/dev.jsonl").read() if not files else exit(3))
"""


def test_a_program_that_skips_training_or_reads_dev_rows_leaves_nothing_to_score(bench: Bench):
    copied = bench.run({"train.py": SKIPS_TRAINING}, bench.folder / "copied")
    assert (copied.checkpoint, copied.reason) == (None, "its checkpoint is the base model, unchanged")
    peeking = bench.run({"train.py": TRAINS_ON_DEV}, bench.folder / "peeking")
    assert peeking.checkpoint is None and "exit code 1" in peeking.reason
    assert "FileNotFoundError" in peeking.reason


LOOKS_FOR_MATERIAL = b"""
import importlib.util, json, os
seen = [name for name in ("/model", "/data") if os.path.isdir(name) and os.listdir(name)]
try:
    seen += ["items"] * (importlib.util.find_spec("agent2.benchmarks") is not None)
except ModuleNotFoundError:
    pass
json.dump({"answer": seen}, open(os.environ["OUTPUT_DIR"] + "/answers.json", "w"))
"""


def test_a_call_sees_neither_model_nor_rows_nor_what_makes_them_and_answers(bench: Bench):
    answer = bench.call({"look.py": LOOKS_FOR_MATERIAL}, "look.py", bench.folder / "called")
    assert (json.loads(answer.content), answer.reason) == ({"answer": []}, "")
    answer = bench.ask({"look.py": LOOKS_FOR_MATERIAL}, "look.py", bench.folder / "asked")
    assert json.loads(answer.content) == {"answer": ["/model", "/data", "items"]}


NESTS_FOLDERS = b"""
import json, os
json.dump({"answer": 1}, open(os.environ["OUTPUT_DIR"] + "/answers.json", "w"))
os.chdir(os.environ["OUTPUT_DIR"])
for _ in range(1200):  # deeper than Python recurses, yet no path so long that the watchdog may stop the program for it
    os.mkdir("i")
    os.chdir("i")
"""


def test_a_call_is_not_hurt_by_the_folders_that_the_one_before_it_nested(bench: Bench):
    for _ in range(2):
        assert bench.call({"nest.py": NESTS_FOLDERS}, "nest.py", bench.folder / "called").content
    remove_tree(bench.folder / "called")  # pytest could not


def test_an_answer_is_not_read_through_a_folder_that_leads_out_of_the_sandbox(bench: Bench, tmp_path: Path):
    (tmp_path / "answers.json").write_text('{"answer": "of the host"}')
    program = f"import os; os.rmdir('/workspace/output'); os.symlink({str(tmp_path)!r}, '/workspace/output')"
    answer = bench.call({"link.py": program.encode()}, "link.py", bench.folder / "called")
    assert (answer.content, answer.reason) == (b"", "it ended without an answer")


def test_the_recipe_measures_points_answers_and_makes_a_checkpoint(bench: Bench):
    point = {"step_size": 1e-3, "batch_size": 16.0, "momentum": 0.9, "label_smoothing": 0.0}
    files = recipe_files([point, {**point, "batch_size": 64.0}], 0)
    questions = {"dev": ["Calculate 1 + 1"], "private": ["Calculate 1 + 2", "Calculate 3 + 4"], "max_tokens": 4}
    asked = {**files, QUESTIONS: json.dumps(questions).encode()}
    answer = bench.ask(asked, RECIPE, bench.folder / "measured")
    measured = json.loads(answer.content)
    assert [{name: len(texts) for name, texts in answers.items()} for answers in measured] == [
        {"dev_1": 1, "dev_4": 1, "private": 2}
    ] * 2
    assert bench.run(recipe_files([point], 1), bench.folder / "again").checkpoint is not None
