"""What users bring: data in the layout of GSM8K, Python files, and a package that is really built and installed."""

import json
import subprocess
import sys
from pathlib import Path

GSM_YAML = """\
name: shop_sums
version: "1.0"
files: {train: train.jsonl, test: test.jsonl}
prompt: "{question}\\nEnd with a line #### and the number."
answer: answer
scorer: {name: final_answer}
sampling: {temperature: 0.0, max_tokens: 64}
"""


def worked(number: int) -> dict[str, str]:
    """One row as GSM8K writes them: calculator annotations, and the answer behind `#### `."""
    price = 7 + number
    return {
        "question": f"A shop sells {number} jars at ${price} each. How much are all of them?",
        "answer": f"They are {number} * {price} = $<<{number}*{price}={number * price}>>{number * price}.\n"
        f"#### {number * price:,}",
    }


def write_rows(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_gsm(folder: Path, text: str = GSM_YAML, n_train: int = 60, n_test: int = 41) -> Path:
    """A data benchmark in GSM8K's layout; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "train.jsonl", [worked(k) for k in range(n_train)])
    write_rows(folder / "test.jsonl", [worked(1000 + k) for k in range(n_test)])
    (folder / "benchmark.yaml").write_text(text, encoding="utf-8")
    return folder


QUIZ = '''
"""Doubles of numbers, with a scorer and a world of its own."""

import hashlib

from doubling import twice

from agent2.environments import QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, ScorerOutput, Item, SamplingSettings, Score, Split


class Closely:
    """Right to within `tolerance`."""

    name, version = "closely", "1.0"
    emits = ScorerOutput(labels=frozenset({"far_off"}))

    def __init__(self, tolerance=0):
        self.tolerance = tolerance

    def score(self, item, rollout):
        try:
            gap = abs(int(rollout.answer) - int(item.reference))
        except ValueError:
            return Score(0.0, "no number", labels=("far_off",))
        return Score(float(gap <= self.tolerance), f"{gap} off", extracted=rollout.answer)


class Desk(QuestionEnvironment):
    """A question by another name."""

    name, version = "desk", "2.0"


class Quiz:
    """Doubles."""

    name, version, primary_metric, max_turns, attempts = "quiz", "1.0", "accuracy", 1, 1
    sampling = SamplingSettings(max_tokens=8)

    def items(self, split, n, secret):
        if split in HIDDEN_SPLITS and not secret:
            raise ConfigError("quiz: hidden items need the secret")
        key = secret if split in HIDDEN_SPLITS else b""
        found = []
        for k in range(n):
            draw = hashlib.sha256(key + f"{split.value} {k}".encode()).digest()
            number = 8 * int.from_bytes(draw[:6], "big") + list(Split).index(split)
            found.append(Item(f"quiz-{number}", split, f"Twice {number}?", str(twice(number))))
        return found

    def environment(self):
        return QuestionEnvironment()

    def scorer(self):
        return Closely()

    def environment_version(self):
        return "question-v1.0"
'''
DOUBLING = "def twice(number):\n    return 2 * number\n"
PLAYERS = """
def right(chat):
    return str(2 * int(chat[-1].content.split()[-1].strip("?")))

def wrong(chat):
    return "0"
"""
SUITE = """
name: quiz_regression
version: v1.0
track: llm_core
description: One small benchmark.
control_group: {kind: sft, checkpoint: null}
task_distribution:
  production_tasks: [{name: doubles, difficulty: easy, benchmarks: [quiz]}]
protocol:
  sampling: {temperature: 0.0, top_p: 1.0, n: 1, max_tokens: 8}
cadence:
  dev: {split: dev, n_items: 60}
  nightly: {split: test_public, n_items: 60}
  candidate: {split: test_private, n_items: 60, spot_check: true}
benchmarks:
  - {name: quiz, split: test_public, metric: quiz_accuracy, n_items: 60, scorer: {name: closely, tier: rules}}
metrics:
  - {name: quiz_accuracy, benchmark: quiz, role: primary}
gates:
  - {kind: evidence, name: evidence}
  - {kind: regression, name: quiz_holds, metrics: [quiz_accuracy], tolerance: 0.05, margin: 0.2}
failure_taxonomy: {far_off: data}
"""
BASE = '''
"""The recipe of a base model that can do nothing."""

from agent2.models.tiny import build_tiny
from agent2.models.tiny_recipe import BaseModel, TinyRecipe


def build(entry, folder, on_progress):
    corpus = [(f"Twice {number}?", str(2 * number)) for number in range(50)]
    return {"steps": build_tiny(entry.recipe, corpus, lambda model, tokenizer: 0.0, folder).steps}


SIZE = {"hidden_size": 32, "n_layers": 1, "n_heads": 2, "feed_forward_size": 64, "max_vocabulary": 280}
BASE = BaseModel("1", TinyRecipe(target=0.0, max_steps=2, probe_every_steps=2, **SIZE), corpus=None, builder=build)
'''
PLACES = """from pathlib import Path
HERE = Path(__file__).parent
AGENT = HERE / 'copier'
SUITE = HERE / 'suite.yaml'
"""
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "quiz-pack"
version = "0.7"

[project.entry-points."agent2.benchmarks"]
quiz = "quiz_pack.quiz:Quiz"

[project.entry-points."agent2.scorers"]
closely = "quiz_pack.quiz:Closely"

[project.entry-points."agent2.environments"]
desk = "quiz_pack.quiz:Desk"

[project.entry-points."agent2.agents"]
copier = "quiz_pack:AGENT"

[project.entry-points."agent2.suites"]
quiz_suite = "quiz_pack:SUITE"

[project.entry-points."agent2.bases"]
tiny-quiz = "quiz_pack.base:BASE"

[tool.setuptools]
packages = ["quiz_pack"]

[tool.setuptools.package-data]
quiz_pack = ["*.yaml", "copier/*"]
"""


def write_agent_folder(folder: Path, program: str) -> None:
    """The agent `copier`."""
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text("name: copier\ndescription: a test\ncommand: [python, /agent/main.py]\n")
    (folder / "main.py").write_text(program)


def write_quiz(folder: Path, agent_program: str | None = None) -> Path:
    """The same benchmark as a Python file with a module beside it; returns the file.

    agent_program: write the agent, the suite and the base of the package as well, with a file that names them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if agent_program is not None:
        write_agent_folder(folder / "copier", agent_program)
        (folder / "places.py").write_text(PLACES)
        (folder / "base.py").write_text(BASE)
        (folder / "suite.yaml").write_text(SUITE.replace("{name: quiz,", "{name: quiz, source: './quiz.py:Quiz',"))
    (folder / "doubling.py").write_text(DOUBLING)
    (folder / "quiz.py").write_text(QUIZ)
    (folder / "players.py").write_text(PLAYERS)
    return folder / "quiz.py"


def install_quiz_pack(source: Path, target: Path, agent_program: str = "") -> Path:
    """Write the package's source, build it and install it into a folder, as pip does; returns that folder."""
    package = source / "quiz_pack"
    write_agent_folder(package / "copier", agent_program)
    (source / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").write_text(PLACES)
    (package / "base.py").write_text(BASE)
    (package / "doubling.py").write_text(DOUBLING)
    (package / "quiz.py").write_text(QUIZ.replace("from doubling", "from quiz_pack.doubling"))
    (package / "suite.yaml").write_text(SUITE)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--target", str(target), str(source)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return target
