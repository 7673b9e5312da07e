import pytest

from agent2.cards.folder import load_card
from agent2.cards.reader import read_summary, validate_card
from agent2.cards.writer import CardWriter
from agent2.contract.decision import decide
from agent2.contract.decision_sentences import decision_text
from agent2.contract.findings import GateState
from agent2.contract.gates import LengthGate, RegressionGate
from agent2.contract.measure_rules import parse_measure
from agent2.contract.measures import CardPaths, evidence_from_cards
from agent2.contract.metrics import Direction, MetricSpec, Role, Unit
from agent2.errors import CardError, ConfigError, Fault
from agent2.records import RolloutStatus, SamplingSettings
from agent2.stats.comparisons import mcnemar_p, noise_band, tango_interval
from card_builders import make_header, make_record
from contract_card_builders import make_lost, make_scored, verdicts, write_card

SCORE = MetricSpec(name="solved", benchmark="b", role=Role.PRIMARY)


def evidence(tmp_path, metrics, old, new, **protocol):
    """Evidence from one benchmark `b` whose rollouts are given for both sides."""
    cards = CardPaths(
        {"b": write_card(tmp_path / "old" / "b", old, "sft", **protocol)},
        {"b": write_card(tmp_path / "new" / "b", new, "rl", **protocol)},
    )
    return evidence_from_cards(metrics, cards)


def measured(tmp_path, measure, old, new, **fields):
    spec = MetricSpec(name="m", benchmark="b", measure=measure, **fields)
    return evidence(tmp_path, [spec], old, new).metrics.get("m")


def test_scores_are_paired_by_item_not_by_position(tmp_path):
    result = evidence(tmp_path, [SCORE], verdicts("1100"), list(reversed(verdicts("1011"))))
    solved = result.metrics["solved"]
    assert (result.checkpoint, result.baseline, result.split) == ("rl", "sft", "dev")
    assert solved.values() == (0.5, 0.75)
    assert (solved.n_items, solved.paired.n_won, solved.paired.n_lost) == (4, 2, 1)
    assert solved.paired.p_value == mcnemar_p(2, 1)
    assert solved.paired.change.interval == tango_interval(2, 1, 4)


def test_items_without_a_score_are_counted_on_their_side_and_left_out_on_both(tmp_path):
    solved = evidence(tmp_path, [SCORE], verdicts("1-10"), verdicts("10-1")).metrics["solved"]
    assert solved.values() == (0.5, 1.0)
    assert (solved.n_items, solved.n_missing_old, solved.n_missing_new) == (2, 1, 1)
    assert (solved.clean_old, solved.clean_new) == (0.75, 0.75)


def test_a_judge_that_failed_on_7_of_500_is_counted_and_insufficient(tmp_path):
    old, new = verdicts("10" * 250), verdicts("1" * 493 + "-" * 7)
    result = evidence(tmp_path, [SCORE], old, new)
    assert result.metrics["solved"].n_missing_new == 7
    decision = decide([SCORE], [RegressionGate(name="holds", metrics=["solved"])], result)
    assert decision.release == "insufficient"
    assert "7 of 500 items have no score for the checkpoint" in decision_text(decision).problems[0]


def test_items_missing_on_one_side_are_missing_there(tmp_path):
    solved = evidence(tmp_path, [SCORE], verdicts("1100"), verdicts("11")).metrics["solved"]
    assert (solved.n_items, solved.n_missing_old, solved.n_missing_new) == (2, 0, 2)


def test_a_model_that_broke_is_clean_and_counted_against_it(tmp_path):
    broken = [make_scored("a", 0.0, status=RolloutStatus.FAILED, fault=Fault.MODEL), make_scored("b")]
    solved = evidence(tmp_path, [SCORE], broken, broken).metrics["solved"]
    assert (solved.old, solved.clean_old) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("score", 0.5),
        ("completion_tokens", 15.0),
        ("tokens", 25.0),
        ("prompt_tokens", 10.0),
        ("turns", 1.0),
        ("retries", 0.0),
        ("view:calls", 3.0),
        ("any:violations", 0.5),
        ("not:parsed", 0.5),
        ("label_rate:refusal", 0.5),
        ("ratio:recovered/errors", 0.25),
        ("tool_calls_successful", 4.0),
        ("tokens_successful", 30.0),
        ("cost_to_success", 50.0),
    ],
)
def test_every_measure_reads_what_it_says(tmp_path, measure, expected):
    good = {"calls": 4, "tool_calls": 4, "violations": 0, "parsed": 1, "recovered": 1, "errors": 1}
    bad = {"calls": 2, "tool_calls": 2, "violations": 2, "parsed": 0, "recovered": 0, "errors": 3}
    records = [make_scored("a", 1.0, good, tokens=20), make_scored("b", 0.0, bad, ["refusal"], tokens=10)]
    numbers = measured(tmp_path, measure, records, records, unit=Unit.NUMBER)
    assert (numbers.old, numbers.new) == (expected, expected)


