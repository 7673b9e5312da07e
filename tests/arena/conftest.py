"""An installation, a random base model and a small task, shared by the trials of one process."""

import pytest

from trial_builders import write_task


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """One installation and base model for the trials of all modules, so that base cards are made once."""
    return tmp_path_factory.mktemp("installation")


@pytest.fixture
def home(shared, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(shared / "home"))
    return shared / "home"


@pytest.fixture
def task(shared, home):
    if not (shared / "task.yaml").exists():
        write_task(shared)
    return str(shared / "task.yaml")
