from pathlib import Path
from typing import get_args

import pytest
import yaml

from agent2.contract.decision import decide
from agent2.contract.gates import EvidenceNeeds, GateSpec, RuledGate
from agent2.contract.report_file import read_report
from agent2.contract.suite_files import load_suite

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "decisions.md").read_text()


def rows(after):
    """Cells of the table that follows a heading or sentence."""
    lines = PAGE[PAGE.index(after) :].split("\n\n|", 1)[1].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_kind_of_gate_has_its_row():
    kinds = {gate.model_fields["kind"].default for gate in get_args(RuledGate)}
    assert {row[0].strip("`") for row in rows("## Gates")} == kinds
    assert len(get_args(get_args(GateSpec)[0])) == len(kinds) + 2, "evidence and release_evidence do not fire"


@pytest.mark.parametrize("row", rows("Try it on the reports"), ids=lambda row: row[0])
def test_the_example_reports_come_out_as_the_page_says(row):
    report, suite_name, decision = (cell.split("`")[1] for cell in row[:3])
    suite = load_suite(suite_name)
    found = decide(
        suite.metrics, suite.gates, read_report(ROOT / "examples" / "reports" / report, suite.metrics, suite.baseline)
    )
    assert found.release == decision
    assert ("human review" in row[2]) == (found.training_action.value == "pause_human_review")


def test_the_stated_defaults_of_the_evidence_gate_are_the_real_ones():
    needs = EvidenceNeeds()
    table = " ".join(" ".join(row) for row in rows("## The evidence gate"))
    assert (needs.min_items, needs.max_missing, needs.min_clean_share) == (50, 0.01, 0.95)
    assert (needs.max_clean_difference, needs.max_detectable, needs.needs_items) == (0.02, 0.15, False)
    for name in EvidenceNeeds.model_fields.keys() - {"assumed_discordance"}:
        assert f"`{name}`" in table


def test_the_example_of_a_report_is_one(tmp_path):
    text = PAGE.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "report.yaml"
    path.write_text(text)
    suite = load_suite("llm_core_regression_v1")
    evidence = read_report(path, suite.metrics, suite.baseline)
    assert evidence.metrics["gsm8k_exact_match"].paired is not None
    assert yaml.safe_load(text).keys() >= {"evidence", "private", "history", "training", "spot_check"}