def test_a_suite_measures_what_detectors_read_whatever_the_scorer(tmp_path):
    refusing = [
        make_scored("a", 0.0, text="I'm sorry, but I cannot help with that."),
        make_scored("b", text="It is 42."),
    ]
    honest = [make_scored(item, text="It is 42.") for item in "ab"]
    numbers = measured(tmp_path, "detected:refusal", honest, refusing)
    assert (numbers.old, numbers.new) == (0.0, 0.5)
    with pytest.raises(ConfigError, match="did you mean 'detected:refusal'"):
        parse_measure("detected:refusals", "metric 'm'")


def test_pass_at_k_is_over_attempts_of_an_item(tmp_path):
    records = [make_scored("a", float(n == 0), attempt=n) for n in range(4)]
    records += [make_scored("b", 0.0, attempt=n) for n in range(4)]
    spec = MetricSpec(name="m", benchmark="b", measure="pass_at:2")
    assert evidence(tmp_path, [spec], records, records, attempts=4).metrics["m"].old == pytest.approx(0.25)


def test_the_noise_band_is_that_of_the_baseline_where_it_has_several_attempts(tmp_path):
    import numpy as np

    pattern = [[1, 0], [0, 0], [1, 1], [0, 1]]
    records = [
        make_scored(f"i{place}", float(value), attempt=attempt)
        for place, row in enumerate(pattern)
        for attempt, value in enumerate(row)
    ]
    numbers = evidence(tmp_path, [SCORE], records, records, attempts=2).metrics["solved"]
    assert numbers.noise == noise_band(np.array(pattern, float).T, np.random.default_rng(1)).half_width
    assert evidence(tmp_path / "once", [SCORE], verdicts("10"), verdicts("10")).metrics["solved"].noise is None


def test_a_measure_over_all_benchmarks_takes_their_items_together(tmp_path):
    spec = MetricSpec(name="length", measure="completion_tokens", unit=Unit.LENGTH, direction=Direction.LOWER)
    sides = []
    for side, long in (("old", 20), ("new", 40)):
        short = write_card(tmp_path / side / "b", [make_scored("a", tokens=10)], side, "b-v1")
        two = [make_scored("a", tokens=long), make_scored("c", tokens=long)]
        sides.append({"b": short, "c": write_card(tmp_path / side / "c", two, side, "c-v1")})
    numbers = evidence_from_cards([spec], CardPaths(*sides)).metrics["length"]
    assert numbers.values() == (pytest.approx(50 / 3), pytest.approx(30.0))
    assert numbers.n_items == 3


def test_an_unknown_view_is_a_problem_that_names_the_nearest(tmp_path):
    numbers = measured(tmp_path, "view:anser_parsed", [make_scored("a", views={"answer_parsed": 1})] * 1, verdicts("1"))
    assert not numbers.is_complete
    assert "did you mean 'answer_parsed'" in numbers.problem


def test_an_optional_metric_that_nobody_measured_is_absent_not_zero(tmp_path):
    spec = MetricSpec(name="refusals", measure="label_rate:refusal", is_required=False)
    assert evidence(tmp_path, [spec], verdicts("11"), verdicts("11")).metrics == {}
    records = [make_scored("a", labels=["refusal"]), make_scored("b")]
    assert evidence(tmp_path / "seen", [spec], records, records).metrics["refusals"].values() == (0.5, 0.5)


def test_a_count_is_no_rate(tmp_path):
    records = [make_scored("a", views={"violations": 3})]
    numbers = measured(tmp_path, "view:violations", records, records)
    assert "any:<view>" in numbers.problem
    assert not numbers.is_complete


def test_no_event_and_no_success_give_no_number(tmp_path):
    quiet = [make_scored("a", 0.0, {"recovered": 0, "errors": 0})]
    assert "no event" in measured(tmp_path / "r", "ratio:recovered/errors", quiet, quiet).problem
    assert "no successful rollout" in measured(tmp_path / "t", "turns_successful", quiet, quiet).problem


def test_a_lost_rollout_has_no_numbers_at_all(tmp_path):
    lost = [make_scored("a", tokens=8), make_lost("b")]
    numbers = measured(tmp_path, "completion_tokens", lost, lost, unit=Unit.LENGTH)
    assert numbers.values() == (8.0, 8.0)
    assert (numbers.n_items, numbers.n_missing_old, numbers.clean_old) == (1, 1, 0.5)


def test_no_item_in_common_is_a_problem_with_its_counts(tmp_path):
    numbers = measured(tmp_path, "score", [make_scored("a")], [make_scored("b")])
    assert (numbers.problem, numbers.n_missing_old, numbers.n_missing_new) == (
        "no item has a number on both sides",
        1,
        1,
    )


