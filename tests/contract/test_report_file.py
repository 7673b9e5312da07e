import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.contract.decision import decide
from agent2.contract.metrics import Change, SpotCheck, TrainingSignals, Unit, format_change
from agent2.contract.report_file import read_history, read_report, report_dict, round_report_dict, write_report
from agent2.errors import ConfigError
from evidence_builders import GATES, METRICS, make_evidence, make_metric, make_paired, make_releasable

REPORT = """\
checkpoint: rl-step-900
baseline: sft
math: 70.0% -> 76.0% (+6.0)
instructions: 63.0% -> 63.0% (+0.0)
charts: 60.0% -> 61.0% (+1.0)
length: 600 -> 610 (+1.7%)
violations: 0.3% -> 0.3% (+0.0)
"""


def read(tmp_path, text, baseline=None):
    path = tmp_path / "report.yaml"
    path.write_text(text)
    return read_report(path, METRICS, baseline)


def test_fields_become_evidence(tmp_path):
    evidence = read(tmp_path, REPORT)
    assert (evidence.checkpoint, evidence.baseline) == ("rl-step-900", "sft")
    assert evidence.metrics["math"].values() == pytest.approx((0.70, 0.76))
    assert evidence.metrics["length"].values() == (600, 610)
    assert evidence.badcases is None
    assert decide(METRICS, GATES, evidence).release == "candidate"


def test_a_json_report_is_read_like_yaml(tmp_path):
    path = tmp_path / "report.json"
    fields = dict(line.split(": ", 1) for line in REPORT.splitlines())
    path.write_text(json.dumps({**fields, "instructions": float("nan")}))
    evidence = read_report(path, METRICS)
    assert evidence.metrics["math"].new == pytest.approx(0.76)
    assert evidence.metrics["instructions"].new is None


@pytest.mark.parametrize("nan", [".nan", "nan", "missing", "null", "63.0% -> nan", "nan -> 63.0%"])
def test_a_score_that_is_not_a_number_is_missing_and_insufficient(tmp_path, nan):
    evidence = read(tmp_path, REPORT.replace("63.0% -> 63.0% (+0.0)", nan))
    assert not evidence.metrics["instructions"].is_complete
    assert decide(METRICS, GATES, evidence).release == "insufficient"


def test_the_control_group_comes_from_the_suite_or_is_missing(tmp_path):
    text = REPORT.replace("baseline: sft\n", "")
    assert read(tmp_path, text, baseline="sft-7b").baseline == "sft-7b"
    lonely = read(tmp_path, text)
    assert lonely.baseline is None
    assert decide(METRICS, GATES, lonely).release == "insufficient"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "instructons: 63.0% -> 62.0% (-1.0)",
            r":8: unknown report field .* 'instructons'; did you mean 'instructions'",
        ),
        ("release_decison: block", "did you mean 'release_decision'"),
        ("helpfulness: 63.0% -> 62.0% (-1.0)", "unknown report field"),
        ("split: test_hidden", "unknown split 'test_hidden'"),
        ("role: candidat", "did you mean 'candidate'"),
        ("evidence: {maths: {n_items: 500}}", "did you mean 'math'"),
        ("evidence: {math: {n_itms: 500}}", "did you mean 'evidence.math.n_items'|did you mean 'n_items'"),
        ("evidence: {math: {n_items: -1}}", "greater than or equal to 0"),
        ("evidence: {math: {new: 0.9}}", r"the new value is 0.76, under `evidence:` it is 0.9"),
        ("evidence: {math: {paired: {n: 100, n_won: 80, n_lost: 30}}}", "more than n=100"),
        ("evidence: {math: {paired: {n: 100, n_won: 3}}}", "belong together"),
        ("evidence: {math: {paired: {n: 100, n_won: 30, n_lost: 3}}}", "new - old is 0.06, the pairs give 0.27"),
        ("evidence: {math: {paired: {n: 100, n_won: 9, n_lost: 3, p_value: 0.5}}}", "not what the counts give"),
        ("evidence: {math: {paired: {n: 9, delta: 0.06}}}", "give n_won and n_lost, or all of"),
        ("history: {math: [70%, lots]}", "'lots' is not a number"),
        ("history: {math: [60% -> 70%]}", "is not an earlier value"),
        ("training: {reward: 0.5}", r"Input should be a valid string|needs both sides"),
        ("training: {rewards: 0.4 -> 0.5}", "did you mean"),
        ("spot_check: {by: someone, n: 3, n_agree: 5}", "more than n=3"),
        ("badcase_top: [{broken: many}]", "is not a badcase"),
        ("primary_metric: charts = 60% (+1)", "is not the suite's, 'math'"),
        ("primary_metric: 76%", "write it as 'name = value"),
        ("regressions: [charts]", "is not a regression"),
        ("math: 70% -> 76%", "appears twice"),
    ],
)
def test_what_is_no_report_of_this_suite_is_refused_with_its_place(tmp_path, line, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, f"{REPORT}{line}\n")


