"""Badcase classes: those of own data carry their name, and every answer that fails has one."""

import json

import pytest

from agent2.benchmarks import BENCHMARKS, load_benchmark
from agent2.contract.causes import Cause, is_danger, usual_cause
from agent2.contract.measures import CardPaths, evidence_from_cards
from agent2.contract.metrics import MetricSpec
from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError
from agent2.evaluation.suite_draft import draft_suite
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage, declared_output
from agent2.scorers import declared, load_scorer, own_labels
from agent2.scorers.benchmark_labels import BenchmarkLabels
from contract_card_builders import make_scored, write_card

CHOICE = {"question": "Which is blue?", "options": ["fire", "sky", "grass"], "answer": "B"}
ROWS = {
    "choice": CHOICE,
    "final_answer": {"question": "2+2?", "answer": "#### 4"},
    "math_answer": {"question": "2+2?", "answer": "\\boxed{4}"},
    "constraints": {
        "question": "Say yes.",
        "answer": "none",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    },
}
WRONG = {"choice": "The answer is (A).", "final_answer": "#### 5", "math_answer": "\\boxed{5}", "constraints": "a, b"}
EXTRA = {"choice": "options: options\n", "constraints": "payload: [instruction_id_list, kwargs]\n"}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def own_benchmark(folder, scorer, name="mine"):
    folder.mkdir()
    rows = [ROWS[scorer] | {"question": f"{number}: {ROWS[scorer]['question']}"} for number in range(12)]
    (folder / "all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "benchmark.yaml").write_text(
        f'name: {name}\nversion: "1.0"\nfiles: {{all: all.jsonl}}\nprompt: "{{question}}"\nanswer: answer\n'
        f"scorer: {scorer}\n{EXTRA.get(scorer, '')}"
    )
    return load_benchmark(str(folder))


def score_of(scorer, item, answer):
    return scorer.score(item, Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage()))


def score(name, item, answer, **settings):
    return score_of(load_scorer(name, settings), item, answer)


@pytest.mark.parametrize("scorer", sorted(ROWS))
def test_failures_on_own_data_carry_their_name_and_keep_their_cause(tmp_path, scorer):
    benchmark = own_benchmark(tmp_path / "own", scorer)
    (item,) = benchmark.items(Split.DEV, 1, None)
    (label,) = score_of(benchmark.scorer(), item, WRONG[scorer]).labels
    assert label.startswith("mine_") and label in declared_output(benchmark.scorer()).labels
    assert all(name.startswith("mine_") for name in declared_output(benchmark.scorer()).labels)
    (usual,) = score(scorer, item, WRONG[scorer]).labels
    assert own_labels(scorer, "mine")[usual] == label and usual_cause(usual) == usual_cause(label) is not None


def test_packaged_benchmarks_keep_their_classes_whatever_was_loaded_before(tmp_path):
    own_benchmark(tmp_path / "own", "final_answer")
    assert declared("final_answer").labels == declared_output(load_benchmark("mini_math").scorer()).labels
    assert "gsm8k_wrong_final_answer" in declared("final_answer").labels


def test_a_wrong_answer_about_safety_is_no_dangerous_action(tmp_path):
    benchmark = own_benchmark(tmp_path / "own", "choice", name="safety_quiz")
    labels = declared_output(benchmark.scorer()).labels
    assert not any(map(is_danger, labels)) and usual_cause("benchmark_safety_quiz_wrong_choice") is Cause.DATA
    assert "benchmark_safety_quiz_wrong_choice" in labels


def test_a_name_before_a_class_hides_no_danger():
    assert not any(label.startswith("safety_") for label in own_labels("choice", "safety").values())
    assert own_labels("resolved", "mine") == {} and own_labels("nobody", "mine") == {}


@pytest.mark.parametrize("stored", ["mmlu_wrong_choice", "mine_wrong_choice"])
@pytest.mark.parametrize("asked", ["mmlu_wrong_choice", "mine_wrong_choice"])
def test_cards_from_before_count_under_the_name_of_today(tmp_path, stored, asked):
    spec = MetricSpec(name="m", benchmark="mine", measure=f"label_rate:{asked}")
    records = [make_scored("a", 0.0, labels=[stored]), make_scored("b", 1.0)]
    protocol = {"benchmark": "mine-v1.0+3f2a9c1b", "scorer": "choice-v2.0"}
    sides = [
        {"mine": write_card(tmp_path / side, records, side, protocol["benchmark"], scorer=protocol["scorer"])}
        for side in ("old", "new")
    ]
    evidence = evidence_from_cards([spec], CardPaths(*sides))
    assert evidence.metrics["m"].new == 0.5
    assert evidence.badcases == {"mine_wrong_choice": 1}
    assert evidence.declared_labels == {"mine_wrong_choice", "mine_answer_parse_fail"}


