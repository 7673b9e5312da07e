"""A stranger's trial with a hostile file in the place of each of its own: shown, judged without it, or refused."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent2.arena.grader.store import read_submissions
from agent2.errors import ConfigError
from cli_builders import run_agent2
from hostile_builders import HOSTILE, bounded, pipe

STORED = Path(__file__).parents[1] / "stored"
FILES = [
    *("trial.json", "lock.json", "grader.db", "events/trial.jsonl", "events/processes.jsonl", "integrity.json"),
    *("agent.log", "agent/agent.yaml", "agent/main.py", "revisions.git", "submissions.json"),
]


@pytest.fixture
def trial(tmp_path):
    shutil.copytree(STORED / "trial", tmp_path / "trial")
    with closing(sqlite3.connect(tmp_path / "trial" / "grader.db")) as database:
        database.executescript((STORED / "trial" / "grader.sql").read_text())
        database.execute("PRAGMA user_version = 1")
    return tmp_path / "trial"


def replaced(target, hostile):
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    hostile(target)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
@pytest.mark.parametrize("name", FILES)
def test_a_trial_with_a_hostile_file_is_shown_or_refused_in_a_line(trial, tmp_path, name, hostile):
    replaced(trial / name, hostile)
    with bounded():
        ended = run_agent2("show", "./trial", home=tmp_path)
    assert ended.returncode in (0, 1, 2), ended
    assert "Traceback" not in ended.stdout + ended.stderr and "bug in agent2" not in ended.stderr
    assert ended.stderr.strip() or ended.stdout.strip()
    assert len(ended.stderr.strip().splitlines()) <= 5


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
@pytest.mark.parametrize("name", [name for name in FILES if name not in ("trial.json", "events/trial.jsonl")])
def test_the_report_of_a_finished_trial_with_a_hostile_file_is_written_or_refused_in_a_line(
    trial, tmp_path, name, hostile
):
    replaced(trial / name, hostile)
    with bounded():
        ended = run_agent2("resume", "./trial", home=tmp_path)
    assert ended.returncode in (0, 2), ended
    assert "Traceback" not in ended.stdout + ended.stderr and "bug in agent2" not in ended.stderr


@pytest.mark.parametrize("name", ["lock.json", "agent.log", "integrity.json", "agent/notes.txt"])
def test_sharing_a_trial_of_others_brings_no_file_of_this_machine_along(trial, tmp_path, name):
    (tmp_path / "private.txt").write_text("the private key")
    target = trial / name
    replaced(target, lambda path: path.symlink_to(tmp_path / "private.txt"))
    with bounded():
        run_agent2("share", "./trial", "shared", home=tmp_path)
    texts = [path.read_bytes() for path in (tmp_path / "shared").rglob("*") if path.is_file() and not path.is_symlink()]
    assert not any(b"the private key" in text for text in texts)


def test_sharing_a_trial_takes_only_prices_for_prices(trial, tmp_path):
    (tmp_path / "private.yaml").write_text("password: secret words\n")
    record = json.loads((trial / "trial.json").read_text())
    (trial / "trial.json").write_text(json.dumps(record | {"prices": str(tmp_path / "private.yaml")}))
    ended = run_agent2("share", "./trial", "shared", home=tmp_path)
    assert ended.returncode == 2 and "secret words" not in ended.stderr
    assert not (tmp_path / "shared").exists()


def test_a_pipe_in_a_folder_that_is_shared_is_refused(trial, tmp_path):
    replaced(trial / "agent" / "pipe", pipe)
    with bounded():
        ended = run_agent2("share", "./trial", "shared", home=tmp_path)
    assert ended.returncode == 2 and "is a named pipe" in ended.stderr, ended


def test_a_trial_that_is_sound_is_shown_and_shared(trial, tmp_path):
    with bounded():
        shown = run_agent2("show", "./trial", home=tmp_path)
        shared = run_agent2("share", "./trial", "shared", home=tmp_path)
    assert (shown.returncode, shared.returncode) == (0, 0), (shown, shared)
    assert (tmp_path / "shared" / "submissions.json").is_file()


def test_a_grader_record_with_an_endless_view_is_refused(trial):
    with closing(sqlite3.connect(trial / "grader.db")) as database:
        database.execute("ALTER TABLE scores RENAME TO kept")
        database.execute(
            "CREATE VIEW scores AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
            "SELECT id AS submission, 'test_public' AS split FROM n"
        )
    with bounded(), pytest.raises(ConfigError, match="'scores' is a view"):
        read_submissions(trial / "grader.db")


def test_a_grader_record_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "grader.db")
    with bounded(), pytest.raises(ConfigError, match="is a named pipe"):
        read_submissions(tmp_path / "grader.db")
