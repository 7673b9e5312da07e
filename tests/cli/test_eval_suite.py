"""`agent2 suite` as a user meets it."""

import pytest

from cli_builders import run_agent2 as agent2


def test_the_packaged_suites_are_listed_with_their_primary_metric(tmp_path):
    done = agent2("suite", "list", home=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("llm_core_regression_v1", "gsm8k_exact_match", "agent_tool_regression_v1", " 1.0 ", "mini_functions"):
        assert word in done.stdout


def test_check_prints_what_was_filled_in_and_from_where(tmp_path):
    done = agent2("suite", "check", "llm_core_regression_v1", home=tmp_path)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.lstrip().startswith("protocol.sampling.n "))
    assert "track llm_core (tracks/llm_core.yaml:" in line
    assert "llm_core_regression-v1.0 is sound: 3 benchmarks" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("digest: ")


def test_check_says_that_nothing_checks_a_prerequisite_that_is_not_in_the_suite(tmp_path):
    (tmp_path / "s.yaml").write_text(
        "suite: s\ntrack: agent_tool\nbaseline: b\ndatasets:\n- {name: swebench_verified}\n"
    )
    done = agent2("suite", "check", str(tmp_path / "s.yaml"), home=tmp_path)
    assert "note: swebench_verified is to be played only where bfcl_v3 holds, which is not in this suite" in done.stdout
    assert "to be played only" not in agent2("suite", "check", "agent_tool_regression_v1", home=tmp_path).stdout


def test_check_can_print_the_whole_suite(tmp_path):
    done = agent2("suite", "check", "agent_tool_regression_mini", "--full", home=tmp_path)
    assert "# Frozen suite agent_tool_regression_mini-v1.0" in done.stdout and "max_tool_calls: 8" in done.stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("suite: mine_v1\n", "no track is named and no template matches"),
        ("suite: llm_core_regression_v1\nmodle: x\n", "mine.yaml:2: unknown key 'modle'; did you mean 'model'?"),
    ],
)
def test_a_bad_suite_is_one_line_with_its_place_and_exit_2(tmp_path, text, sentence):
    (tmp_path / "mine.yaml").write_text(text)
    done = agent2("suite", "check", "mine.yaml", home=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and done.stderr.count("\n") == 1


def test_freeze_writes_the_suite_last_line_and_refuses_other_content(tmp_path):
    done = agent2("suite", "freeze", "llm_core_regression_mini", "--out", "frozen", home=tmp_path)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "frozen" / "llm_core_regression_mini-v1.0.suite.yaml"
    assert done.stdout.splitlines()[-1] == f"frozen suite: {path.relative_to(tmp_path)}"
    text = path.read_text()
    changed = ["suite", "freeze", "llm_core_regression_mini", "--out", "frozen", "--set", "protocol.retries=0"]
    again = agent2(*changed, home=tmp_path)
    assert again.returncode == 2 and "give the changed suite a new version" in again.stderr
    assert path.read_text() == text


def test_diff_names_fields_and_exits_1_where_scores_are_incomparable(tmp_path):
    agent2("suite", "freeze", "llm_core_regression_mini", "--set", "protocol.sampling.temperature=0.6", home=tmp_path)
    frozen = "suites/llm_core_regression_mini-v1.0.suite.yaml"
    done = agent2("suite", "diff", "llm_core_regression_mini", frozen, home=tmp_path)
    assert done.returncode == 1
    assert "protocol.sampling.temperature" in done.stdout and "are incomparable" in done.stdout
    same = agent2("suite", "diff", frozen, frozen, home=tmp_path)
    assert same.returncode == 0 and "the suites are equal" in same.stdout


def test_choose_says_what_to_run_first_and_reads_results_together(tmp_path):
    done = agent2("suite", "choose", "code_fixing", "--score", "bfcl_v3=40%", home=tmp_path)
    assert done.returncode == 0 and "skip" in done.stdout and "60% is needed first" in done.stdout
    scores = ["--score", "bfcl_v3=95%", "--score", "swebench_verified=15%"]
    assert "planning and understanding of code are short" in agent2("suite", "choose", *scores, home=tmp_path).stdout
