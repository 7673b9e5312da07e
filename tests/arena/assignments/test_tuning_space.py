import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent2.arena.assignments.records import Bench, ProgramAnswer, ProgramRun
from agent2.arena.assignments.tuning_space import OTHER_AXES, STEP_SIZE, STEP_SIZES, WINDOW, draw_space
from agent2.arena.spec import AssignmentSpec
from agent2.errors import ConfigError
from agent2.records import Score

FIXED = {STEP_SIZE: [1e-3], "batch_size": [16.0], "momentum": [0.9], "label_smoothing": [0.0]}


def bench_of(seed: int = 0, secret: bytes = b"secret", space: dict[str, list[float]] | None = None) -> Bench:
    return Bench(
        cast(Any, SimpleNamespace(seed=seed)),
        AssignmentSpec(kind="tune", space=space),
        secret,
        12,
        Path("workspace"),
        Path("folder"),
        Path("cache"),
        lambda files, folder: ProgramRun(None, "not run", 0.0),
        lambda files, entry, folder: ProgramAnswer(b"", "not asked"),
        lambda files, entry, folder: ProgramAnswer(b"", "not called"),
        lambda item, files, folder: Score(None, "not looked at"),
    )


def test_a_trial_shows_a_window_of_the_step_sizes_in_a_unit_of_its_own():
    spaces = [draw_space(bench_of(seed)) for seed in range(40)]
    windows = {tuple(space.real(point)[STEP_SIZE] for point in space.points) for space in spaces}
    assert len(windows) == len(STEP_SIZES) - WINDOW + 1
    assert {value for window in windows for value in window} == set(STEP_SIZES)
    assert len({space.axes[STEP_SIZE] for space in spaces}) == len(spaces)


def test_seed_and_secret_draw_the_space_and_nothing_else_does():
    assert draw_space(bench_of(3)) == draw_space(bench_of(3))
    assert draw_space(bench_of(3)) != draw_space(bench_of(3, b"another"))


def test_every_point_is_found_again_and_the_default_is_the_first():
    space = draw_space(bench_of())
    assert [space.index_of(point) for point in space.points] == list(range(WINDOW * 8))
    assert space.index_of(space.default) == 0
    assert space.default == {STEP_SIZE: space.axes[STEP_SIZE][0], **{name: v[0] for name, v in OTHER_AXES.items()}}


def test_a_space_of_the_task_file_is_taken_as_it_stands():
    space = draw_space(bench_of(space={**FIXED, STEP_SIZE: [1e-3, 1e-4, 1e-3]}))
    assert space.axes[STEP_SIZE] == (1e-3, 1e-4) and space.real(space.points[1])[STEP_SIZE] == 1e-4


@pytest.mark.parametrize(
    ("space", "fault"),
    [
        (FIXED, "has 1 point; a search needs 2"),
        ({**FIXED, STEP_SIZE: [1e-3, 1e-3]}, "has 1 point"),
        ({**FIXED, STEP_SIZE: []}, "has 0 points"),
        ({**FIXED, STEP_SIZE: [n / 1000 for n in range(201)]}, "has 201 points"),
        ({}, "names no axis"),
        ({STEP_SIZE: [1e-3, 1e-2]}, "names step_size; give values of"),
        ({**FIXED, "depth": [1.0, 2.0]}, "give values of"),
        ({**FIXED, STEP_SIZE: [1e-3, float("nan")]}, "step_size is nan"),
        ({**FIXED, STEP_SIZE: [1e-3, -1.0]}, "step_size is -1.0"),
        ({**FIXED, "batch_size": [0.0, 16.0]}, "batch_size is 0.0"),
        ({**FIXED, "momentum": [0.9, 1.0]}, "momentum is 1.0"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space: dict[str, list[float]], fault: str):
    with pytest.raises(ConfigError, match=fault):
        draw_space(bench_of(space=space))


def test_a_budget_of_no_run_is_refused():
    with pytest.raises(ValueError, match="runs"):
        AssignmentSpec(kind="tune", runs=0)
    assert dataclasses.replace(bench_of(), spec=AssignmentSpec(kind="tune", runs=3)).spec.runs == 3
