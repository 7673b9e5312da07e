"""`benchmarks/published.py` on small folders in the layout of the published data: what is off is told, exit code 1."""

import io
import json
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "published.py"
SOLVED = [4] * 10 + [3] * 4 + [2] * 10 + [1] * 12 + [0] * 14
"""Successes of four, of 50 tasks: pass^1 to 4 are 0.42, 0.2733, 0.22 and 0.2."""


@pytest.fixture
def data(tmp_path):
    (tmp_path / "README.md").write_text(
        "# Data\n\n| folder | what |\n|---|---|\n| tau_bench | x |\n| humaneval, mbpp | y |\n| newcomer | z |\n"
    )
    (tmp_path / "tau_bench").mkdir()
    (tmp_path / "newcomer").mkdir()
    write(tmp_path, SOLVED)
    return tmp_path


def write(data, solved):
    rows = [{"task_id": task, "reward": float(n < count)} for task, count in enumerate(solved) for n in range(4)]
    (data / "tau_bench" / "gpt-4o-airline.json").write_text(json.dumps(rows))


def run(data, *arguments):
    """The script in this process: its imports take a second."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [str(SCRIPT), str(data), *arguments])
        patch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])  # as Python does; the script takes it away
        with pytest.raises(SystemExit) as exit_info:
            runpy.run_path(str(SCRIPT), run_name="__main__")
    return exit_info.value.code or 0, out.getvalue(), err.getvalue()


def test_numbers_that_are_as_published_exit_with_0_and_every_row_of_the_readme_is_told_of(data):
    code, out, err = run(data)
    assert code == 0, err
    assert "4 equal, 0 explained, 0 OFF" in out and "0 of 4 numbers are further" in out
    rows = {line.split()[0]: line for line in out[out.index("row of README") :].splitlines() if line}
    assert all("not served" in rows[name] and "is not there" in rows[name] for name in ("humaneval", "mbpp"))
    assert "nothing here handles it" in rows["newcomer"]


def test_a_number_that_is_off_exits_with_1(data):
    write(data, [3, *SOLVED[1:]])
    code, out, _ = run(data)
    assert code == 1 and "0 equal, 0 explained, 4 OFF" in out
    assert [line.endswith("  OFF") for line in out.splitlines() if "pass^" in line] == [True] * 4


def test_a_source_that_cannot_be_computed_is_off_and_the_others_are_still_told(data):
    (data / "tau_bench" / "gpt-4o-airline.json").write_text("{")
    code, out, _ = run(data)
    assert code == 1 and "JSONDecodeError" in out and "1 OFF" in out


def test_a_folder_that_is_none_is_refused(tmp_path):
    code, _, err = run(tmp_path / "nowhere")
    assert code == 2 and "not a directory" in err
