import sys
from pathlib import Path

import pytest

from agent2.arena.systems import find_interpreter, find_node
from agent2.errors import ConfigError


def write_program(folder, name, says):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_path(tmp_path, monkeypatch):
    """A PATH and a pyenv root with nothing but what a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path / "bin"


def test_our_own_interpreter_is_taken_if_it_is_new_enough(bare_path):
    interpreter = find_interpreter((3, 11), None, "tool")
    assert interpreter.version == ".".join(map(str, sys.version_info[:3]))
    assert interpreter.prefix == Path(sys.base_prefix).resolve()


def test_a_newer_one_is_found_on_path(bare_path):
    newer = write_program(bare_path, "python3.99", '[[3, 99, 1], "/nowhere", "x"]')
    with pytest.raises(ConfigError, match=r"needs Python 3\.99 or newer"):
        find_interpreter((3, 99), None, "tool")  # 3.99 is beyond the names that are looked for
    newer.rename(bare_path / "python3.15")
    assert find_interpreter((3, 15), None, "tool").version == "3.99.1"


def test_a_newer_one_is_found_below_pyenv(bare_path, tmp_path):
    (tmp_path / "pyenv" / "versions" / "3.77.0").mkdir(parents=True)
    write_program(tmp_path / "pyenv" / "versions" / "3.77.0" / "bin", "python", '[[3, 77, 0], "/nowhere", "x"]')
    assert find_interpreter((3, 77), None, "tool").version == "3.77.0"


def test_when_there_is_none_the_package_and_the_remedy_are_named(bare_path):
    with pytest.raises(ConfigError, match=r"tool needs Python 3\.66 or newer, and none was found.*--python PATH"):
        find_interpreter((3, 66), None, "tool")


def test_a_chosen_one_that_is_too_old_is_refused(tmp_path):
    old = write_program(tmp_path / "bin", "python", '[[3, 8, 0], "/nowhere", "x"]')
    with pytest.raises(ConfigError, match=r"is Python 3\.8\.0; tool needs 3\.12 or newer"):
        find_interpreter((3, 12), old, "tool")


@pytest.mark.parametrize("says", ["nonsense", "[]", '{"a": 1}'])
def test_a_chosen_one_that_is_no_python_is_refused(tmp_path, says):
    with pytest.raises(ConfigError, match="does not run as a Python"):
        find_interpreter((3, 12), write_program(tmp_path / "bin", "python", says), "tool")


@pytest.mark.parametrize(
    ("says", "complaint"),
    [("v18.1.0", r"is version 18\.1\.0; install Node\.js 20\.0"), ("what", "does not print its version")],
)
def test_a_node_that_does_not_do_is_refused(bare_path, says, complaint):
    write_program(bare_path, "node", says)
    with pytest.raises(ConfigError, match=complaint):
        find_node((20, 0))


def test_node_is_found_or_its_absence_told(bare_path):
    with pytest.raises(ConfigError, match=r"node is not on PATH; install Node\.js 20\.0"):
        find_node((20, 0))
    assert find_node((20, 0)) if write_program(bare_path, "node", "v20.3.1") else None
