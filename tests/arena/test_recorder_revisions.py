import contextlib
import os
import threading
import time

import pytest
from dulwich.repo import Repo

from agent2.arena.recorder import MOST_CHANGES, RevisionLimits, RevisionRecorder, RevisionWatch
from agent2.arena.trial_folder import EventLog, read_events


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


def last_row(tmp_path):
    return read_events(tmp_path / "revisions.jsonl").rows[-1]


def test_code_that_is_too_large_or_packed_is_named_and_the_revision_is_not_complete(tmp_path, workspace, recorder):
    (workspace / "train.py").write_text("import big")
    recorder.capture()
    assert (last_row(tmp_path)["is_complete"], last_row(tmp_path)["not_kept"]) == (True, [])
    (workspace / "big.py").write_text("#" * 300_000)
    (workspace / "packed.zip").write_bytes(b"PK\x03\x04\0\0")
    (workspace / "model.safetensors").write_bytes(bytes(300_000))
    (workspace / "venv" / "site-packages").mkdir(parents=True)
    (workspace / "venv" / "site-packages" / "fast.so").write_bytes(b"\x7fELF\0")
    (workspace / "note.txt").write_text("x")
    recorder.capture()
    row = last_row(tmp_path)
    assert row["is_complete"] is False
    assert row["not_kept"] == ["big.py (300000 bytes)", "packed.zip (6 bytes)"]


def test_twelve_changes_half_a_second_apart_are_all_kept(tmp_path, workspace, recorder):
    """The kernel tells of each; looking every 60 s alone would keep the last one."""
    watch = RevisionWatch(workspace, recorder.capture, 60.0)
    try:
        replace(workspace / "train.py", "start")
        wait_for(lambda: (workspace / "early.py").write_text(str(time.time())) and texts(tmp_path))  # it has begun
        for number in range(12):
            replace(workspace / "train.py", f"version {number}")
            wait_for(lambda number=number: f"version {number}" in texts(tmp_path))
    finally:
        assert watch.stop() is None
    assert set(texts(tmp_path)) == {"start", *(f"version {number}" for number in range(12))}


def test_a_watch_without_news_goes_on_looking(tmp_path, workspace, recorder):
    (workspace / "train.py").write_text("x")
    watch = RevisionWatch(tmp_path / "nowhere", recorder.capture, 0.05)
    wait_for(lambda: texts(tmp_path) == ["x"])
    watch.stop()


def test_a_flood_of_names_is_not_held_in_memory_and_what_changes_after_it_is_kept(tmp_path, workspace, recorder):
    is_over, looks = threading.Event(), []

    def capture() -> None:
        looks.append(1)
        is_over.wait(600)  # a look that takes as long as the flood
        recorder.capture()

    watch = RevisionWatch(workspace, capture, 60.0)
    try:
        wait_for(lambda: (workspace / "train.py").write_text(str(time.time())) and looks)
        for number in range(MOST_CHANGES + 1_000):
            (workspace / f"{number}").touch()
            (workspace / f"{number}").unlink()
        is_over.set()
        wait_for(lambda: not is_watched())
        (workspace / "train.py").write_text("after it")
        wait_for(lambda: "after it" in texts(tmp_path))
    finally:
        is_over.set()
        assert watch.stop() is None


def is_watched() -> bool:
    """Whether this process holds a queue of changes of files."""
    links = []
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread closed it just now
            links.append(os.readlink(entry.path))
    return any("inotify" in link for link in links)


def replace(path, text):
    """Write a file at one stroke: a look in the middle would see an empty one."""
    draft = path.parent.with_name("draft")
    draft.write_text(text)
    draft.replace(path)


def texts(tmp_path):
    """What train.py held in each revision."""
    ids = [row["id"] for row in read_events(tmp_path / "revisions.jsonl").rows]
    return [blob(tmp_path, revision, "train.py").decode() for revision in ids]


def wait_for(holds):
    ends_at = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.02)
