"""The figures that `cards ground` prints beside its counts are those of the documentation."""

import re
from pathlib import Path

import pytest

from agent2.scorers.grounding.detectors import CONDUCT, DETECTORS
from agent2.scorers.grounding.measured import MEASURED, N_LABELLED, measured_class, recall_note, recall_text

DOCS = (Path(__file__).parents[3] / "docs" / "labels.md").read_text()


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row.name)
def test_the_figures_are_those_of_the_table_in_the_documentation(row):
    cells = [cell.strip() for line in DOCS.splitlines() if line.startswith(f"| `{row.name}` | `") for cell in
             line.strip("|").split("|")]  # fmt: skip
    n_labelled, n_detected, precision, recall = int(cells[2]), int(cells[3]), cells[4].split()[0], cells[5].split()[0]
    assert (row.n_labelled, row.n_detected) == (n_labelled, n_detected) and f"{N_LABELLED} rollouts" in DOCS
    assert f"{row.recall:.2f}" == recall
    assert precision == "-" if row.precision is None else precision == f"{row.precision:.2f}"


def test_every_measured_detector_exists_and_belongs_to_one_class():
    names = [name for row in MEASURED for name in row.detectors]
    assert len(set(names)) == len(names) and set(names) <= {*DETECTORS, *CONDUCT}


def test_no_finding_of_a_detector_that_misses_most_is_told_as_no_evidence():
    assert re.search(r"invented_fact 6 of 28 .*claimed_without_doing 1 of 8", recall_note([*DETECTORS]))
    assert recall_note(["repeated_call", "cascade"]) == ""
    assert (recall_text("claimed_action"), recall_text("cascade")) == ("1 of 8", "-")
    assert measured_class("cascade") is None
