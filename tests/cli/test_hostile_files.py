"""Each hostile file at each door of the command line: an error of one line, or left out; no wait, no traceback.

The controls are honest files at the same doors, symbolic links and pipes of the user among them.
"""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from cli_builders import run_agent2
from hostile_builders import HOSTILE, bounded


@pytest.fixture(autouse=True)
def short_wait(monkeypatch):
    """Half a minute at each door that takes pipes would be long for a test."""
    monkeypatch.setattr("agent2.foreign_files.PIPE_WAIT_S", 0.2)


DATA = "name: quiz\nversion: '1'\nprompt: '{question}'\nanswer: answer\nscorer: exact\nfiles: {test: test.jsonl}\n"
DOORS = {
    "trial": ("leaderboard", "given/trial.json"),
    "trial shown": ("show", "given/trial.json"),
    "published figures": ("leaderboard", "given/published.yaml"),
    "published scores": ("leaderboard", "given/scores.json"),
    "card": ("cards show", "given/card.json"),
    "card validated": ("cards validate", "given/card.json"),
    "report shown": ("show", "given.json"),
    "log": ("cards import", "given.json"),
    "log of lines": ("cards import", "given.jsonl"),
    "archive": ("cards import", "given.eval"),
    "trajectories": ("cards import --trajectories", "given.jsonl"),
    "training log": ("monitor", "given.jsonl"),
    "training table": ("monitor", "given.csv"),
    "training database": ("monitor", "given.db"),
    "W&B file": ("monitor", "given.wandb"),
    "benchmark": ("benchmarks check", "given/benchmark.yaml"),
    "data": ("benchmarks check", "given/test.jsonl"),
    "suite": ("suite check", "given.yaml"),
}


def command_of(door, root):
    """(words of the command line, file that is hostile)."""
    words, name = DOORS[door]
    target = root / name
    target.parent.mkdir(exist_ok=True)
    if door == "data":
        (target.parent / "benchmark.yaml").write_text(DATA)
    at = target.parent if target.parent != root else target
    return [*words.split(), f"./{at.relative_to(root)}", *(["out"] if "import" in words else [])], target


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.__name__)
@pytest.mark.parametrize("door", DOORS)
def test_a_hostile_file_is_refused_in_a_line_or_left_out(tmp_path, door, hostile):
    words, target = command_of(door, tmp_path)
    hostile(target)
    with bounded():
        ended = run_agent2(*words, home=tmp_path)
    assert ended.returncode in (0, 1, 2), ended
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "bug in agent2" not in ended.stderr
    assert ended.stderr.strip() or ended.stdout.strip(), "nothing is said about it"
    assert len(ended.stderr.strip().splitlines()) <= 3
    assert len(ended.stdout) + len(ended.stderr) < 20_000


def test_an_endless_view_in_a_training_database_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "given.db")) as connection:
        connection.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
            "SELECT id, 'r' AS run_name, id AS step, '{}' AS metrics FROM n"
        )
    with bounded():
        ended = run_agent2("monitor", "given.db", home=tmp_path)
    assert ended.returncode == 2
    assert "'metrics' is a view, a table is needed" in ended.stderr


# ---------------------------------------------------------------- controls: honest files at the same doors


def training_rows():
    return "".join(json.dumps({"step": step, "loss": 1.0, "reward": step % 7 / 7}) + "\n" for step in range(1, 30))


def test_a_training_log_is_read_through_a_link(tmp_path):
    (tmp_path / "real.jsonl").write_text(training_rows())
    (tmp_path / "log.jsonl").symlink_to("real.jsonl")
    with bounded():
        ended = run_agent2("monitor", "log.jsonl", home=tmp_path)
    assert ended.returncode in (0, 1), ended.stderr  # 1: a danger was raised, which only a log that was read can
    assert "report: " in ended.stdout


