import json

import pytest

from agent2.contract.decision import decide
from agent2.contract.decision_record import decision_dict, finding_dict
from agent2.contract.gates import EvidenceGate, EvidenceNeeds, HistoricalBestGate, LengthGate, RegressionGate
from agent2.contract.rules import evaluate_gates
from evidence_builders import GATES, METRICS, make_evidence, make_metric, make_paired


def record_of(gate, *metrics, **changes):
    (finding,) = evaluate_gates(METRICS, [gate], make_evidence(metrics, **changes))
    return finding_dict(finding)


def test_the_numbers_of_a_paired_gate_stand_beside_its_sentences():
    gate = RegressionGate(name="holds", metrics=["instructions"])
    record = record_of(gate, make_paired("instructions", 200, won=20, lost=20, n_missing_old=1))
    numbers = record["numbers"]
    assert record["would_change"] == "about 901 items if the difference stays as it is (200 now)"
    assert numbers["n_needed"] == 901
    assert numbers["rule"] == "paired"
    assert numbers["thresholds"] == {"tolerance": 0.01, "margin": 0.03}
    assert numbers["drop"]["change"].keys() >= {"value", "low", "high", "n", "n_missing", "method"}
    assert numbers["drop"]["p_value"] == pytest.approx(1.0)
    assert numbers["inputs"][0] == {
        "metric": "instructions",
        "unit": "rate",
        "old": 0.6,
        "new": 0.6,
        "n_items": 200,
        "n_missing_old": 1,
        "n_missing_new": 0,
    }


def test_a_rise_from_0_has_no_number_in_json():
    numbers = record_of(LengthGate(metric="length"), make_metric("length", 0.0, 10.0))["numbers"]
    assert numbers["value"] is None
    assert numbers["limit"] == 0.0
    json.dumps(numbers, allow_nan=False)


def test_what_a_gate_lacks_is_a_code():
    assert record_of(HistoricalBestGate())["numbers"]["lack"] == "too few earlier evaluations"


def test_problems_and_what_a_release_lacks_are_records():
    few = make_evidence([make_metric("math", 0.7, 0.8, n_items=20)], badcases={"misread": 88, "odd": 1})
    gates = [*GATES, EvidenceGate(needs=EvidenceNeeds(min_items=30))]
    record = decision_dict(decide(METRICS, gates, few, {"misread": "data"}))
    assert record["evidence_gate"]["numbers"]["problems"] == [
        {"kind": "too few items", "metrics": ["math"], "n": 20, "threshold": 30}
    ]
    assert record["evidence_gate"]["numbers"]["thresholds"]["min_items"] == 30
    kinds = [problem["kind"] for problem in record["release_gate"]["numbers"]["problems"]]
    assert kinds == ["no private evidence", "no cards", "no spot check"]
    assert len(kinds) == len(record["release_gate"]["lacking"])
    assert record["numbers"] == {
        "improvement": "seen",
        "badcases": [{"label": "misread", "n": 88, "cause": "data"}, {"label": "odd", "n": 1, "cause": None}],
    }
