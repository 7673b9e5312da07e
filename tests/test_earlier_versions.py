"""What earlier versions wrote is read to the same numbers (tests/stored, written by version 0.1 at commit daaba9d)."""

import json
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import SubmissionState
from agent2.arena.grader.store import Arrival, GraderStore, read_submissions
from agent2.cards.card import FORMAT
from agent2.cards.folder import load_card
from agent2.cards.reader import read_summary, validate_card
from agent2.cards.regrade import regrade
from agent2.cards.tables import write_anew
from agent2.contract.decision import decide
from agent2.contract.report_file import read_report
from agent2.errors import CardError
from agent2.evaluation.suite_plan import load_suite
from agent2.reports.sweep_pages import SweepReport
from agent2.stats.estimates import Estimate, PairedDifference
from agent2.stats.stored import UNRECORDED

STORED = Path(__file__).parent / "stored"
BASE_PUBLIC = Estimate(0.28, 0.2382514233970465, 0.32593398611004404, 400, 0, UNRECORDED)
SUBMITTED = Estimate(0.885, 0.850008455984224, 0.9126670773783676, 400, 0, UNRECORDED)
FINAL = Estimate(0.865, 0.8353232826996672, 0.8900326755603313, 600, 0, UNRECORDED)
GAIN = PairedDifference(
    Estimate(0.6116666666666667, 0.57, 0.6533333333333333, 600, 0, UNRECORDED), 1.1065373850395773e-99
)


@pytest.fixture
def trial(tmp_path):
    """A copy of the stored trial, its SQLite file made from the text."""
    shutil.copytree(STORED / "trial", tmp_path / "trial")
    database = sqlite3.connect(tmp_path / "trial" / "grader.db")
    database.executescript((STORED / "trial" / "grader.sql").read_text())
    database.execute("PRAGMA user_version = 1")  # a dump does not contain it
    database.close()
    return tmp_path / "trial"


def test_the_scores_of_an_earlier_trial_are_the_same_and_say_that_their_method_was_not_stored(trial):
    evidence = read_evidence(trial)
    assert evidence.base_public == BASE_PUBLIC
    assert (evidence.final_private, evidence.gain) == (FINAL, GAIN)
    assert [submission.score for submission in evidence.submissions] == [SUBMITTED]


def test_a_trial_of_an_earlier_version_is_resumed_and_later_scores_have_their_method(trial):
    store = GraderStore(trial / "grader.db")
    store.add(Arrival(2, 5.0, "output/model", "", None, weights_digest="d" * 64))
    later = Estimate(0.5, 0.4, 0.6, 400, 0, "Wilson")
    store.set_scored(2, later, 6.0, card="submissions/2/card", weights_digest="d" * 64, is_base_copy=False)
    store.close()
    records = read_submissions(trial / "grader.db")
    assert [record.score for record in records] == [SUBMITTED, later]
    assert {record.state for record in records} == {SubmissionState.SCORED}


def test_a_card_of_format_3_has_the_same_numbers_and_its_rollouts_reproduce_them():
    score = Estimate(
        0.3181818181818182, 0.09090909090909091, 0.5465909090909093, 11, 1, "bootstrap over items, 200 replicates"
    )
    assert validate_card(STORED / "card") == []
    assert load_card(STORED / "card").format == 3
    assert read_summary(STORED / "card").score == score
    assert regrade(STORED / "card").differs_from_stored == []


def test_a_card_of_format_3_that_is_written_again_keeps_its_numbers(tmp_path):
    write_anew(STORED / "card", tmp_path / "card")
    assert read_summary(tmp_path / "card") == read_summary(STORED / "card")
    assert (validate_card(tmp_path / "card"), load_card(tmp_path / "card").format) == ([], FORMAT)


def test_a_card_of_format_3_without_its_value_is_damaged_and_one_with_null_has_no_score(tmp_path):
    shutil.copytree(STORED / "card", tmp_path / "card")
    card = json.loads((STORED / "card" / "card.json").read_text())
    card["summary"] |= {"value": None, "low": None, "high": None}
    (tmp_path / "card" / "card.json").write_text(json.dumps(card))
    assert read_summary(tmp_path / "card").score is None
    del card["summary"]["value"]
    (tmp_path / "card" / "card.json").write_text(json.dumps(card))
    with pytest.raises(CardError, match="value"):
        read_summary(tmp_path / "card")


def test_a_report_of_an_earlier_version_has_the_same_pairs_and_decision():
    file = STORED / "evaluation" / "report.json"
    stored = json.loads(file.read_text())
    suite = load_suite("llm_core_regression_mini")
    evidence = read_report(file, suite.metrics)
    pairs = {name: metric.paired for name, metric in evidence.metrics.items() if metric.paired is not None}
    assert pairs.keys() == {name for name, metric in stored["evidence"].items() if "paired" in metric}
    for name, pair in pairs.items():
        flat = stored["evidence"][name]["paired"]
        assert (pair.change.value, pair.change.low, pair.change.high) == pytest.approx(
            (flat["delta"], flat["low"], flat["high"]), abs=1e-12
        )
        assert (pair.change.n, pair.n_won, pair.n_lost) == (flat["n"], flat.get("n_won"), flat.get("n_lost"))
        assert (pair.p_value, pair.change.method) == (pytest.approx(flat["p_value"]), flat["method"])
    decision = decide(suite.metrics, suite.gates, evidence)
    assert (decision.release, decision.training_action.value) == (stored["release_decision"], stored["training_action"])
    assert [finding.state.value for finding in decision.findings] == [
        gate["outcome"] for gate in stored["decision"]["gates"]
    ]


def test_the_report_of_an_earlier_sweep_is_read():
    report = msgspec.json.decode((STORED / "sweep" / "sweep.json").read_bytes(), type=SweepReport)
    gains = {row.agent: row.gain.value for row in report.rows if row.gain is not None}
    assert gains["base-copy"] == 0.0 and gains["sft"] > 0.4
