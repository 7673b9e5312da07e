"""What fails beside others is run once more alone: passes only what passes then, and little enough."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "test_again.py"
TESTS = """
from pathlib import Path

def test_depends_on_chance():
    flag = Path(__file__).with_name("flag")
    was_there = flag.exists()
    flag.touch()
    assert was_there

def test_is_broken():
    assert False

def test_is_sound():
    assert True
"""


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("test_again", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_in(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def again(folder):
    command = [sys.executable, str(SCRIPT), "failures.txt"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture
def folder(tmp_path):
    """Tests of their own below the conftest of this repository."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "test_three.py").write_text(TESTS)
    return tmp_path


@pytest.mark.slow
def test_a_test_that_passes_alone_passes_and_is_named_and_one_that_fails_twice_fails(folder):
    assert pytest_in(folder, "-n", "2", "--failures", "failures.txt", "-k", "chance or sound").returncode == 1
    assert (folder / "failures.txt").read_text() == "test_three.py::test_depends_on_chance\n"
    ran = again(folder)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("test-again: test_three.py::test_depends_on_chance: passed alone")
    assert again(folder).returncode == 1  # the record of one run excuses nothing in another
    (folder / "flag").unlink()
    pytest_in(folder, "--failures", "failures.txt")
    ran = again(folder)
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1] == "test-again: test_three.py::test_is_broken: failed twice"


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ([], "no failed test is on record"),
        (["tests/test_x.py"], "tests/test_x.py was not collected"),
        ([f"tests/test_x.py::test_{n}" for n in range(4)], "4 tests failed, at most 3 are run again"),
    ],
)
def test_what_is_no_accident_of_the_load_is_not_run_again(script, tmp_path, capsys, failed, words):
    record = tmp_path / "failures.txt"
    record.write_text("".join(f"{test}\n" for test in failed))
    assert script.main([str(record)]) == 1
    assert words in capsys.readouterr().err


def test_few_failed_tests_are_run_again(script):
    assert script.refusal([f"tests/test_x.py::test_{n}" for n in range(3)]) is None
