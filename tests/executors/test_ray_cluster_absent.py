"""What a user without Ray is told, before anything starts."""

import sys

import pytest

from agent2.errors import ConfigError
from agent2.executors import open_executor
from agent2.executors.jobs import ExecutorSettings
from agent2.executors.start_node import node_command


@pytest.fixture(autouse=True)
def no_ray(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_the_executor_says_what_to_install(tmp_path):
    with pytest.raises(ConfigError, match=r"--executor ray: Ray is not installed; .*ray"):
        open_executor(ExecutorSettings("ray", "127.0.0.1:1"), tmp_path)


def test_a_node_says_what_to_install():
    with pytest.raises(ConfigError, match=r"agent2 node: Ray is not installed; .*ray"):
        node_command("head:6379", 1)