def test_cards_of_packaged_benchmarks_count_as_they_are(tmp_path):
    records = [make_scored("a", 0.0, labels=["mmlu_wrong_choice"])]
    sides = [
        {"b": write_card(tmp_path / side, records, side, "mini_knowledge-v2.0", scorer="choice-v2.0")}
        for side in ("old", "new")
    ]
    assert evidence_from_cards([], CardPaths(*sides)).badcases == {"mmlu_wrong_choice": 1}


PACKAGED = [name for name in BENCHMARKS if isinstance(load_benchmark(name).scorer(), BenchmarkLabels)]


@pytest.mark.parametrize("name", PACKAGED)
def test_classes_of_a_packaged_benchmark_name_it_or_what_its_scorer_was_written_for(name):
    scorer = load_benchmark(name).scorer()
    prefix = type(scorer).label_prefix if type(scorer).is_written_for(name) else f"{name}_"
    assert all(label.startswith(prefix) for label in declared_output(scorer).labels)
    assert all(usual_cause(label) is not None for label in declared_output(scorer).labels)


def test_scorers_were_written_for_a_family_and_not_for_what_only_uses_them():
    strangers = {name for name in PACKAGED if not type(load_benchmark(name).scorer()).is_written_for(name)}
    assert {"gpqa", "arc_challenge", "arc_easy", "llmbar", "aime_private"} <= strangers
    assert not strangers & {"mmlu", "mmlu_pro", "mini_knowledge", "gsm8k", "math_500", "ifeval", "instructions"}


@pytest.mark.parametrize("stored", ["mmlu_wrong_choice", "gpqa_wrong_choice"])
def test_cards_of_gpqa_from_before_count_under_its_own_name(tmp_path, stored):
    spec = MetricSpec(name="m", benchmark="gpqa", measure="label_rate:mmlu_wrong_choice")
    records = [make_scored("a", 0.0, labels=[stored]), make_scored("b", 1.0)]
    sides = [
        {"gpqa": write_card(tmp_path / side, records, side, "gpqa-v1.0", scorer="choice-v2.0")}
        for side in ("old", "new")
    ]
    evidence = evidence_from_cards([spec], CardPaths(*sides))
    assert evidence.metrics["m"].new == 0.5
    assert evidence.badcases == {"gpqa_wrong_choice": 1}


@pytest.mark.parametrize(("label", "is_known"), [("mine", True), ("mmlu", True), ("other", False)])
def test_a_suite_may_measure_a_class_of_own_data_by_both_names(tmp_path, label, is_known):
    own_benchmark(tmp_path / "own", "choice")
    text, _ = draft_suite([str(tmp_path / "own")], tmp_path / "s.yaml")
    slips = f"- {{name: slips, benchmark: mine, measure: 'label_rate:{label}_wrong_choice', role: diagnostic}}\n"
    (tmp_path / "s.yaml").write_text(text.replace("metrics:\n", f"metrics:\n{slips}"))
    if is_known:
        assert "slips" in {metric.name for metric in load_suite(str(tmp_path / "s.yaml")).metrics}
    else:
        with pytest.raises(ConfigError, match="badcase class 'other_wrong_choice'"):
            load_suite(str(tmp_path / "s.yaml"))


PLAIN = Item("i", Split.DEV, "?", "42")


@pytest.mark.parametrize(
    ("name", "answer", "labels"),
    [
        ("exact", "42", ()),
        ("exact", "43", ("wrong_answer",)),
        ("exact", " ", ("no_answer",)),
        ("exact", None, ("no_answer",)),
        ("rational", "84/2", ()),
        ("rational", "43", ("wrong_answer",)),
        ("rational", "about 42", ("answer_parse_fail",)),
        ("rational", None, ("no_answer",)),
        ("token_f1", "it is 42", ()),
        ("token_f1", "it is many, many more", ("wrong_answer",)),
        ("relaxed_numeric", "43", ()),
        ("relaxed_numeric", "60", ("wrong_answer",)),
        ("likelihood", "42", ()),
        ("likelihood", "43", ("wrong_text",)),
    ],
)
def test_an_answer_that_fails_has_a_class_and_a_right_one_has_none(name, answer, labels):
    verdict = score(name, PLAIN, answer)
    assert verdict.labels == labels
    assert (verdict.value < 0.5) == bool(labels)
    assert set(labels) <= declared(name).labels
