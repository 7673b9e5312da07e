import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from agent2.arena.assignments.broken_pipeline import (
    DIAGNOSIS,
    PIPELINE,
    DebugTraining,
    judge_diagnosis,
    variant_of,
)
from agent2.arena.assignments.pipeline_variants import BUDGET, CONFIG, ENTRY
from agent2.arena.assignments.programs import BrokenBench, known_run
from agent2.arena.assignments.records import Bench, ProgramAnswer, ProgramRun, Scores
from agent2.arena.spec import AssignmentSpec
from agent2.records import Score
from agent2.stats.comparisons import paired_difference
from agent2.stats.estimates import PairedDifference

HEALTHY, BROKEN = 0.2, 0.0


def gain_of(value: float) -> PairedDifference:
    before, after = np.zeros(100), np.zeros(100)
    after[: round(100 * value)] = 1.0
    return paired_difference(after, before, np.random.default_rng(0))


@dataclasses.dataclass
class FakeGrader:
    """Runs nothing: what it finds in place of a checkpoint says whether the files were healthy."""

    bench: Bench | None = None
    ran: list[dict[str, bytes]] = dataclasses.field(default_factory=list)
    slowness: dict[str, float] = dataclasses.field(default_factory=dict)

    def run(self, files: Mapping[str, bytes], folder: Path) -> ProgramRun:
        self.ran.append(dict(files))
        if b"never ends" in files[ENTRY]:
            return ProgramRun(None, "it did not end within 900 s", 900.0)
        bench = cast(Bench, self.bench)
        programs = {name: content for name, content in files.items() if name.endswith(".py")}
        variant = variant_of(bench)
        healthy = {name: content for name, content in variant.healthy.items() if name.endswith(".py")}
        is_healthy = programs == healthy or b"trains" in files[ENTRY]
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "gain").write_text(str(HEALTHY if is_healthy else BROKEN))
        seconds = 400.0 if b"range(400)" in b"".join(files.values()) else 100.0
        seconds *= self.slowness.get(folder.name, 1.0)
        return ProgramRun(checkpoint, "", seconds, b'{"step": 0, "reward": 0.1}\n')

    def gain(self, checkpoint: Path, name: str) -> PairedDifference:
        return gain_of(float((checkpoint / "gain").read_text()))


@pytest.fixture
def grader(tmp_path: Path) -> FakeGrader:
    fake = FakeGrader()
    task = SimpleNamespace(benchmark="arithmetic", n_items=SimpleNamespace(train=10))
    config = SimpleNamespace(seed=0, task=task, base_model="tiny-arithmetic", threads=1)
    (tmp_path / "workspace" / "output").mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    fake.bench = Bench(
        cast(Any, config),
        AssignmentSpec(kind="debug", case="advantages"),
        b"secret",
        12,
        tmp_path / "workspace",
        tmp_path / "assignment",
        tmp_path / "cache",
        fake.run,
        lambda files, entry, folder: ProgramAnswer(b"", "not asked"),
        lambda files, entry, folder: ProgramAnswer(b"", "not called"),
        lambda item, files, folder: Score(None, "not looked at"),
    )
    DebugTraining().prepare(fake.bench)
    return fake


def judged(grader: FakeGrader) -> Any:
    return DebugTraining().judge(cast(Bench, grader.bench), Scores(grader.gain, 0.03))


def pipeline_of(grader: FakeGrader) -> Path:
    return cast(Bench, grader.bench).workspace / PIPELINE


def diagnose(grader: FakeGrader, diagnosis: object) -> None:
    (cast(Bench, grader.bench).workspace / DIAGNOSIS).write_text(json.dumps(diagnosis))


def repair(grader: FakeGrader) -> None:
    for name, content in variant_of(cast(Bench, grader.bench)).healthy.items():
        (pipeline_of(grader) / name).write_bytes(content)


def test_right_cause_and_repaired_pipeline_pass(grader: FakeGrader):
    diagnose(grader, {"cause": "advantages", "explanation": "the sign"})
    repair(grader)
    verdict = judged(grader)
    assert verdict.passed and verdict.credit == 1.0
    assert verdict.figures["gain"] == pytest.approx(HEALTHY)


def test_an_untouched_workspace_gets_no_credit(grader: FakeGrader):
    verdict = judged(grader)
    assert not verdict.passed and verdict.credit == 0.0
    assert "nothing was changed" in verdict.parts[2].reason


def test_repair_without_the_cause_is_half_the_credit_and_does_not_pass(grader: FakeGrader):
    repair(grader)
    diagnose(grader, {"cause": "kl"})
    verdict = judged(grader)
    assert not verdict.passed and verdict.credit == 0.5
    assert verdict.parts[0].reason == "named kl; it was advantages"


@pytest.mark.parametrize(
    ("diagnosis", "reason"),
    [
        ({"cause": ["advantages", "kl"]}, "names 2 causes"),
        ({"cause": "advantages, kl, reward"}, "not in the list"),
        (["advantages"], "not in the list"),
        ({"cause": "Advantages are wrong"}, "not in the list"),
    ],
)
def test_naming_several_causes_counts_as_none(grader: FakeGrader, diagnosis: object, reason: str):
    diagnose(grader, diagnosis)
    part = judged(grader).parts[0]
    assert part.credit == 0.0 and reason in part.reason