def test_a_missing_checkpoint_name_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="'checkpoint' is missing"):
        read(tmp_path, REPORT.replace("checkpoint: rl-step-900\n", ""))


def test_counts_of_pairs_are_enough_for_the_rest(tmp_path):
    evidence = read(tmp_path, f"{REPORT}evidence:\n  math: {{paired: {{n: 1000, n_won: 100, n_lost: 40}}}}\n")
    pair = evidence.metrics["math"].paired
    assert pair is not None
    assert pair.change.value == pytest.approx(0.06)
    assert pair.change.low < pair.change.value < pair.change.high
    assert pair.p_value < 1e-5
    assert evidence.metrics["math"].n_items == 1000


def test_what_was_decided_is_ignored_and_said(tmp_path):
    decided = (
        "release_decision: release\ntraining_action: continue\nnext_actions: [ship it]\ndecision: {release: release}\n"
    )
    evidence = read(
        tmp_path, REPORT.replace("-> 63.0%", "-> 50.0%").replace("(+0.0)\ncharts", "(-13.0)\ncharts") + decided
    )
    assert "release_decision 'release' of the report was ignored" in evidence.notes[0]
    assert decide(METRICS, GATES, evidence).release == "block"


def test_badcases_are_read_in_every_way_they_are_written(tmp_path):
    text = f"{REPORT}badcase_top:\n  - misread: 88 cases\n  - lost: 3\nbadcase_clusters:\n  - 'not run: 11 cases'\n"
    assert read(tmp_path, text).badcases == {"misread": 88, "lost": 3, "not run": 11}


def test_history_is_read_from_its_own_file(tmp_path):
    path = tmp_path / "history.json"
    path.write_text('{"math": [0.7, "71.5%"], "length": [600]}')
    assert read_history(path, METRICS) == {"math": (0.7, 0.715), "length": (600,)}
    path.write_text('{"maths": [0.7]}')
    with pytest.raises(ConfigError, match="did you mean 'math'"):
        read_history(path, METRICS)
    path.write_text('{"math": 0.7}')
    with pytest.raises(ConfigError, match="a list of values"):
        read_history(path, METRICS)


FULL = make_evidence(
    [
        make_paired("math", 1000, 120, 60, 0.7, clean_old=1.0, clean_new=0.999, noise=0.013, n_missing_new=1),
        make_metric("length", 601.25, 633.123456, n_items=400),
    ],
    suite="own-v1.0",
    role="nightly",
    private_metrics={"math": make_metric("math", 0.71, 0.74)},
    history={"math": (0.7, 0.715)},
    training=TrainingSignals(reward=Change(0.1, 0.30000000000000004), kl=Change(1e-5, 0.02)),
    badcases={f"class_{place}": place for place in range(15)},
    declared_labels=frozenset({"class_1", "safety_deleted_file"}),
    confirmed_actions={"deleted_files": 1},
    spot_check=SpotCheck("a reviewer", 40, 39, "read in the office"),
    incomparable=("math: dtype float32 against bfloat16",),
    notes=("charts was played twice",),
)


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
@pytest.mark.parametrize("evidence", [FULL, make_evidence(), make_releasable()], ids=["full", "points", "private"])
def test_a_written_report_gives_the_same_evidence_and_decision_again(tmp_path, evidence, suffix):
    path = tmp_path / f"report{suffix}"
    decision = decide(METRICS, GATES, evidence)
    write_report(path, report_dict(METRICS, evidence, decision))
    first = path.read_bytes()
    again = read_report(path, METRICS)
    for name, metric in evidence.metrics.items():
        assert again.metrics[name].values() == pytest.approx(metric.values(), abs=1e-12)
        assert (again.metrics[name].paired is None) == (metric.paired is None)
    assert again.private_metrics.keys() == evidence.private_metrics.keys()
    for field in (
        "history",
        "training",
        "badcases",
        "declared_labels",
        "confirmed_actions",
        "spot_check",
        "incomparable",
        "split",
        "role",
    ):
        assert getattr(again, field) == getattr(evidence, field), field
    repeated = decide(METRICS, GATES, again)
    assert repeated.training_action == decision.training_action
    assert repeated.release == ("candidate" if decision.release == "release" else decision.release), "no cards here"
    assert [(f.gate, f.state) for f in repeated.findings] == [(f.gate, f.state) for f in decision.findings]
    write_report(path, report_dict(METRICS, evidence, decision))
    assert path.read_bytes() == first


