from pathlib import Path

import pytest

from agent2.arena.assignments import HERE, ORACLE, answers_hidden
from agent2.sandbox.backends import Contained, find_sandbox, run_contained


@pytest.mark.slow
def test_a_program_in_the_sandbox_sees_neither_the_healthy_pipeline_nor_the_oracle(tmp_path: Path):
    folders = [str(HERE), str(HERE.parent / "agents" / ORACLE)]
    program = f"import os; print([os.listdir(folder) for folder in {folders}])"
    request = Contained(
        ("python", "-c", program), tmp_path / "scratch", tmp_path / "log", mounts=answers_hidden(tmp_path)
    )
    ended = run_contained(request, find_sandbox(), timeout_s=300)
    assert ended.stdout.strip() == b"[[], []]"
