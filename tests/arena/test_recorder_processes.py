import os
import subprocess
import sys
import time

import pytest

from agent2.arena.evidence import MAX_COMMAND_CHARS
from agent2.arena.recorder import ProcessRecorder, Ticker
from agent2.arena.trial_folder import EventLog, read_events


def until(holds):
    ends_at = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_a_child_process_is_seen_with_its_command_and_written_when_it_ends(tmp_path):
    recorder = ProcessRecorder(os.getpid(), EventLog(tmp_path / "p.jsonl"))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        time.sleep(0.2)
        recorder.sample()
    finally:
        child.kill()
        child.wait()
    recorder.sample()
    recorder.stop()
    rows = [row for row in read_events(tmp_path / "p.jsonl").rows if row["pid"] == child.pid]
    assert len(rows) == 1
    assert rows[0]["command"][-1] == "import time; time.sleep(300)"
    assert rows[0]["max_rss_bytes"] > 0


def test_a_root_process_that_is_gone_is_no_error(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    recorder = ProcessRecorder(child.pid, EventLog(tmp_path / "p.jsonl"))
    recorder.sample()
    recorder.stop()
    assert read_events(tmp_path / "p.jsonl").rows == []


def test_a_ticker_calls_until_it_is_stopped():
    calls = []
    ticker = Ticker(lambda: calls.append(1), 0.01)
    until(lambda: len(calls) >= 2)
    assert ticker.stop() is None
    n_calls = len(calls)
    time.sleep(0.05)
    assert len(calls) == n_calls


def test_an_error_in_a_ticker_is_handed_over_and_does_not_end_it():
    calls = []

    def fail_once():
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("broken")

    ticker = Ticker(fail_once, 0.01)
    until(lambda: len(calls) > 1)
    error = ticker.stop()
    with pytest.raises(ValueError, match="broken"):
        raise error


def test_a_command_line_of_odd_bytes_or_great_length_is_recorded(tmp_path):
    recorder = ProcessRecorder(os.getpid(), EventLog(tmp_path / "p.jsonl"))
    program = [sys.executable, "-c", "import time; time.sleep(300)", b"\xff\xfe", *["x" * 100_000] * 10]
    child = subprocess.Popen(program)
    try:
        time.sleep(0.2)
        recorder.sample()
    finally:
        child.kill()
        child.wait()
    recorder.stop()
    (row,) = [row for row in read_events(tmp_path / "p.jsonl").rows if row["pid"] == child.pid]
    assert row["command"][3] == "\\udcff\\udcfe"
    assert sum(len(part) for part in row["command"]) <= MAX_COMMAND_CHARS
