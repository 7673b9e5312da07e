import pytest

from agent2.analysis.selection import choose_benchmarks, covered_lines, diagnose, read_scores, selection_table
from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError

FIRST = "bfcl_v3"
TABLE = selection_table()


@pytest.mark.parametrize(
    ("failure", "benchmark"),
    [
        ("code_fixing", "swebench_verified"),
        ("customer_dialogue", "tau_bench"),
        ("web", "webarena"),
        ("many_tools", "acebench"),
        ("api_search", "api_bank"),
        ("general_assistant", "gaia"),
    ],
)
def test_each_kind_of_failure_leads_to_its_benchmark_behind_plain_calls(failure, benchmark):
    steps = choose_benchmarks(failure)
    assert [step.benchmark for step in steps[:2]] == [FIRST, benchmark]
    assert [step.state for step in steps[:2]] == ["run", "wait"]


def test_plain_calls_need_nothing_else():
    assert [(step.benchmark, step.state) for step in choose_benchmarks("function_calls")] == [(FIRST, "run")]


@pytest.mark.parametrize(("score", "state"), [(0.59, "skip"), (0.6, "run")])
def test_complex_benchmarks_are_skipped_while_calls_fall_short(score, state):
    first, second = choose_benchmarks("code_fixing", {FIRST: score})
    assert (first.state, second.state) == ("done", state)
    if state == "skip":
        assert second.why == "bfcl_v3 scored 59.0%, 60% is needed first"


def test_an_unknown_kind_of_failure_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown kind of failure 'code_fix'; did you mean 'code_fixing'"):
        choose_benchmarks("code_fix")


def test_good_calls_and_few_resolved_issues_mean_planning_not_syntax():
    (reading,) = diagnose({FIRST: 0.95, "swebench_verified": 0.15})
    assert reading.name == "calls_fine_code_short"
    assert "planning and understanding of code are short" in reading.reading


def test_broken_calls_make_whole_tasks_unreadable():
    (reading,) = diagnose({FIRST: 0.30, "swebench_verified": 0.05})
    assert reading.name == "calls_broken" and "swebench_verified" in reading.reading


@pytest.mark.parametrize(
    "scores", [{}, {FIRST: 0.95}, {"swebench_verified": 0.15}, {FIRST: 0.9, "swebench_verified": 0.5}]
)
def test_nothing_is_read_out_of_too_little_or_even_results(scores):
    assert diagnose(scores) == []


def test_scores_are_read_as_shares_or_percent():
    assert read_scores(["bfcl_v3=95%", "gaia=0.4"]) == {"bfcl_v3": 0.95, "gaia": 0.4}


@pytest.mark.parametrize("text", ["bfcl_v3=95", "bfcl_v3", "bfcl_v3=nan", "bfcl_v3=-0.1", "bfcl_v3=x%"])
def test_a_score_that_is_no_share_is_refused(text):
    with pytest.raises(ConfigError, match=r"write it as bfcl_v3=0\.95"):
        read_scores([text])


def test_a_score_of_an_unknown_benchmark_is_refused():
    with pytest.raises(ConfigError, match="unknown benchmark 'bfcl'; did you mean 'bfcl_v3'"):
        read_scores(["bfcl=0.5"])


def test_every_benchmark_named_anywhere_has_a_floor():
    named = {name for kind in TABLE.failures for name in kind.benchmarks} - {FIRST}
    assert named == set(TABLE.floors)


def test_the_packaged_agent_suite_asks_for_the_same_floors():
    for entry in load_suite("agent_tool_regression_v1").benchmarks:
        assert {need.benchmark: need.at_least for need in entry.requires} == (
            {FIRST: TABLE.floors[entry.name]} if entry.name in TABLE.floors else {}
        )


def test_a_suite_says_which_of_five_lines_it_looks_at():
    assert len(TABLE.capability_lines) == 5
    covered = covered_lines(load_suite("llm_core_regression_mini"))
    assert covered["instruction following"] == ("mini_ifeval",)
    assert covered["math and verifiable reasoning"] == ("mini_math",)
    assert covered["reward model"] == ()
    assert covered_lines(load_suite("post_training_protocol"))["reward model"] == ("reward_bench",)
