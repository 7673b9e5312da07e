import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import agent2.arena
from agent2.arena.assignments.hyperparameter_search import PLACE, PROGRAM, TuneHyperparameters
from agent2.arena.assignments.programs import BrokenBench
from agent2.arena.assignments.records import Bench, ProgramAnswer, ProgramRun, Scores
from agent2.arena.assignments.tuning_space import POINTS, QUESTIONS, draw_space
from agent2.arena.evidence import AssignmentVerdict
from agent2.arena.spec import AssignmentSpec
from agent2.errors import ConfigError
from agent2.llm.scripted_replies import load_script
from agent2.records import Score
from agent2.stats.comparisons import paired_difference
from agent2.stats.estimates import PairedDifference

AGENTS = Path(agent2.arena.__file__).parent / "agents"
N_DEV, N_PRIVATE = 80, 100


def quality(point: Mapping[str, float]) -> float:
    """Share of right answers after training on a real point: best at the fourth step size, and the last others."""
    distance = abs(math.log10(point["step_size"] / 3e-4))
    worse = {"batch_size": (64, 0.06), "momentum": (0.5, 0.04), "label_smoothing": (0.3, 0.1)}
    lost = sum(cost for name, (value, cost) in worse.items() if point[name] == value)
    return max(0.0, 0.8 - 0.2 * distance - lost)


@dataclasses.dataclass
class FakeGrader:
    """Trains nothing: a point's quality decides which answers are right. Calls searches in this process."""

    asked: list[dict[str, bytes]] = dataclasses.field(default_factory=list)
    called: list[dict[str, bytes]] = dataclasses.field(default_factory=list)
    is_broken: bool = False

    def ask(self, files: Mapping[str, bytes], entry: str, folder: Path) -> ProgramAnswer:
        self.asked.append(dict(files))
        if self.is_broken:
            return ProgramAnswer(b"", "it ended with exit code 1: out of memory")
        questions = json.loads(files[QUESTIONS])

        def texts(name: str, share: float) -> list[str]:
            right = [str(eval(prompt.removeprefix("Calculate "))) for prompt in questions[name]]
            return [text if (number * 0.6180339887 % 1) < share else "no" for number, text in enumerate(right)]

        measured = [
            {"dev_1": texts("dev", q / 2), "dev_4": texts("dev", q), "private": texts("private", q)}
            for q in map(quality, json.loads(files[POINTS])["points"])
        ]
        return ProgramAnswer(json.dumps(measured).encode(), "")

    def call(self, files: Mapping[str, bytes], entry: str, folder: Path) -> ProgramAnswer:
        self.called.append(dict(files))
        if b"while True" in files[PROGRAM]:
            return ProgramAnswer(b"", "it did not end within 60 s")
        search, question = ModuleType("search"), json.loads(files["question.json"])
        try:
            exec(files[PROGRAM], search.__dict__)
            answer = getattr(search, question["function"])(question["space"], question["history"])
            return ProgramAnswer(json.dumps({"answer": answer}).encode(), "")
        except Exception as error:
            return ProgramAnswer(b"", f"it ended with exit code 1: {error!r}")

    def run(self, files: Mapping[str, bytes], folder: Path) -> ProgramRun:
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "quality").write_text(str(quality(json.loads(files[POINTS])["points"][0])))
        return ProgramRun(checkpoint, "", 1.0)

    def gain(self, checkpoint: Path, name: str) -> PairedDifference:
        before, after = np.zeros(100), np.zeros(100)
        after[: round(100 * float((checkpoint / "quality").read_text()))] = 1.0
        return paired_difference(after, before, np.random.default_rng(0))


@pytest.fixture
def grader() -> FakeGrader:
    return FakeGrader()


@pytest.fixture
def bench(tmp_path: Path, grader: FakeGrader) -> Bench:
    sizes = SimpleNamespace(train=10, dev=N_DEV, test_private=N_PRIVATE)
    task = SimpleNamespace(benchmark="arithmetic", n_items=sizes)
    config = SimpleNamespace(seed=0, task=task, base_model="tiny-arithmetic", threads=1)
    (tmp_path / "cache").mkdir()
    bench = Bench(
        cast(Any, config),
        AssignmentSpec(kind="tune"),
        b"secret",
        12,
        tmp_path / "workspace",
        tmp_path / "assignment",
        tmp_path / "cache",
        grader.run,
        grader.ask,
        grader.call,
        lambda item, files, folder: Score(None, "not looked at"),
    )
    TuneHyperparameters().prepare(bench)
    return bench


