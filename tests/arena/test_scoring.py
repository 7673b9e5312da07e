import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent2.arena.evidence import SubmissionState
from agent2.arena.plan import resolve_trial
from agent2.arena.scoring import LoadedTask, card_key, choose_final, fetch_cached, store_cached
from agent2.arena.spec import ScoringMachine
from agent2.arena.tasks import load_task
from agent2.benchmarks import load_benchmark
from agent2.errors import Fault
from agent2.records import Split
from builders import make_score, make_submission


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make_card(folder):
    folder.mkdir()
    (folder / "card.json").write_text("{}")
    return folder


def test_the_best_public_score_wins_and_of_equal_ones_the_earlier():
    submissions = [make_submission(1, score=0.4), make_submission(2, score=0.6), make_submission(3, score=0.6)]
    assert choose_final(submissions, make_score(0.3)).number == 2


@pytest.mark.parametrize("score", [0.3, 0.1, 0.0])
def test_a_submission_that_does_not_beat_the_base_is_not_final(score):
    assert choose_final([make_submission(1, score=score)], make_score(0.3)) is None


def test_a_missing_score_is_never_final_even_when_the_base_scores_nothing():
    failed = replace(make_submission(1, score=None), state=SubmissionState.FAILED, fault=Fault.INFRASTRUCTURE)
    assert choose_final([failed], make_score(0.0)) is None
    assert choose_final([], make_score(0.0)) is None


def test_a_card_is_cached_once_and_fetched_over_what_an_interrupted_evaluation_left(home, tmp_path):
    card = make_card(tmp_path / "card")
    assert not fetch_cached("key", tmp_path / "copy")
    store_cached("key", card)
    store_cached("key", card)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "half").write_text("torn")
    assert fetch_cached("key", tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["card.json"]
    assert [path.name for path in (home / "baselines").iterdir()] == ["key"]


def test_a_draft_that_a_killed_harness_with_our_process_id_left_is_no_obstacle(home, tmp_path):
    (home / "baselines" / f".key.{os.getpid()}").mkdir(parents=True)
    store_cached("key", make_card(tmp_path / "card"))
    assert fetch_cached("key", tmp_path / "copy")


def test_a_card_of_another_precision_or_device_is_another_card():
    loaded = LoadedTask(load_task("arithmetic"), load_benchmark("arithmetic"), b"secret")
    base = SimpleNamespace(content_digest="a" * 64)
    machines = [ScoringMachine(), ScoringMachine(dtype="bfloat16"), ScoringMachine(gpu=0), ScoringMachine(gpu=1)]
    keys = [card_key(loaded, base, Split.TEST_PUBLIC, 1, machine) for machine in machines]
    assert keys[0] == card_key(loaded, base, Split.TEST_PUBLIC, 1)
    assert len(set(keys)) == 3 and keys[2] == keys[3]


def test_the_machine_that_scores_is_chosen_with_the_trial():
    config = resolve_trial(
        "arithmetic", "nop", 0, sandbox="none", overrides=["scoring.gpu=1", "scoring.dtype=bfloat16"]
    )
    assert config.scoring == ScoringMachine(gpu=1, dtype="bfloat16")
    assert (config.scoring.device, config.scoring.gpus) == ("cuda", (1,))
