import pytest

from agent2.config import read_yaml_text
from agent2.contract.capabilities import CAPABILITY_LINES, covered_lines
from agent2.contract.expand import expand
from agent2.contract.suite_files import load_suite
from agent2.contract.suite_rules import remarks


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
