"""An installation, a random base model and a small task, shared by the trials of one process."""

import pytest

from trial_builders import write_task


@pytest.fixture
def home(common_home, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(common_home))
    return common_home


@pytest.fixture
def task(shared, home):
    if not (shared / "task.yaml").exists():
        write_task(shared)
    return str(shared / "task.yaml")
