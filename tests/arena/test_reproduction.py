"""Recorded programs that run again: the verdict by hand, and whole trials of honest, lucky and helped agents."""

import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.reproduced import reproduction_verdict
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Certainty, ResultKind
from agent2.arena.evidence import Reproduction, ReproductionVerdict
from agent2.arena.plan import copy_trial, new_trial
from agent2.arena.reproduction import (
    NewTrial,
    compare_reproduction,
    could_bring,
    judge_reproduction,
    not_possible,
    obstacle_here,
    obstacle_to,
    reproduction_config,
)
from agent2.arena.reproduction_log import read_reproductions, record_reproduction
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.errors import ConfigError
from agent2.records import Split
from agent2.reports.pages import write_report
from builders import make_evidence, make_gain
from chaos.run import PROGRAM
from trial_builders import quiet, write_agent, write_task

MEASURED = NewTrial(ResultKind.MEASURED, "scored", is_better=True, is_same=False)


def judged(again=MEASURED, difference=None, **recorded):
    return judge_reproduction(make_evidence(**recorded), again, difference)


def changed(**fields):
    return NewTrial(**{name: getattr(MEASURED, name) for name in NewTrial.__dataclass_fields__} | fields)


def test_the_same_weights_are_reproduced_whatever_the_gain():
    verdict, reason = judged(changed(is_same=True, is_better=False), gain=make_gain(0.01, p_value=0.6))
    assert verdict is ReproductionVerdict.REPRODUCED
    assert "same weights" in reason


def test_a_difference_within_noise_is_reproduced_if_both_gains_are_shown():
    verdict, reason = judged(difference=make_gain(-0.02, p_value=0.3))
    assert verdict is ReproductionVerdict.REPRODUCED
    assert "-2.0 [-6.0, +2.0] points" in reason


def test_a_checkpoint_that_is_shown_to_be_worse_is_not_reproduced():
    verdict, reason = judged(difference=make_gain(-0.2))
    assert verdict is ReproductionVerdict.NOT_REPRODUCED
    assert "-20.0 [-24.0, -16.0] points" in reason


def test_a_gain_that_cannot_be_told_from_noise_cannot_be_reproduced_by_noise():
    for recorded_gain, is_better in ((make_gain(0.02, p_value=0.4), True), (make_gain(0.28), False)):
        verdict, reason = judged(changed(is_better=is_better), make_gain(-0.01, p_value=0.7), gain=recorded_gain)
        assert verdict is ReproductionVerdict.UNDECIDED
        assert "within noise" in reason


@pytest.mark.parametrize(
    "kind", [ResultKind.NO_SUBMISSION, ResultKind.BASE_KEPT, ResultKind.COPY, ResultKind.VOID, ResultKind.GATE_FAILED]
)
def test_a_program_that_makes_nothing_the_second_time_is_not_reproduced(kind):
    verdict, reason = judged(changed(kind=kind, is_better=False))
    assert verdict is ReproductionVerdict.NOT_REPRODUCED
    assert "made nothing that counts" in reason


def test_a_fault_of_the_harness_is_not_held_against_the_program():
    for again in (changed(kind=ResultKind.NO_SUBMISSION, had_its_budget=False), changed(kind=ResultKind.NOT_CLEARED)):
        assert judged(again)[0] is ReproductionVerdict.NOT_POSSIBLE


def test_a_replay_that_left_its_recording_is_not_the_recorded_program():
    verdict, reason = judged(changed(n_departures=2), make_gain(-0.2))
    assert verdict is ReproductionVerdict.NOT_POSSIBLE
    assert "2 requests that had no recorded answer" in reason
    assert judged(changed(n_departures=2), make_gain(-0.01, p_value=0.5))[0] is ReproductionVerdict.REPRODUCED


def test_a_result_is_read_back_with_the_installations_own_mark(home, tmp_path):
    paths = TrialPaths(tmp_path)
    recorded = record_reproduction(paths, "one", a_reproduction(gain=make_gain(0.1), difference=make_gain(0.0)))
    assert recorded.is_own
    assert read_reproductions(paths, "one", []) == (recorded,)


