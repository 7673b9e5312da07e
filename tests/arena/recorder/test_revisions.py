import os

import pytest
from dulwich.repo import Repo

from agent2.arena.eventlog import EventLog, read_events
from agent2.arena.recorder.revisions import RevisionLimits, RevisionRecorder


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def recorder(tmp_path, workspace):
    return RevisionRecorder(workspace, tmp_path / "revisions.git", EventLog(tmp_path / "revisions.jsonl"))


def blob(tmp_path, revision, *path):
    repo = Repo(str(tmp_path / "revisions.git"))
    entry = repo[repo[revision.encode()].tree]
    for part in path:
        entry = repo[entry[part.encode()][1]]
    return entry.data


def test_an_empty_workspace_has_no_revision(recorder):
    assert recorder.capture() is None


def test_a_change_makes_a_revision_and_no_change_makes_none(tmp_path, workspace, recorder):
    (workspace / "train.py").write_text("a")
    first = recorder.capture()
    assert recorder.capture() == first
    (workspace / "train.py").write_text("b")
    second = recorder.capture()
    assert second != first
    assert blob(tmp_path, first, "train.py") == b"a"
    assert blob(tmp_path, second, "train.py") == b"b"
    assert [row["id"] for row in read_events(tmp_path / "revisions.jsonl").rows] == [first, second]


def test_a_submission_is_linked_even_when_nothing_changed(tmp_path, workspace, recorder):
    (workspace / "train.py").write_text("a")
    revision = recorder.capture()
    assert recorder.capture(submission=3) == revision
    rows = read_events(tmp_path / "revisions.jsonl").rows
    assert [(row["id"], row["submission"]) for row in rows] == [(revision, None), (revision, 3)]


def test_a_nested_git_folder_and_ignore_file_hide_nothing(tmp_path, workspace, recorder):
    (workspace / "code" / ".git").mkdir(parents=True)
    (workspace / "code" / ".git" / "config").write_text("hidden")
    (workspace / ".gitignore").write_text("*")
    (workspace / "code" / "train.py").write_text("x")
    revision = recorder.capture()
    assert blob(tmp_path, revision, "code", "train.py") == b"x"
    assert blob(tmp_path, revision, "code", ".git", "config") == b"hidden"


def test_binary_and_given_files_are_left_out(tmp_path, workspace, recorder):
    (workspace / "data").mkdir()
    (workspace / "data" / "train.jsonl").write_text("given")
    (workspace / "model.bin").write_bytes(b"\0\1")
    assert recorder.capture() is None


def test_a_recorder_opened_again_goes_on_from_the_last_revision(tmp_path, workspace, recorder):
    (workspace / "train.py").write_text("a")
    first = recorder.capture()
    again = RevisionRecorder(workspace, tmp_path / "revisions.git", EventLog(tmp_path / "revisions.jsonl"))
    assert again.capture() == first


def test_names_that_only_look_alike_are_kept_apart(workspace, recorder):
    root = os.fsencode(workspace)
    with open(root + b"/a\xff", "w") as file:
        file.write("raw")
    (workspace / "a\\xff").mkdir()
    (workspace / "a\\xff" / "x.py").write_text("x")
    (workspace / "a\\udcff").mkdir()
    (workspace / "a\\udcff" / "y.py").write_text("y")
    assert recorder.capture() is not None


@pytest.mark.parametrize("name", [".git", "...", "a.", "con", "a\nb", "-rf", "e\u0301", "\u202egnp.py"])
def test_odd_names_are_recorded(tmp_path, workspace, recorder, name):
    (workspace / name).mkdir()
    (workspace / name / name).write_text("x")
    assert blob(tmp_path, recorder.capture(), name, name) == b"x"


def test_a_revision_that_left_files_out_says_so(tmp_path, workspace):
    log = EventLog(tmp_path / "revisions.jsonl")
    recorder = RevisionRecorder(workspace, tmp_path / "revisions.git", log, RevisionLimits(revision_bytes=250))
    for number in range(5):
        (workspace / f"{number}.py").write_text("x" * 100)
    recorder.capture()
    for number in range(1, 5):
        (workspace / f"{number}.py").unlink()
    recorder.capture()
    assert [row["is_complete"] for row in read_events(tmp_path / "revisions.jsonl").rows] == [False, True]


def test_a_repository_whose_making_was_cut_short_is_made_again(tmp_path, workspace):
    (tmp_path / "revisions.git").mkdir()
    (workspace / "train.py").write_text("a")
    recorder = RevisionRecorder(workspace, tmp_path / "revisions.git", EventLog(tmp_path / "revisions.jsonl"))
    assert recorder.capture() is not None


def test_locks_of_a_killed_harness_stop_nothing(tmp_path, workspace, recorder):
    (workspace / "train.py").write_text("a")
    first = recorder.capture()
    for lock in ("HEAD.lock", "refs/heads/main.lock"):
        (tmp_path / "revisions.git" / lock).write_text("")
    (workspace / "train.py").write_text("b")
    again = RevisionRecorder(workspace, tmp_path / "revisions.git", EventLog(tmp_path / "revisions.jsonl"))
    assert again.capture() != first


def test_a_repository_that_is_full_keeps_what_it_has_and_says_so(tmp_path, workspace):
    log = EventLog(tmp_path / "revisions.jsonl")
    recorder = RevisionRecorder(workspace, tmp_path / "revisions.git", log, RevisionLimits(stored_bytes=100))
    (workspace / "train.py").write_text("a" * 60)
    first = recorder.capture()
    (workspace / "train.py").write_text("b" * 60)
    assert recorder.capture() == first
    assert recorder.capture(submission=1) == first
    rows = read_events(tmp_path / "revisions.jsonl").rows
    assert [(row["id"], row["submission"], row["is_complete"]) for row in rows] == [
        (first, None, True),
        (first, 1, False),
    ]
