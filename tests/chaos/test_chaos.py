"""Five of the hundred kills of `make chaos`, and the proof that each kind of harm would be seen."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import run
from chaos.run import PROGRAM, accepted, look, prepare
from chaos.victims import Victim

pytestmark = pytest.mark.slow


def test_five_seeded_kills_lose_nothing_score_nothing_twice_and_change_no_result(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(run.__file__).parents[1])}
    command = [sys.executable, "-m", "chaos.run", "--kills", "5", "--keep", str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    for victim in Victim:
        assert f"\n{victim} " in ended.stdout
    assert "\n5 kills in" in ended.stdout


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT2_HOME", "set by prepare")
        yield prepare(tmp_path_factory.mktemp("chaos"))


@pytest.fixture
def trial(stage, tmp_path):
    """A copy of the undisturbed trial."""
    root = tmp_path / "trial"
    shutil.copytree(stage.folder / "trials" / "undisturbed", root, symlinks=True)
    return root


def change(root, statement):
    with sqlite3.connect(root / "grader.db") as database:
        database.execute(statement)


def test_an_undisturbed_trial_has_no_problems(stage, trial):
    assert PROGRAM.mounts[0].host.is_file()
    assert len(accepted(trial)) == len(stage.truth) and look(trial, stage, accepted(trial)) == {}


def test_a_lost_submission_is_seen(stage, trial):
    acknowledged = [*accepted(trial), (len(stage.truth) + 1, "output/model-1")]
    assert set(look(trial, stage, acknowledged)) == {"lost"}
    change(trial, "DELETE FROM scores WHERE submission = 2")
    change(trial, "UPDATE submissions SET state = 'accepted' WHERE number = 2")
    assert "lost" in look(trial, stage, accepted(trial))


def test_a_second_score_is_seen(stage, trial):
    change(trial, "CREATE TABLE copy AS SELECT * FROM scores")
    change(trial, "UPDATE copy SET split = 'again'")
    change(trial, "INSERT INTO scores SELECT * FROM copy")
    assert "twice" in look(trial, stage, accepted(trial))


def test_an_event_told_twice_is_seen(stage, trial):
    log = trial / "events" / "trial.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines, lines[-1]]))
    assert "twice" in look(trial, stage, accepted(trial))


def test_another_score_is_seen(stage, trial):
    change(trial, "UPDATE scores SET value = 0.987 WHERE submission = 1")
    assert "other_result" in look(trial, stage, accepted(trial))


def test_a_damaged_card_is_seen(stage, trial):
    rollouts = trial / "submissions" / "1" / "card" / "rollouts.parquet"
    data = bytearray(rollouts.read_bytes())
    data[len(data) // 2] ^= 1
    rollouts.write_bytes(data)
    assert "twice" in look(trial, stage, accepted(trial))
