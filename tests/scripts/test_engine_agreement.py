"""The script that compares engines with this process."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from card_builders import make_record

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "engine_agreement.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("engine_agreement", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def played(script, *names, n_restarts=0):
    return script.Played([make_record(name, 0) for name in names], 1.0, 1.0, n_restarts)


def test_a_crash_that_loses_or_doubles_a_rollout_or_never_came_is_no_success(script, capsys):
    whole = played(script, "a", "b")
    assert script.report_crash("vllm", whole, played(script, "a", "b", n_restarts=1), 2)
    assert not script.report_crash("vllm", whole, played(script, "a", n_restarts=1), 2)
    assert not script.report_crash("vllm", whole, played(script, "a", "b", "b", n_restarts=1), 2)
    assert not script.report_crash("vllm", whole, played(script, "a", "b"), 2)
    lines = capsys.readouterr().out.splitlines()
    assert "0 lost, 0 doubled, 1 restarts, 2 of 2 answers" in lines[0]
    assert "1 lost, 0 doubled" in lines[1] and "0 lost, 1 doubled" in lines[2]


def test_the_interval_of_a_difference_that_is_there_leaves_0_out(script):
    ours = np.array([[0.0, 1.0] * 20, [1.0, 0.0] * 20])
    assert script.interval(ours, ours) == (0.0, 0.0, 0.0)
    delta, low, high = script.interval(ours, np.array([[1.0, 0.0] * 20, [1.0, 1.0] * 10 + [0.0, 0.0] * 10]))
    assert low <= 0 <= high and low < delta < high
    delta, low, _ = script.interval(ours, np.ones_like(ours))
    assert delta == 50 and low > 0, "every item differs alike"