def test_a_missing_and_a_damaged_diagnosis_are_told_apart(tmp_path: Path):
    path = tmp_path / "output" / "diagnosis.json"
    path.parent.mkdir()
    assert "no output/diagnosis.json" in judge_diagnosis(path, "kl").reason
    path.write_text("{")
    assert "not JSON" in judge_diagnosis(path, "kl").reason


def test_a_larger_budget_is_put_back_and_does_not_pass(grader: FakeGrader):
    diagnose(grader, {"cause": "advantages"})
    repair(grader)
    (pipeline_of(grader) / BUDGET).write_text('{"steps": 4000, "prompts_per_step": 24, "group_size": 8}')
    verdict = judged(grader)
    assert not verdict.passed
    assert "budget.json was changed and put back" in verdict.parts[2].reason
    assert grader.ran[1][BUDGET] == variant_of(cast(Bench, grader.bench)).broken[BUDGET]


def test_steps_that_are_written_into_the_program_get_no_credit(grader: FakeGrader):
    diagnose(grader, {"cause": "advantages"})
    repair(grader)
    entry = pipeline_of(grader) / ENTRY
    entry.write_text(entry.read_text().replace('range(settings["steps"])', "range(400)  # trains longer"))
    verdict = judged(grader)
    assert (verdict.passed, verdict.credit) == (False, 0.5)
    assert "more than the budget allows: 400 s" in verdict.parts[1].reason


def test_another_program_with_the_same_gain_does_not_pass_and_says_so(grader: FakeGrader):
    diagnose(grader, {"cause": "advantages"})
    repair(grader)
    entry = pipeline_of(grader) / ENTRY
    entry.write_text(entry.read_text() + "\n".join(f"trains({number})" for number in range(100)))
    verdict = judged(grader)
    assert (verdict.passed, verdict.credit) == (False, 1.0)
    assert "another program" in verdict.parts[2].reason


@pytest.mark.parametrize("slowness", [{"repaired": 9.0}, {"repaired": 9.0, "known-again": 4.0, "judged-again": 9.0}])
def test_a_repair_that_ran_on_a_busy_machine_passes(grader: FakeGrader, slowness: dict[str, float]):
    diagnose(grader, {"cause": "advantages"})
    repair(grader)
    grader.slowness = slowness
    assert judged(grader).passed


def test_a_pipeline_of_empty_lines_is_compared_line_by_line(grader: FakeGrader):
    (pipeline_of(grader) / ENTRY).write_text("\n" * 60_000)
    assert "another program" in judged(grader).parts[2].reason


def test_a_pipeline_that_never_ends_gets_no_credit_for_the_repair(grader: FakeGrader):
    diagnose(grader, {"cause": "advantages"})
    (pipeline_of(grader) / ENTRY).write_text("while True: pass  # never ends")
    verdict = judged(grader)
    assert not verdict.passed and verdict.credit == 0.5
    assert "did not end" in verdict.parts[1].reason


def test_settings_changed_beside_the_fault_are_told(grader: FakeGrader):
    settings = json.loads((pipeline_of(grader) / CONFIG).read_text())
    (pipeline_of(grader) / CONFIG).write_text(json.dumps({**settings, "clip_range": 9}))
    assert "settings changed beside the fault: clip_range" in judged(grader).parts[2].reason


def test_the_run_with_the_fault_is_made_once_for_an_installation(grader: FakeGrader, tmp_path: Path):
    bench = cast(Bench, grader.bench)
    assert (pipeline_of(grader) / "logs" / "train.jsonl").read_bytes()
    DebugTraining().prepare(dataclasses.replace(bench, workspace=tmp_path / "second"))
    assert len(grader.ran) == 1


def test_a_fault_that_leaves_every_weight_as_it_is_can_be_given_out_once_and_again(grader: FakeGrader, tmp_path: Path):
    bench, log = cast(Bench, grader.bench), b'{"step": 0, "learned_tokens": 0}\n'
    ran: list[Path] = []

    def changes_nothing(files: Mapping[str, bytes], folder: Path) -> ProgramRun:
        ran.append(folder)
        return ProgramRun(None, "its checkpoint is the base model, unchanged", 30.0, log)

    (tmp_path / "fresh").mkdir()
    still = dataclasses.replace(bench, cache=tmp_path / "fresh", run=changes_nothing)
    for name in ("fourth", "fifth"):
        DebugTraining().prepare(dataclasses.replace(still, workspace=tmp_path / name))
        assert (tmp_path / name / PIPELINE / "logs" / "train.jsonl").read_bytes() == log
    assert len(ran) == 1
    with pytest.raises(BrokenBench, match="no checkpoint"):  # a healthy pipeline has to change the model
        known_run(dataclasses.replace(still, cache=tmp_path), {ENTRY: b"healthy"}, "healthy")


def test_a_fault_of_the_machine_is_not_the_agents(grader: FakeGrader, tmp_path: Path):
    bench = cast(Bench, grader.bench)
    failing = dataclasses.replace(
        bench, workspace=tmp_path / "third", cache=tmp_path, run=lambda files, folder: ProgramRun(None, "killed", 0.0)
    )
    with pytest.raises(BrokenBench, match="killed"):
        DebugTraining().prepare(failing)