def judged(bench: Bench, grader: FakeGrader, noise: float = 0.03) -> AssignmentVerdict:
    return TuneHyperparameters().judge(bench, Scores(grader.gain, noise))


def hand_in(bench: Bench, text: str) -> None:
    (bench.workspace / PLACE / PROGRAM).write_text(text)


def hand_in_agent(bench: Bench, agent: str) -> None:
    hand_in(bench, (AGENTS / agent / f"{PROGRAM}.txt").read_text())


def part(verdict: AssignmentVerdict, name: str) -> tuple[float | None, str]:
    (chosen,) = [part for part in verdict.parts if part.name == name]
    return chosen.credit, chosen.reason


@pytest.mark.parametrize("seed", range(4))
def test_ladder_of_nothing_naive_random_and_oracle(seed: int, bench: Bench, grader: FakeGrader):
    cast(Any, bench.config).seed = seed
    credits = [judged(bench, grader).credit]
    for agent in ("tune-naive", "tune-random", "tune-oracle"):
        hand_in_agent(bench, agent)
        verdict = judged(bench, grader)
        credits.append(verdict.credit)
    assert verdict.passed and credits[0] == 0.0
    nothing, naive, at_random, oracle = (credit or 0.0 for credit in credits)
    assert nothing < naive < oracle and at_random <= oracle and oracle > 0.9
    assert [part.name for part in verdict.parts] == ["search", "again", "regret", "overfit"]
    own, halving, random = (cast(float, verdict.figures[f"{name}regret"]) for name in ("", "halving_", "random_"))
    assert own <= halving < random


@pytest.mark.parametrize("seed", range(4))
def test_the_search_of_the_packaged_script_is_better_than_chance(seed: int, bench: Bench, grader: FakeGrader):
    cast(Any, bench.config).seed = seed
    (writes, tries) = [step.run for step in load_script("tune-hyperparameters").steps[1:-1]]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (writes, tries):
        shell = ["sh", "-ec", str(command)]
        ended = subprocess.run(shell, cwd=bench.workspace, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("of the budget left, found the best: True\n")
    verdict = judged(bench, grader)
    assert verdict.credit is not None and verdict.credit > 0.8
    assert cast(float, verdict.figures["regret"]) <= cast(float, verdict.figures["random_regret"])


def test_the_grid_is_measured_once_for_an_installation_and_never_reaches_a_search(bench: Bench, grader: FakeGrader):
    hand_in_agent(bench, "tune-random")
    first = judged(bench, grader)
    n_asked = len(grader.asked)
    assert judged(bench, grader) == first and len(grader.asked) == n_asked == 5
    judged(dataclasses.replace(bench, secret=b"another"), grader)
    assert len(grader.asked) > n_asked
    assert all(set(files) == {PROGRAM, "space.json", "answer_search.py", "question.json"} for files in grader.called)
    private = json.loads(grader.asked[0][QUESTIONS])["private"]
    assert not any(prompt.encode() in files["question.json"] for files in grader.called for prompt in private)
    assert sorted(path.name for path in (bench.workspace / PLACE).iterdir()) == [PROGRAM, "space.json"]


def test_a_measurement_that_was_cut_off_goes_on_where_it_was(bench: Bench, grader: FakeGrader):
    hand_in_agent(bench, "tune-random")
    judged(bench, grader)
    first = next(bench.cache.glob("grid-*.json"))
    first.unlink()
    judged(bench, grader)
    assert len(grader.asked) == 6


def test_what_a_killed_harness_of_the_same_number_left_is_no_obstacle(bench: Bench, grader: FakeGrader):
    hand_in_agent(bench, "tune-random")
    first = judged(bench, grader)
    for path in [path for path in bench.cache.iterdir() if path.is_dir()]:
        path.rename(path.with_name(f".{path.name}.{os.getpid()}"))
    assert judged(bench, grader) == first


def test_a_recipe_that_does_not_run_is_never_the_agents_fault(bench: Bench, grader: FakeGrader):
    grader.is_broken = True
    with pytest.raises(BrokenBench, match="out of memory"):
        judged(bench, grader)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("def propose(space, history):\n    while True: pass\n", "propose: it did not end within 60 s"),
        ("def propose(space, history):\n    raise SystemError\n", "propose: it ended with exit code 1"),
        ("def propose(space, history):\n    return None\n", "AttributeError"),
        ("def (", "SyntaxError"),
        ("def propose(space, history):\n    open('grid.json')\n", "FileNotFoundError"),
        ("def propose(space, history): pass\ndef choose(space, history):\n    return float('nan')\n", "choose: "),
        ("def propose(space, history): pass\ndef choose(space, history):\n    return {'step_size': 1e9}\n", "choose: "),
    ],
)
def test_a_search_that_answers_nothing_usable_gets_no_credit(body: str, fault: str, bench: Bench, grader: FakeGrader):
    hand_in(bench, body)
    verdict = judged(bench, grader)
    assert (verdict.credit, verdict.passed) == (0.0, False)
    assert fault in part(verdict, "search")[1] and fault in part(verdict, "again")[1]
    assert "not known" in part(verdict, "overfit")[1]


