"""The contract in an evaluation's folder."""

import os

import pytest

from agent2.contract.suite import Suite
from agent2.evaluation.stored_suite import write_suite
from suite_fakes import make_suite


@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ("mine", "../mine"),
        ("mine/quiz.py:Quiz", "../mine/quiz.py:Quiz"),
        ("out/mine", "./mine"),
        ("../../../elsewhere/mine", "./mine"),
        ("../../../elsewhere/quiz.py:Quiz", "./quiz.py:Quiz"),
    ],
)
def test_a_stored_suite_has_no_absolute_path(tmp_path, source, stored):
    here = tmp_path / "a" / "b" / "c"
    out = here / "out"
    out.mkdir(parents=True)
    suite = make_suite(tmp_path)
    first = suite.benchmarks[0].model_copy(update={"source": os.path.normpath(here / source)})
    suite = suite.model_copy(update={"benchmarks": [first, *suite.benchmarks[1:]]})
    write_suite(suite, out)
    written = Suite.model_validate_json((out / "suite.json").read_bytes())
    assert written.benchmarks[0].source == stored
    assert str(tmp_path) not in (out / "suite.json").read_text()
    assert written.digest == suite.digest, "the control: it is the same contract"
