"""An installation, a random base model and a small task, shared by the trials of one process."""

import pytest

from trial_builders import write_task


@pytest.fixture
def home(shared, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(shared / "home"))
    return shared / "home"


@pytest.fixture
def task(shared, home):
    if not (shared / "task.yaml").exists():
        write_task(shared)
    return str(shared / "task.yaml")