def test_repeated_runs_and_proposals_that_are_none_are_told(bench: Bench, grader: FakeGrader):
    hand_in_agent(bench, "tune-naive")
    assert "21 runs repeated an earlier one" in part(judged(bench, grader), "search")[1]
    hand_in(bench, "def propose(space, history): return 7\ndef choose(space, history): return space['default']\n")
    assert "24 proposals were none" in part(judged(bench, grader), "search")[1]


def test_a_lying_search_is_judged_by_the_point_alone(bench: Bench, grader: FakeGrader):
    lie = "def propose(space, history):\n    history.append({'point': space['default'], 'share': 1.0, 'score': 1.0})\n"
    hand_in(bench, lie + "def choose(space, history):\n    return space['default']\n")
    assert judged(bench, grader).credit == 0.0


def test_a_program_that_is_gone_gets_no_credit_and_nothing_is_measured(bench: Bench, grader: FakeGrader):
    (bench.workspace / PLACE / PROGRAM).unlink()
    verdict = judged(bench, grader)
    assert verdict.credit == 0.0 and "search.py is gone" in part(verdict, "search")[1]
    assert grader.asked == []


def test_where_no_point_is_better_than_the_default_there_is_no_credit_to_give(bench: Bench, grader: FakeGrader):
    verdict = judged(bench, grader, noise=0.9)
    assert (verdict.credit, verdict.passed) == (None, False)
    assert "no choice here" in part(verdict, "search")[1]


def test_searches_that_take_too_long_together_end(bench: Bench, grader: FakeGrader):
    hand_in_agent(bench, "tune-random")
    verdict = judged(dataclasses.replace(bench, spec=AssignmentSpec(kind="tune", run_s=1e-9)), grader)
    assert verdict.credit == 0.0 and "did not end within" in part(verdict, "search")[1]


def test_a_choice_by_a_lucky_dev_sample_shows_as_overfit(bench: Bench, grader: FakeGrader):
    """The dev items are easier than the private ones at one poor point alone, which a search by dev score takes."""
    honest, space = grader.ask, draw_space(bench)
    lucky = space.real(space.points[1])

    def ask(files: Mapping[str, bytes], entry: str, folder: Path) -> ProgramAnswer:
        measured = json.loads(honest(files, entry, folder).content)
        for point, answers in zip(json.loads(files[POINTS])["points"], measured, strict=True):
            if point == lucky:
                prompts = json.loads(files[QUESTIONS])["dev"]
                answers["dev_4"] = [str(eval(prompt.removeprefix("Calculate "))) for prompt in prompts]
        return ProgramAnswer(json.dumps(measured).encode(), "")

    hand_in(
        bench,
        "def propose(space, history):\n"
        "    point = dict(space['default'])\n"
        "    point['label_smoothing'] = space['axes']['label_smoothing'][len(history) % 2]\n"
        "    return {'point': point}\n"
        "def choose(space, history):\n"
        "    return max(history, key=lambda run: run['score'])['point']\n",
    )
    verdict = judged(dataclasses.replace(bench, ask=ask), grader)
    assert cast(float, verdict.figures["overfit"]) > 0.2 and not verdict.passed


def test_a_space_with_one_point_is_refused_before_the_agent_starts(bench: Bench, tmp_path: Path):
    one = {"step_size": [1e-3], "batch_size": [16.0], "momentum": [0.9], "label_smoothing": [0.0]}
    moved = dataclasses.replace(bench, spec=AssignmentSpec(kind="tune", space=one), workspace=tmp_path / "other")
    with pytest.raises(ConfigError, match="1 point"):
        TuneHyperparameters().prepare(moved)
    assert not (tmp_path / "other").exists()
