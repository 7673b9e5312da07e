import pytest

from agent2.config import read_yaml_text
from agent2.contract.capabilities import CAPABILITY_LINES, covered_lines
from agent2.contract.expand import expand
from agent2.contract.suite_files import FOLDER, load_suite
from agent2.contract.suite_rules import remarks
from agent2.errors import ConfigError


def suite(text):
    head = "suite: llm_core_regression_v1\nbaseline: b\n"
    return expand(read_yaml_text(head + text, "f")).suite


def test_a_sound_published_suite_needs_no_remark():
    assert remarks(load_suite("llm_core_regression_v1")) == []


def test_a_production_task_without_benchmark_is_remarked_on():
    tasks = (
        "[{name: short dialogue, difficulty: easy, benchmarks: []}, {name: m, difficulty: hard, benchmarks: [gsm8k]}]"
    )
    found = remarks(suite(f"task_distribution: {{production_tasks: {tasks}}}\n"))
    assert any("'short dialogue' has no benchmark" in sentence for sentence in found)
    assert any("benchmark 'ifeval' stands for no production task" in sentence for sentence in found)


def test_a_weaker_scorer_than_possible_is_remarked_on():
    found = remarks(suite("datasets:\n- {name: gsm8k, scorer: {name: j, tier: judge}}\n"))
    assert "benchmark 'gsm8k' is scored by judge; reference is possible and stronger" in found


@pytest.mark.parametrize(("spot_check", "remarked"), [("true", False), ("false", True)])
def test_a_judge_without_spot_checks_is_remarked_on(spot_check, remarked):
    text = "datasets:\n- {name: gsm8k, scorer: {name: j, tier: judge}}\n"
    text += f"cadence: {{candidate: {{spot_check: {spot_check}}}}}\n"
    assert any("need spot checks by people" in sentence for sentence in remarks(suite(text))) is remarked


def test_a_control_group_that_is_named_later_is_remarked_on():
    assert any("--baseline" in sentence for sentence in remarks(load_suite("llm_core_regression_mini")))


def test_a_suite_says_which_of_five_lines_it_looks_at():
    assert len(CAPABILITY_LINES) == 5
    covered = covered_lines(load_suite("llm_core_regression_mini"))
    assert covered["instruction following"] == ("mini_ifeval",)
    assert covered["math and verifiable reasoning"] == ("mini_math",)
    assert covered["reward model"] == ()
    assert covered_lines(load_suite("post_training_protocol"))["reward model"] == ("reward_bench",)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            "view:ast_match",
            "view:response_quality",
            "'mini_functions_ast_match'.*'response_quality'.*measure: reported",
        ),
        ("view:ast_match", "label_rate:refusal", "badcase class 'refusal'"),
        ("tool_errors_recovered/tool_errors", "tool_errors_mended/tool_errors", "did you mean"),
        ("name: dangerous_action}", "name: d, actions: [deleted_files]}", "gate 'd': badcase class 'deleted_files'"),
    ],
)
def test_what_no_scorer_gives_is_neither_measured_nor_listened_for(tmp_path, before, after, sentence):
    text = (FOLDER / "agent_tool_regression_mini.yaml").read_text()
    assert before in text
    (tmp_path / "s.yaml").write_text(text.replace(before, after))
    with pytest.raises(ConfigError, match=sentence):
        load_suite(str(tmp_path / "s.yaml"))


def test_a_gate_of_dangerous_actions_needs_a_world_that_knows_some(tmp_path):
    text = (FOLDER / "llm_core_regression_mini.yaml").read_text()
    (tmp_path / "s.yaml").write_text(text.replace("gates:\n", "gates:\n  - {kind: dangerous_action, name: dangers}\n"))
    with pytest.raises(ConfigError, match="no scorer of this suite tells of dangerous actions"):
        load_suite(str(tmp_path / "s.yaml"))
