"""`benchmarks/published.py` on small files in the layout of the official ones."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "published.py"


def published(folder, *more):
    return subprocess.run([sys.executable, str(SCRIPT), str(folder), *more], capture_output=True, text=True)


def airline(folder, solved):
    """50 tasks with four trials each; solved: how many of each task's trials."""
    rows = [
        {"task_id": task, "trial": trial, "reward": float(trial < n)}
        for task, n in enumerate(solved)
        for trial in range(4)
    ]
    (folder / "tau_bench").mkdir(parents=True)
    (folder / "tau_bench" / "gpt-4o-airline.json").write_text(json.dumps(rows))


def test_numbers_that_are_as_published_pass_and_what_is_not_there_is_listed(tmp_path):
    airline(tmp_path, [4] * 10 + [3] * 4 + [2] * 10 + [1] * 12 + [0] * 14)
    done = published(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass^1" in done.stdout and "OFF" not in done.stdout
    assert f"gsm8k: {tmp_path}/gsm8k is not there" in done.stdout


def test_a_number_that_is_not_as_published_fails(tmp_path):
    airline(tmp_path, [4] * 50)
    done = published(tmp_path, "--only", "tau_bench")
    assert done.returncode == 1
    assert "pass^4  OFF" in done.stdout
    assert "4 numbers are further" in done.stdout


def test_a_folder_that_is_none_is_refused(tmp_path):
    done = published(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "not a directory" in done.stderr
