"""An installation of its own for each test of executors."""

import pytest

from agent2 import installation


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    installation.secret()
    return installation.home()