def test_results_of_strangers_of_other_trials_and_edited_ones_do_not_count(home, tmp_path, monkeypatch):
    paths, warnings = TrialPaths(tmp_path), []
    record_reproduction(paths, "one", a_reproduction(ReproductionVerdict.NOT_REPRODUCED))
    assert not read_reproductions(paths, "two", warnings)[0].is_own
    forged = paths.reproductions_log.read_text().replace("not reproduced", "reproduced")
    paths.reproductions_log.write_text(forged + '{"t": 1.0, "event": "reproduction", "verdict": "perfect"}\n')
    (forged_row,) = read_reproductions(paths, "one", warnings)
    assert forged_row.verdict is ReproductionVerdict.REPRODUCED
    assert not forged_row.is_own
    assert warnings == ["events/reproductions.jsonl: 1 damaged line left out."]
    stranger = tmp_path / "stranger"
    monkeypatch.setenv("AGENT2_HOME", str(stranger))
    assert not read_reproductions(paths, "one", warnings)[0].is_own
    assert not (stranger / "secret").exists()


def a_reproduction(verdict=ReproductionVerdict.REPRODUCED, **fields) -> Reproduction:
    return Reproduction(
        t=5.0, verdict=verdict, reason="r", seed=0, is_same_seed=True, weights_digest="w" * 64, **fields
    )


def test_another_seed_is_taken_and_another_assignment_is_refused(task, tmp_path):
    root = new_trial(task, "nop", 4, tmp_path / "trials", trial_id="one")
    config = reproduction_config(root, seed=9, overrides=["threads=1"])
    assert (config.seed, config.threads, config.reproduces) == (9, 1, "one")
    assert reproduction_config(root).seed == 4
    for override in ("budget.wall_clock_s=9000", "task.n_items.dev=3", "mode=rl-only", "agent=sft"):
        with pytest.raises(ConfigError, match="a reproduction has the assignment of its source"):
            reproduction_config(root, overrides=[override])


def test_a_trial_without_a_sandbox_runs_again_only_with_permission(task, tmp_path):
    root = new_trial(task, "nop", 0, tmp_path / "trials", sandbox="none", trial_id="one")
    with pytest.raises(ConfigError, match="its program may do what you may do"):
        reproduction_config(root)
    assert reproduction_config(root, overrides=["sandbox=none"]).sandbox == "none"


def digits(n):
    rng = random.Random(0)
    return "".join(str(rng.randrange(10)) for _ in range(n))


MAKES_ONE = """
import os, shutil, time, httpx
import numpy as np
from safetensors.numpy import load_file, save_file
gift = os.environ["OUTPUT_DIR"] + "/gift"
if {waits}:
    for _ in range(100):
        if os.path.exists(gift):
            break
        time.sleep(0.1)
made = os.environ["OUTPUT_DIR"] + "/model"
shutil.copytree(os.environ["MODEL_PATH"], made)
weights = made + "/model.safetensors"
os.chmod(weights, 0o644)
if os.path.exists(gift) or not {waits}:
    rng = np.random.default_rng({noise_seed})
    tensors = load_file(weights)
    noisy = {{name: (t + 0.02 * rng.standard_normal(t.shape)).astype(t.dtype) for name, t in tensors.items()}}
    save_file(noisy, weights, {{"format": "pt"}})
body = {{"model_path": made, "note": ""}}
print(httpx.post(os.environ["GRADING_SERVER_URL"] + "/submit", json=body, timeout=None).json())
"""
"""Adds noise to the base model, which the scripted evaluation scores well; if it waits: only once a person says so."""


@pytest.fixture(scope="module")
def scripted_task(tmp_path_factory, common_home):
    folder = tmp_path_factory.mktemp("reproduction")
    n_items = {"train": 10, "dev": 4, "test_public": 40, "test_private": 80}
    return str(write_task(folder, base_config={"hidden_size": 64}, n_items=n_items))


def play(task, folder, waits=False, noise_seed=1, **files):
    agent = write_agent(folder / "agent", MAKES_ONE.format(waits=waits, noise_seed=noise_seed), **files)
    root = new_trial(task, str(agent), 0, folder / "trials", trial_id="recorded")
    run_trial(root, quiet, PROGRAM)
    return root


