"""A stranger's folder is looked at by a contained process: what breaks it is refused, and nothing else happens."""

import os
import shutil
from dataclasses import replace
from itertools import count

import pytest

from agent2.arena.grader.submission import Admission, ContainedAdmission, SnapshotLimits, admit, take_snapshot
from agent2.errors import SandboxError, SubmissionError
from agent2.models.checkpoint import inspect_checkpoint
from grading_builders import write_checkpoint

pytestmark = pytest.mark.slow  # starts processes


@pytest.fixture
def copied(trial, base):
    """Makes a snapshot of a model whose files were changed by a function."""

    numbers = count(1)

    def copy(change=lambda folder: None):
        folder = trial.workspace / "output" / "model"
        shutil.rmtree(folder, ignore_errors=True)
        change(write_checkpoint(folder, seed=1))
        info = take_snapshot(trial.workspace, "output/model", trial.snapshot(next(numbers)), SnapshotLimits())
        return info, inspect_checkpoint(base)

    return copy


def test_the_contained_answer_is_the_same(copied):
    snapshot, base = copied(lambda folder: (folder / "vocab.txt").write_text("x"))
    check = ContainedAdmission()
    assert check(snapshot, base, "output/model") == admit(snapshot, base, "output/model")
    assert {path.name for path in snapshot.path.parent.iterdir()} == {snapshot.path.name}, "nothing is left behind"


def test_names_that_are_not_utf8_are_left_aside_and_told(copied):
    def add_names(folder):
        (folder / os.fsdecode(b"notes-\xff.txt")).write_text("x")
        (folder / os.fsdecode(b"logs-\xfe")).mkdir()

    snapshot, base = copied(add_names)
    admission = ContainedAdmission()(snapshot, base, "output/model")
    assert any("notes-" in remark and "udcff" in remark and "logs-" in remark for remark in admission.remarks)
    assert admission.files == ContainedAdmission()(copied()[0], base, "output/model").files, "the control"


def test_a_refusal_has_the_agents_name_of_the_folder(copied):
    snapshot, base = copied(lambda folder: (folder / "tokenizer.json").unlink())
    with pytest.raises(SubmissionError, match=r"^output/model: there is no tokenizer.json"):
        ContainedAdmission()(snapshot, base, "output/model")


def test_a_folder_that_takes_too_long_is_refused_and_a_program_that_fails_is_our_fault(copied):
    snapshot, base = copied()
    check = ContainedAdmission()
    assert check(snapshot, base, "output/model").files, "the control: with time enough it is taken"
    with pytest.raises(SubmissionError, match="could not be checked within 0 seconds"):
        ContainedAdmission(timeout_s=0.01)(replace(snapshot, size_bytes=0), base, "output/model")
    with pytest.raises(RuntimeError, match="the checking program failed"):
        check(replace(snapshot, size_bytes=0.5), base, "output/model")


def test_a_folder_that_takes_more_memory_than_there_is_is_refused(copied):
    def nest(folder):
        (folder / "generation_config.json").write_text('{"a": [' + ",".join(["[[[[]]]]"] * 100_000) + "]}")

    snapshot, base = copied(nest)
    answers = []
    for memory_gib in (0.06 + 0.02 * step for step in range(40)):  # how much Python itself takes differs
        try:
            answers.append(ContainedAdmission(memory_gib=memory_gib)(snapshot, base, "output/model"))
            break
        except (SubmissionError, RuntimeError, SandboxError) as error:
            answers.append(error)
    assert isinstance(answers[-1], Admission), "with memory enough it is taken"
    assert isinstance(answers[-2], SubmissionError) and "of memory" in str(answers[-2]), answers[-2]
