"""Tests that need a GPU, the network or real agent systems run only when they are asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "runs"), [((), False), (("-m", "not slow"), False), (("-m", "agents"), True)])
def test_tests_of_real_agent_systems_run_only_when_asked_for(chosen, runs):
    command = [sys.executable, "-m", "pytest", "--collect-only", *chosen, "tests/agents"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=600)
    assert ("test_real_systems.py" in done.stdout) is runs, done.stdout + done.stderr
