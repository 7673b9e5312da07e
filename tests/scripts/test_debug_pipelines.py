"""The table of benchmarks/debug_pipelines.py: what counts as broken, repaired, and not repaired."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "debug_pipelines.py"
NOISE = 0.045


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("debug_pipelines_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = sys.modules["debug_pipelines_script"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["debug_pipelines_script"]


def cell(script: Any, gain: float | None) -> Any:
    return script.Cell(gain, gain, gain, 30.0, 60.0, "", "" if gain is not None else "it crashed", None, False)


def verdicts(script: Any, broken: float | None, naive: float | None, repaired: float | None) -> list[str]:
    players = zip(script.PLAYERS, (broken, naive, repaired), strict=True)
    cells = {player: cell(script, gain) for player, gain in players}
    line = script.row_of("kl", 0, cell(script, 0.15), NOISE, cells)
    return [part.strip() for part in line.strip("|").split("|")][-4:-1]


def test_a_cause_that_breaks_and_that_only_the_repair_mends_is_yes_three_times(script: Any):
    assert verdicts(script, -0.02, 0.03, 0.13) == ["yes", "yes", "yes"]
    assert verdicts(script, None, -0.2, 0.15) == ["yes", "yes", "yes"]


def test_a_broken_pipeline_that_gains_a_weak_repair_and_a_naive_success_are_told(script: Any):
    assert verdicts(script, 0.08, 0.03, 0.13) == ["NO", "yes", "yes"]
    assert verdicts(script, 0.0, 0.03, 0.11) == ["yes", "NO", "yes"]
    assert verdicts(script, 0.0, 0.13, 0.13) == ["yes", "yes", "NO"]


def test_what_was_not_run_is_a_dash(script: Any):
    line = script.row_of("kl", 0, cell(script, 0.15), NOISE, dict.fromkeys(script.PLAYERS))
    assert line == "| kl | 0 | +15.0 | 4.5 | - | - | - | - | - | - | - |"


def test_settings_that_no_program_reads_make_no_other_pipeline(script: Any):
    program = b'rate = settings["learning_rate"]'
    healthy = {"train.py": program, "config.json": b'{"learning_rate": 0.1}'}
    left_over = healthy | {"config.json": b'{"learning_rate": 0.1, "thoroughness": 0.3}'}
    changed = healthy | {"config.json": b'{"learning_rate": 0.2, "thoroughness": 0.3}'}
    assert script.as_read(left_over) == script.as_read(healthy) != script.as_read(changed)