def test_a_report_has_the_fields_that_people_know(tmp_path):
    evidence = make_evidence([make_metric("instructions", 0.63, 0.572)], badcases={"keyword_missing": 74, "none": 0})
    report = report_dict(METRICS, evidence, decide(METRICS, GATES, evidence))
    assert list(report)[:2] == ["checkpoint", "baseline"]
    assert report["instructions"] == "63.0% -> 57.2% (-5.8)"
    assert report["length"] == format_change(600, 610, Unit.LENGTH)
    assert report["badcase_top"] == [{"keyword_missing": "74 cases"}]
    assert report["release_decision"] == "block"
    assert report["decision"]["gates"][1]["outcome"] == "fired"
    assert report["decision"]["evidence_gate"]["outcome"] == "passed"
    assert "at least 50 items" in report["decision"]["evidence_gate"]["rule"]
    assert any("spot check" in sentence for sentence in report["decision"]["release_gate"]["lacking"])
    assert set(report["decision"]["questions"]) == {
        "did capabilities improve",
        "are preferences aligned",
        "is the reward distorted",
        "may training go on",
        "may it be deployed",
        "where should the next data come from",
    }


def test_the_round_report_has_exactly_its_five_fields():
    evidence = make_evidence(
        [make_metric("charts", 0.60, 0.582), make_metric("length", 600, 732)], badcases={"not_run": 11}
    )
    report = round_report_dict(METRICS, evidence, decide(METRICS, GATES, evidence))
    assert list(report) == ["checkpoint", "primary_metric", "regressions", "badcase_clusters", "next_actions"]
    assert report["primary_metric"] == "math = 76.0% (+6.0)"
    assert report["regressions"] == [{"charts": "-1.8"}, {"length": "+22.0%"}]
    assert report["badcase_clusters"] == [{"not_run": "11 cases"}]
    assert any("keep sft as release candidate" in action for action in report["next_actions"])


WORDS = st.sampled_from(
    [
        "math",
        "length",
        "checkpoint",
        "evidence",
        "private",
        "history",
        "training",
        "badcase_top",
        "split",
        "spot_check",
        "regressions",
        "primary_metric",
        "confirmed_actions",
        "notes",
        "incomparable",
        "role",
        "decision",
        "maths",
        "badcases",
        "private_evidence",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.sampled_from(
        ["70% -> 76%", "nan -> 0.5", "612", "x: 3 cases", "a = 5% (+1)", "1e400", "->", "()", "5% (-100%)"]
    )
    | st.text(max_size=8)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            WORDS | st.sampled_from(["old", "new", "paired", "n", "n_won", "n_lost", "reward"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(tree=st.dictionaries(WORDS, TREES, max_size=5))
def test_whatever_a_report_holds_it_is_evidence_or_one_sentence(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump({"checkpoint": "new", **tree}))
    try:
        evidence = read_report(path, METRICS, "old")
    except ConfigError as error:
        assert str(path) in str(error)
        return
    decision = decide(METRICS, GATES, evidence)
    assert decision.release in {"insufficient", "candidate", "block", "research_only", "block_for_chart_tasks"}