def test_data_are_read_through_a_link_that_the_user_allowed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "benchmark.yaml").write_text(DATA)
    (tmp_path / "real.jsonl").write_text(
        "".join(json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(8))
    )
    (mine / "test.jsonl").symlink_to("../real.jsonl")
    with bounded():
        refused = run_agent2("benchmarks", "show", "./mine", home=tmp_path)
        allowed = run_agent2("benchmarks", "allow", "./mine", home=tmp_path)
        ended = run_agent2("benchmarks", "show", "./mine", home=tmp_path)
    assert refused.returncode == 2 and "agent2 benchmarks allow mine/benchmark.yaml" in refused.stderr
    assert f"{tmp_path / 'real.jsonl'}" in "".join(allowed.stdout.split()), "folded where it is long"
    assert (allowed.returncode, ended.returncode) == (0, 0), ended.stderr


def test_trajectories_are_read_from_a_pipe_of_the_user(tmp_path):
    reader, writer = os.pipe()
    rows = [{"id": "a", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}]
    os.write(writer, "".join(json.dumps(row) + "\n" for row in rows).encode())
    os.close(writer)
    try:
        with bounded():
            ended = run_agent2("cards", "import", "--trajectories", f"/dev/fd/{reader}", "out", home=tmp_path)
    finally:
        os.close(reader)
    assert ended.returncode == 0, ended.stderr


def test_text_of_published_figures_neither_moves_the_cursor_nor_is_markup(tmp_path):
    hostile = r"\e[31mred\e]0;owned\a \u202etxt [bold]b[/bold] [/x]"
    rows = f'rows: [{{name: "n {hostile}", score: 50, note: "k {hostile}"}}]'
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "published.yaml").write_text(
        f'title: "t {hostile}"\nsource: "s {hostile}"\nnote: "o {hostile}"\n{rows}\n'
    )
    shown = run_agent2("leaderboard", "given", home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "t red txt [bold]b[/bold] [/x]" in shown.stdout
    texts = [shown.stdout]
    for kind in ("html", "csv", "markdown"):
        ended = run_agent2("leaderboard", "given", "--format", kind, "--out", f"board.{kind}", home=tmp_path)
        assert ended.returncode == 0, ended.stderr
        texts.append((tmp_path / f"board.{kind}").read_text())
    assert not any(sign in text for text in texts for sign in "\x1b\x07\u202e")


def test_names_of_files_neither_move_the_cursor_nor_stop_a_command(tmp_path):
    for name in (b"t\x1b[31mred", b"bad\xff", "\u202etxt".encode()):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        with open(os.path.join(folder, b"trial.json"), "w") as file:
            file.write("{")
        shown = run_agent2("show", os.fsdecode(name), home=tmp_path)
        board = run_agent2("leaderboard", os.fsdecode(name), home=tmp_path)
        assert (shown.returncode, board.returncode) == (2, 0), (shown, board)
        said = shown.stdout + shown.stderr + board.stdout + board.stderr
        assert not any(sign in said for sign in "\x1b\u202e\udcff")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("scorer: exact\nenvironment: ../mine.py:World\n", "mine.py:8: in reset: ZeroDivisionError"),
        ("scorer: ../mine.py:Broken\n", "could not be made: KeyError: 'gone' (mine.py:3)"),
    ],
)
def test_an_error_in_a_plug_in_of_the_user_is_theirs_with_file_and_line(tmp_path, keys, line):
    (tmp_path / "mine.py").write_text(
        "class Broken:\n    def __init__(self):\n        {}['gone']\n"
        "class World:\n    name = 'w'\n    version = '1'\n"
        "    def reset(self, *parts, **named):\n        1 / 0\n"
        "    def act(self, *parts):\n        pass\n    def state(self):\n        return {}\n"
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "benchmark.yaml").write_text(DATA.replace("scorer: exact\n", keys))
    rows = [json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(8)]
    (tmp_path / "mine" / "test.jsonl").write_text("".join(rows))
    ended = run_agent2("benchmarks", "check", "./mine", home=tmp_path)
    assert ended.returncode == 2
    assert line in ended.stderr and len(ended.stderr.strip().splitlines()) == 1
    assert "bug in agent2" not in ended.stderr and "Traceback" not in ended.stderr
