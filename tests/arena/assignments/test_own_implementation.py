import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import agent2.arena
from agent2.arena.assignments.hidden_cases import STAGES
from agent2.arena.assignments.own_implementation import (
    ANSWERING,
    BUDGET,
    BY_CHANCE,
    ENTRY,
    PLACE,
    TESTS,
    TRAINER,
    ImplementGrpo,
    foreign_trainers,
    given_files,
)
from agent2.arena.assignments.records import Bench, ProgramAnswer, ProgramRun, Scores
from agent2.arena.evidence import AssignmentVerdict
from agent2.arena.spec import AssignmentSpec
from agent2.records import Score
from agent2.stats.comparisons import paired_difference
from agent2.stats.estimates import PairedDifference

AGENTS = Path(agent2.arena.__file__).parent / "agents"
REFERENCE_GAIN, NAIVE_GAIN = 0.2, 0.1


@dataclasses.dataclass
class FakeGrader:
    """Answers hidden tests in this process and trains nothing: the trainer's text says what a training gains."""

    ran: list[dict[str, bytes]] = dataclasses.field(default_factory=list)
    asked: list[dict[str, bytes]] = dataclasses.field(default_factory=list)

    def ask(self, files: Mapping[str, bytes], entry: str, folder: Path) -> ProgramAnswer:
        self.asked.append(dict(files))
        if b"while True" in files[TRAINER]:
            return ProgramAnswer(b"", "it did not end within 900 s")
        trainer, answering = ModuleType("trainer"), ModuleType("answer_cases")
        answering.__file__ = str(folder / entry)
        exec(files[TRAINER], trainer.__dict__)
        exec(files[entry], answering.__dict__)
        sys.modules["trainer"] = trainer
        answers = []
        for case in json.loads(files["cases.json"]):
            try:
                answers.append(answering.answer(case))
            except NotImplementedError as error:
                answers.append({"error": repr(error)})
        del sys.modules["trainer"]
        return ProgramAnswer(json.dumps(answers).encode(), "")

    def run(self, files: Mapping[str, bytes], folder: Path) -> ProgramRun:
        self.ran.append(dict(files))
        trainer = files[TRAINER]
        if b"def train(self, rows)" not in trainer or trainer.endswith(b"raise NotImplementedError\n"):
            return ProgramRun(None, "it ended with exit code 1: NotImplementedError", 1.0)
        if b"while True" in trainer:
            return ProgramRun(None, "it did not end within 900 s", 900.0)
        gain = NAIVE_GAIN if b"REINFORCE" in trainer else REFERENCE_GAIN
        if BY_CHANCE.encode() in files[ENTRY] and b"supervised" not in trainer:
            gain = 0.0
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "gain").write_text(str(gain))
        return ProgramRun(checkpoint, "", 1.0, b"{}\n")

    def gain(self, checkpoint: Path, name: str) -> PairedDifference:
        before, after = np.zeros(100), np.zeros(100)
        after[: round(100 * float((checkpoint / "gain").read_text()))] = 1.0
        return paired_difference(after, before, np.random.default_rng(0))


@pytest.fixture
def grader() -> FakeGrader:
    return FakeGrader()


@pytest.fixture
def bench(tmp_path: Path, grader: FakeGrader) -> Bench:
    task = SimpleNamespace(benchmark="arithmetic", n_items=SimpleNamespace(train=10))
    config = SimpleNamespace(seed=0, task=task, base_model="tiny-arithmetic", threads=1)
    (tmp_path / "cache").mkdir()
    bench = Bench(
        cast(Any, config),
        AssignmentSpec(kind="implement"),
        b"secret",
        12,
        tmp_path / "workspace",
        tmp_path / "assignment",
        tmp_path / "cache",
        grader.run,
        grader.ask,
        grader.ask,
        lambda item, files, folder: Score(None, "not looked at"),
    )
    ImplementGrpo().prepare(bench)
    return bench


def judged(bench: Bench, grader: FakeGrader) -> AssignmentVerdict:
    return ImplementGrpo().judge(bench, Scores(grader.gain, 0.03))


def hand_in(bench: Bench, agent: str, addition: str = "") -> None:
    text = (AGENTS / agent / f"{TRAINER}.txt").read_text()
    (bench.workspace / PLACE / TRAINER).write_text(text + addition)


def part(verdict: AssignmentVerdict, name: str) -> tuple[float | None, str]:
    (chosen,) = [part for part in verdict.parts if part.name == name]
    return chosen.credit, chosen.reason


def test_ladder_of_nothing_naive_and_oracle(bench: Bench, grader: FakeGrader):
    nothing = judged(bench, grader)
    hand_in(bench, "implement-naive")
    naive = judged(bench, grader)
    hand_in(bench, "implement-oracle")
    oracle = judged(bench, grader)
    assert (nothing.credit, nothing.passed) == (0.0, False)
    assert naive.credit == pytest.approx((1 / 6 + NAIVE_GAIN / REFERENCE_GAIN) / 2) and not naive.passed
    assert (oracle.credit, oracle.passed) == (1.0, True)
    assert [part.name for part in oracle.parts] == [*STAGES, "training", "files"]