def test_a_skipped_benchmark_keeps_its_reason(tmp_path):
    other_spec = MetricSpec(name="issues", benchmark="c")
    cards = CardPaths(
        {"b": write_card(tmp_path / "old", verdicts("1"), "sft")},
        {"b": write_card(tmp_path / "new", verdicts("1"), "rl")},
    )
    result = evidence_from_cards([SCORE, other_spec], cards, skipped={"c": "c was skipped: b scored 10%"})
    assert result.metrics["issues"].problem == "c was skipped: b scored 10%"
    assert "not evaluated on both sides" in evidence_from_cards([SCORE, other_spec], cards).metrics["issues"].problem


def test_cards_of_different_protocols_are_incomparable_and_the_field_is_named(tmp_path):
    warm = SamplingSettings(temperature=0.6)
    cards = CardPaths(
        {"b": write_card(tmp_path / "old", verdicts("1" * 60), "sft")},
        {"b": write_card(tmp_path / "new", verdicts("1" * 60), "rl", sampling=warm)},
    )
    result = evidence_from_cards([SCORE], cards)
    assert result.incomparable == ("b: sampling.temperature 0.0 against 0.6",)
    decision = decide([SCORE], [RegressionGate(name="holds", metrics=["solved"])], result)
    assert decision.release == "insufficient"
    assert "sampling.temperature" in decision_text(decision).problems[0]


def test_private_cards_stand_beside_the_main_ones(tmp_path):
    def cards(name, pattern):
        sides = [{"b": write_card(tmp_path / name / side, verdicts(pattern), side)} for side in ("old", "new")]
        return CardPaths(*sides)

    result = evidence_from_cards([SCORE], cards("dev", "1100"), private=cards("hidden", "1000"))
    assert (result.metrics["solved"].new, result.private_metrics["solved"].new) == (0.5, 0.25)


def test_badcases_are_counted_once_for_each_rollout_of_the_checkpoint(tmp_path):
    new = [make_scored("a", labels=["misread", "misread"]), make_scored("b", labels=["misread", "late"])]
    result = evidence(tmp_path, [SCORE], [make_scored("a", labels=["old"]), make_scored("b")], new)
    assert result.badcases == {"late": 1, "misread": 2}


def test_an_unfinished_and_a_damaged_card_are_errors(tmp_path):
    writer = CardWriter(tmp_path / "open", make_header())
    writer.append(make_record("a"))
    writer.release()
    good = write_card(tmp_path / "good", verdicts("1"))
    with pytest.raises(CardError, match="not finished"):
        evidence_from_cards([SCORE], CardPaths({"b": good}, {"b": tmp_path / "open"}))
    data = bytearray((good / "rollouts.parquet").read_bytes())
    data[load_card(good).frames[0].offset + 20] ^= 1
    (good / "rollouts.parquet").write_bytes(data)
    with pytest.raises(CardError, match="does not match its digest"):
        evidence_from_cards([SCORE], CardPaths({"b": good}, {"b": good}))


@pytest.mark.parametrize("measure", ["scores", "view:", "ratio:a", "pass_at:zero", "tokens_succesful"])
def test_an_unknown_measure_is_an_error(tmp_path, measure):
    with pytest.raises(ConfigError, match="m"):
        measured(tmp_path, measure, verdicts("1"), verdicts("1"))


def test_the_same_cards_give_the_same_evidence(tmp_path):
    parts = [make_scored(f"i{n}", (n % 7) / 7) for n in range(40)]
    new_records = [make_scored(f"i{n}", (n % 5) / 5) for n in range(40)]
    assert evidence(tmp_path / "1", [SCORE], parts, new_records) == evidence(
        tmp_path / "2", [SCORE], parts, new_records
    )


def test_tokens_that_a_server_did_not_report_are_missing_and_no_length_gate_fires_or_passes(tmp_path):
    old, new = (
        [make_scored(f"i{k}", tokens=50) for k in range(4)],
        [make_scored(f"i{k}", tokens=None) for k in range(4)],
    )
    metric = measured(tmp_path, "completion_tokens", old, new, unit=Unit.LENGTH)
    assert (metric.old, metric.new, metric.n_missing_new) == (None, None, 4)
    assert "no item has a number on both sides" in metric.problem
    spec = MetricSpec(name="m", benchmark="b", measure="completion_tokens", unit=Unit.LENGTH)
    gates = [RegressionGate(name="holds", metrics=["solved"]), LengthGate(name="short", metric="m", at_most=1e9)]
    decision = decide([SCORE, spec], gates, evidence(tmp_path / "again", [SCORE, spec], old, new), {})
    assert {finding.state for finding in decision.findings if finding.gate == "short"} == {GateState.NOT_EVALUATED}
    summary = read_summary(tmp_path / "new" / "b")
    assert (summary.completion_tokens, summary.tokens) == (None, None)
    assert validate_card(tmp_path / "new" / "b") == []