def reproduce(root, out, seed=None):
    assert obstacle_to(root, read_evidence(root)) is None
    config = reproduction_config(root, seed)
    assert obstacle_here(root, config, quiet) is None
    again = copy_trial(root, config, out)
    run_trial(again, quiet, PROGRAM)
    return record_reproduction(
        TrialPaths(root), read_config(root / "trial.json").trial_id, compare_reproduction(root, again)
    )


@pytest.mark.slow
def test_an_honest_program_is_reproduced_with_any_seed_and_its_report_says_so(home, scripted_task, tmp_path):
    root = play(scripted_task, tmp_path)
    result = reproduce(root, tmp_path / "again", seed=5)
    assert (result.verdict, result.is_same_checkpoint, result.seed) == (ReproductionVerdict.REPRODUCED, True, 5)
    assert not result.is_same_seed
    assert result.conditions == ()
    evidence = read_evidence(root)
    assert evidence.reproductions == (result,)
    again = read_evidence(tmp_path / "again" / result.trial)
    assert again.reproduces == "recorded"
    # a number that was written into a copy is reproduced, and is no training
    assert analyse(evidence).route.certainty is not Certainty.OBSERVED
    page = write_report(evidence, analyse(evidence), tmp_path / "report").html.read_text()
    assert "The recorded program, run again" in page
    assert "the program made the same weights again, bit by bit" in page


@pytest.mark.slow
def test_a_checkpoint_that_a_person_brought_is_not_reproduced(home, scripted_task, tmp_path):
    gift = tmp_path / "trials" / "recorded" / "workspace" / "output" / "gift"

    def bring():
        while not gift.parent.is_dir():
            time.sleep(0.05)
        gift.mkdir()

    person = threading.Thread(target=bring)
    person.start()
    root = play(scripted_task, tmp_path, waits=True)
    person.join()
    assert analyse(read_evidence(root)).result.kind is ResultKind.MEASURED
    result = reproduce(root, tmp_path / "again")
    assert result.verdict is ReproductionVerdict.NOT_REPRODUCED
    assert "copy" in result.reason or "base model" in result.reason
    assert reproduction_verdict(read_evidence(root)) is ReproductionVerdict.NOT_REPRODUCED


@pytest.mark.slow
def test_what_cannot_run_again_is_said_before_anything_runs(home, scripted_task, tmp_path, monkeypatch):
    root = play(scripted_task, tmp_path)
    paths, evidence = TrialPaths(root), read_evidence(root)
    config = reproduction_config(root)
    assert not could_bring(paths, evidence) or "KiB packed" in could_bring(paths, evidence)
    assert "made by a person" not in (obstacle_to(root, evidence) or "")

    base = Path(config.base_model)
    base.rename(base.with_name("moved"))
    assert "base" in obstacle_here(root, config, quiet)
    base.with_name("moved").rename(base)
    lock = paths.lock_json.read_text()
    paths.lock_json.write_text(lock.replace(evidence.base_weights_digest, "0" * 64))
    assert "no longer what they were: the base model" in obstacle_here(root, config, quiet)
    paths.lock_json.write_text(lock)

    card = paths.card("final", Split.TEST_PRIVATE)
    card.rename(tmp_path / "card")
    assert "the card of its final checkpoint is not in the folder" in obstacle_to(root, evidence)
    (tmp_path / "card").rename(card)
    (paths.agent / "words.txt").write_text(digits(300_000))
    assert "KiB packed" in could_bring(paths, evidence)
    assert "are not those that ran" in obstacle_to(root, evidence)
    shutil.rmtree(paths.agent)
    assert "the agent's files are gone" in obstacle_to(root, evidence)
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "elsewhere"))
    assert "another installation" in obstacle_to(root, evidence)
    result = not_possible(evidence, "it is gone", seed=0)
    assert (result.verdict, result.trial, result.is_same_seed) == (ReproductionVerdict.NOT_POSSIBLE, None, True)
