"""A trial's folder, a base model, and graders over them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent2.arena.grader.evaluator import GraderSettings
from agent2.arena.grader.service import Grader
from agent2.arena.spec import Deadline
from agent2.arena.trial_folder import TrialPaths
from agent2.benchmarks import load_benchmark
from agent2.records import Item, Split
from grading_builders import SECRET, ScriptedEvaluation, write_checkpoint


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "base")


@pytest.fixture
def trial(tmp_path: Path) -> TrialPaths:
    paths = TrialPaths(tmp_path / "trial")
    (paths.workspace / "output").mkdir(parents=True)
    return paths


@pytest.fixture(scope="session")
def hidden_items() -> dict[Split, Sequence[Item]]:
    benchmark = load_benchmark("arithmetic")
    return {split: benchmark.items(split, 8, SECRET) for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE)}


@pytest.fixture
def make_grader(
    trial: TrialPaths, base: Path, hidden_items: dict[Split, Sequence[Item]]
) -> Iterator[Callable[..., Grader]]:
    """Graders over the trial's folder; all are stopped at the end."""
    graders: list[Grader] = []

    def make(evaluate: Any = None, on_submit: Any = None, **changes: Any) -> Grader:
        deadline = changes.pop("deadline", Deadline(1_000.0, 600.0, lambda: 1_100.0))
        settings = GraderSettings(trial, base, "arithmetic", hidden_items, deadline, **changes)
        graders.append(Grader(settings, evaluate or ScriptedEvaluation(), on_submit))
        return graders[-1]

    yield make
    for grader in graders:
        if not grader.is_stopped:
            grader.stop()
