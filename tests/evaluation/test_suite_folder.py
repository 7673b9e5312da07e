import subprocess
import sys
from dataclasses import replace

import pytest

from agent2.errors import ConfigError
from agent2.evaluation.suite_folder import IDENTITY_FILE, Identity, Side, owned_folder, read_identity

SIDES = {"baseline": Side("old", "1" * 64, "hf"), "checkpoint": Side("new", "2" * 64, "hf")}
OURS = Identity("s-v1.0", "d" * 64, "dev", "dev", 0, SIDES, None)


def test_a_new_folder_says_whose_it_is(tmp_path):
    with owned_folder(tmp_path / "a" / "b", OURS):
        assert read_identity(tmp_path / "a" / "b") == OURS
    with owned_folder(tmp_path / "a" / "b", OURS):
        pass


def test_a_folder_of_another_evaluation_is_left_as_it_was(tmp_path):
    with owned_folder(tmp_path / "e", OURS):
        pass
    before = (tmp_path / "e" / IDENTITY_FILE).read_bytes()
    another = replace(OURS, seed=1, sides={**SIDES, "checkpoint": Side("newer", "3" * 64, "hf")})
    with (
        pytest.raises(ConfigError, match=r"seed 0, not 1; sides checkpoint name new, not newer"),
        owned_folder(tmp_path / "e", another),
    ):
        pass
    assert [path.name for path in (tmp_path / "e").iterdir()] == [IDENTITY_FILE]
    assert (tmp_path / "e" / IDENTITY_FILE).read_bytes() == before


def test_a_folder_of_something_else_is_left_as_it_was(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds other files \(such as 'thesis.txt'\)"), owned_folder(tmp_path, OURS):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_kill_before_the_first_byte_leaves_a_folder_that_can_be_used(tmp_path):
    (tmp_path / IDENTITY_FILE).touch()
    with owned_folder(tmp_path, OURS):
        assert read_identity(tmp_path) == OURS


def test_a_damaged_identity_is_not_overwritten(tmp_path):
    (tmp_path / IDENTITY_FILE).write_text("{")
    with pytest.raises(ConfigError, match="is damaged"), owned_folder(tmp_path, OURS):
        pass


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "e").write_text("")
    with pytest.raises(ConfigError, match="is not a directory"), owned_folder(tmp_path / "e", OURS):
        pass


def test_two_processes_do_not_write_one_folder(tmp_path):
    refused = pytest.raises(ConfigError, match="another process is writing")
    with owned_folder(tmp_path / "e", OURS), refused, owned_folder(tmp_path / "e", OURS):
        pass


def test_the_lock_ends_with_its_process(tmp_path):
    program = f"""
import os, signal
from pathlib import Path
from agent2.evaluation.suite_folder import Identity, Side, owned_folder
sides = {{"baseline": Side("old", "1" * 64, "hf"), "checkpoint": Side("new", "2" * 64, "hf")}}
with owned_folder(Path({str(tmp_path / "e")!r}), Identity("s-v1.0", "d" * 64, "dev", "dev", 0, sides, None)):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == -9
    with owned_folder(tmp_path / "e", OURS):
        pass


def test_a_folder_without_an_evaluation_says_so(tmp_path):
    with pytest.raises(ConfigError, match="contains no evaluation"):
        read_identity(tmp_path)
