import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import agent2
from agent2.files import atomic_write, lock_file, numbered_lines, remove_tree, scratch_folder, write_json, write_text
from hostile_builders import nest

SOURCE = Path(agent2.__file__).parent

ODD = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"
"""`str.splitlines` ends a line at each of these; JSON and CSV do not."""


@pytest.mark.parametrize("encode", [str, str.encode])
def test_only_a_line_feed_ends_a_line(encode):
    text = f"one{ODD}\r\n\n  \ntwo"
    assert list(numbered_lines(encode(text))) == [(1, encode(f"one{ODD}\r")), (4, encode("two"))]


def test_a_carriage_return_between_json_tokens_is_white_space():
    assert [json.loads(line) for _, line in numbered_lines(b'{"a":\r1}\n{"a": 2}\r\n')] == [{"a": 1}, {"a": 2}]


def test_rows_that_json_and_csv_writers_wrote_come_back():
    rows = [{"text": f"{mark}x"} for mark in ODD]
    written = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert [json.loads(line) for _, line in numbered_lines(written)] == rows
    table = io.StringIO(newline="")
    csv.writer(table).writerows([[row["text"]] for row in rows])
    assert len(list(numbered_lines(table.getvalue()))) == len(rows)


def test_a_file_is_replaced_whole_and_leaves_no_draft(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"score": 0.5})
    atomic_write(path, [b"[1,\n", b"2]\n"], durable=True)
    assert path.read_bytes() == b"[1,\n2]\n" and [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path):
    def parts():
        yield b"half of the new"
        raise RuntimeError("killed")

    path = tmp_path / "log"
    atomic_write(path, b"old")
    with pytest.raises(RuntimeError):
        atomic_write(path, parts())
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named_and_its_draft_is_not(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere" / "file"):
        with pytest.raises(OSError) as refused:
            atomic_write(path, b"new")
        assert (refused.value.filename, refused.value.filename2) == (str(path), None)


def test_writers_at_once_leave_one_whole_file(tmp_path):
    path = tmp_path / "file"
    texts = [str(n) * 100_000 for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(path, text), texts * 5))
    assert path.read_text() in texts and list(tmp_path.iterdir()) == [path]


def test_a_new_file_may_be_read_by_those_whom_the_process_allows(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_text("x")
    write_text(ours, "x")
    assert ours.stat().st_mode == plain.stat().st_mode


def test_only_one_function_of_the_package_writes_a_draft_beside_a_file():
    """Elsewhere folders, or files that grow line by line, are renamed into place."""
    streams = {"cards/writer.py", "cards/export.py"}
    folders = {"arena/grader/evaluator.py", "arena/recorder.py"}
    writers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(r"with_name\([^\n]*(\.tmp|\.draft)", path.read_text())
    }
    assert writers == {"files.py", *streams, *folders}


KILLED_WHILE_IT_STARTS_A_PROGRAM = """
import os, signal, sys, time
from agent2.files import lock_file
lock_file(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT))
if os.fork() == 0:
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lock_of_a_killed_process_is_had_once_the_program_that_it_was_starting_has_let_go_of_it(tmp_path):
    lets_go = tmp_path / "lets-go"
    command = [sys.executable, "-c", KILLED_WHILE_IT_STARTS_A_PROGRAM, str(tmp_path / "lock"), str(lets_go)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    descriptor = os.open(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        lock_file(descriptor, wait_s=0.0)
    threading.Timer(0.2, lets_go.touch).start()
    lock_file(descriptor, wait_s=300.0)
    os.close(descriptor)


def test_a_folder_is_removed_however_deep_its_folders_are_nested(tmp_path):
    with scratch_folder("program-", tmp_path) as folder:
        nest(folder, 1_200)  # deeper than Python recurses, and longer than a path may be
        (folder / "file").write_text("text")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_removed_with_links_and_closed_folders_in_it_and_what_links_lead_to_stays(tmp_path):
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    (folder / "closed" / "inner").mkdir(parents=True)
    kept.mkdir()
    (kept / "file").write_text("text")
    (folder / "link").symlink_to(kept)
    (folder / "closed" / "inner" / "link").symlink_to(kept / "file")
    (folder / "closed").chmod(0)
    remove_tree(folder)
    outer = tmp_path / "outer"
    outer.symlink_to(kept)
    remove_tree(outer)
    assert (list(tmp_path.iterdir()), (kept / "file").read_text()) == ([kept], "text")
    with pytest.raises(FileNotFoundError):
        remove_tree(folder)