def test_no_hidden_test_enters_the_workspace(bench: Bench, grader: FakeGrader):
    judged(bench, grader)
    names = sorted(path.name for path in (bench.workspace / PLACE).iterdir())
    assert names == ["budget.json", "config.json", "test_visible.py", "train.py", "trainer.py"]
    assert {ANSWERING, "cases.json"} <= set(grader.asked[0])
    assert not {ANSWERING, "cases.json"} & set(grader.ran[0])


def test_what_the_grader_gave_is_put_back_and_its_change_does_not_pass(bench: Bench, grader: FakeGrader):
    hand_in(bench, "implement-oracle")
    place, given = bench.workspace / PLACE, given_files(bench)
    (place / ENTRY).write_text("print('trained')")
    (place / TESTS).write_text("print('passed')")
    (place / BUDGET).write_text('{"steps": 10000, "prompts_per_step": 24, "group_size": 8}')
    verdict = judged(bench, grader)
    assert not verdict.passed and verdict.credit == 1.0
    for name in (ENTRY, TESTS, BUDGET):
        assert f"{name} was changed and put back" in part(verdict, "files")[1]
    assert grader.ran[0][ENTRY] == given[ENTRY] and grader.ran[0][BUDGET] == given[BUDGET]
    assert TESTS not in grader.asked[0]


def test_files_called_like_the_graders_replace_none_of_them(bench: Bench, grader: FakeGrader):
    (bench.workspace / PLACE / ANSWERING).write_text("print('all right')")
    (bench.workspace / PLACE / "cases.json").write_text("[]")
    assert judged(bench, grader).credit == 0.0
    assert b"Calls the functions" in grader.asked[0][ANSWERING] and len(grader.asked[0]["cases.json"]) > 1000


@pytest.mark.parametrize(
    "line",
    [
        "from trl import GRPOTrainer",
        "import trl.trainer.grpo_trainer as loop",
        "import importlib; importlib.import_module('trl')",
        "__import__('verl.trainer')",
        "from agent2 import training",
        "from agent2.training.grpo import train_grpo",
        "def train(): \n    from trl.trainer import GRPOTrainer",
    ],
)
def test_a_loop_that_calls_another_trainer_gets_no_credit_for_the_training(line: str, bench: Bench, grader: FakeGrader):
    (bench.workspace / PLACE / "loop.py").write_text(line)
    hand_in(bench, "implement-oracle")
    verdict = judged(bench, grader)
    assert not verdict.passed and verdict.credit == 0.5
    credit, reason = part(verdict, "training")
    assert credit == 0.0 and "not an own loop: loop.py imports" in reason
    assert grader.ran == []


def test_imports_that_only_look_like_another_trainer_are_none():
    honest = b"import trlx_notes\nfrom agent2.benchmarks import load_benchmark\n# import trl\nname = 'trl'\n"
    assert foreign_trainers({TRAINER: honest}) == []
    assert foreign_trainers({TRAINER: b"import (", "config.json": b"import trl"}) == []


def test_a_program_that_never_ends_gets_no_credit(bench: Bench, grader: FakeGrader):
    hand_in(bench, "implement-oracle", "\nwhile True: pass\n")
    verdict = judged(bench, grader)
    assert not verdict.passed and verdict.credit == 0.0
    assert all("did not end" in part.reason for part in verdict.parts[:-1])


def test_what_is_gained_without_the_rewards_is_taken_off(bench: Bench, grader: FakeGrader):
    hand_in(bench, "implement-oracle", "\n# supervised\n")
    verdict = judged(bench, grader)
    assert not verdict.passed and verdict.credit == 0.5
    credit, reason = part(verdict, "training")
    assert credit == 0.0 and "+20.0 points were gained with rewards dealt out by chance" in reason
    assert verdict.figures["gain_by_chance"] == pytest.approx(0.2)


def test_an_own_configuration_is_allowed(bench: Bench, grader: FakeGrader):
    hand_in(bench, "implement-oracle")
    (bench.workspace / PLACE / "config.json").write_text(json.dumps({"benchmark": "arithmetic", "learning_rate": 1e-3}))
    assert judged(bench, grader).passed
    assert b"0.001" in grader.ran[0]["config.json"]


def test_a_folder_that_is_gone_is_no_program(bench: Bench, grader: FakeGrader):
    (bench.workspace / PLACE).rename(bench.workspace / "elsewhere")
    verdict = judged(bench, grader)
    assert verdict.credit == 0.0 and not verdict.passed
    assert "not a folder" in verdict.parts[0].reason


def test_steps_of_the_task_file_are_those_of_everybody(bench: Bench):
    short = dataclasses.replace(bench, spec=AssignmentSpec(kind="implement", steps=3))
    assert json.loads(given_files(short)[BUDGET])["steps"] == 3
