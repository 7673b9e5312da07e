import math

import pytest

from agent2.arena.spec import SplitSizes
from agent2.arena.task_check import check_base
from agent2.arena.tasks import load_task
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from grading_builders import write_checkpoint


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.mark.slow
def test_a_base_model_is_held_against_the_ceiling_and_against_itself(tmp_path):
    task = load_task("arithmetic").model_copy(
        update={"n_items": SplitSizes(train=4, dev=2, test_public=4, test_private=60)}
    )
    progress = []
    headroom, noise = check_base(
        task,
        load_benchmark("arithmetic"),
        str(write_checkpoint(tmp_path / "model")),
        lambda done, total: progress.append((done, total)),
    )
    assert headroom.ok and "over 60 private items, 4 seeds, 0 missing, played now" in headroom.detail
    assert noise.ok and "from 4 draws per item" in noise.detail
    assert progress[-1] == (240, 240)


def test_a_model_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no such folder, and nothing is downloaded"):
        check_base(load_task("arithmetic"), load_benchmark("arithmetic"), "models/nothing")


@pytest.mark.slow
def test_a_base_that_solves_nothing_is_no_task_for_rl_and_that_is_said(tmp_path):
    task = load_task("arithmetic").model_copy(
        update={"n_items": SplitSizes(train=4, dev=2, test_public=4, test_private=60)}
    )
    untrained = str(write_checkpoint(tmp_path / "model"))
    headroom, noise = check_base(task, load_benchmark("arithmetic"), untrained)
    assert headroom.detail.startswith("0.000")
    assert headroom.ok and "solves 0% of its attempts: online RL has no reward to learn from" in headroom.warning
    assert noise.ok and "the band is over items alone" in noise.warning and "over items)" in noise.detail


@pytest.mark.slow
def test_a_band_that_is_too_wide_says_how_many_items_would_do():
    task = load_task("arithmetic").model_copy(
        update={"n_items": SplitSizes(train=4, dev=2, test_public=4, test_private=12)}
    )
    _, noise = check_base(task, load_benchmark("arithmetic"))
    assert not noise.ok and noise.value > 0.10
    n_needed = math.ceil(12 * (noise.value / 0.10) ** 2)
    assert f"at most ±10 resolve a gain: set n_items.test_private to about {n_needed}" in noise.detail
