"""What collects the results of programs."""

import os
import signal
import subprocess

import pytest

from agent2.scorers.program_runner import ENDED, TIMEOUT, collect


@pytest.mark.parametrize(
    ("before", "lines", "reason"), [(b'["value", "1"]\n', [["value", "1"]], ENDED), (b"", [], TIMEOUT)]
)
def test_a_result_that_is_there_when_the_monitor_looks_came_in_time(before, lines, reason):
    """However late it looks: it may be the monitor that was held up."""
    header = {"n_lines": 1, "limit_s": 0.0, "max_line_bytes": 1000, "max_bytes": 1000, "is_per_line": False}
    result_end, worker_end = os.pipe()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as worker:
        os.write(worker_end, before)
        collected = collect(worker.pid, result_end, -1, header)
    os.close(result_end)
    os.close(worker_end)
    assert (collected["lines"], collected["reason"], worker.returncode) == (lines, reason, -signal.SIGKILL)
