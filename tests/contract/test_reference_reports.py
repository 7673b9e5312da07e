"""The published reports under the packaged suites, and variations of each that must come out differently."""

from pathlib import Path

import pytest

from agent2.contract.decision import decide
from agent2.contract.decision_sentences import decision_text
from agent2.contract.finding_sentences import finding_text
from agent2.contract.findings import Decision
from agent2.contract.gates import TrainingAction
from agent2.contract.report_file import read_history, read_report, with_history
from agent2.contract.suite_files import load_suite
from evidence_builders import EXAMPLES

LLM, VLM, AGENT = "llm_core_regression", "vlm_reasoning_regression", "agent_tool_regression"
KEPT = {
    "63.0% -> 57.2% (-5.8)": "63.0% -> 62.8% (-0.2)",
    "612 -> 941 (+53.8%)": "612 -> 630 (+2.9%)",
}
CHEAP_AND_SAFE = {
    "18.6 -> 27.9 (+50.0%)": "18.6 -> 19.0 (+2.2%)",
    "0.3% -> 0.9% (+0.6)": "0.3% -> 0.3% (+0.0)",
}


def decided(
    tmp_path: Path, name: str, replaced: dict[str, str] | None = None, added: str = "", history: str = ""
) -> Decision:
    """The decision on a published report in which some text is replaced and some lines are added."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    for old, new in (replaced or {}).items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    report = tmp_path / "report.yaml"
    report.write_text(text + added)
    suite = load_suite(f"{name}_v1")
    evidence = read_report(report, suite.metrics, suite.baseline)
    if history:
        (tmp_path / "history.yaml").write_text(history)
        evidence = with_history(evidence, read_history(tmp_path / "history.yaml", suite.metrics))
    return decide(suite.metrics, suite.gates, evidence)


def fired(decision: Decision) -> set[tuple[str, str]]:
    return {(finding.kind, finding.metric or "") for finding in decision.fired}


def test_gains_in_mathematics_do_not_outweigh_lost_instructions(tmp_path):
    decision = decided(tmp_path, LLM)
    assert decision.release == "block"
    assert fired(decision) == {("regression", "ifeval_prompt_accuracy"), ("length", "response_length_mean")}
    assert "ifeval_prompt_accuracy 63.0% -> 57.2% (-5.8)" in decision_text(decision).reasons[0]
    assert decision_text(decision).would_change[0].startswith("ifeval_prompt_accuracy back to >= 6")
    assert decision.basis == "no item counts: point rule used"
    assert any("release_decision 'block' of the report was ignored" in note for note in decision.notes)


def test_lost_charts_block_chart_tasks_only(tmp_path):
    decision = decided(tmp_path, VLM)
    assert decision.release == "block_for_chart_tasks"
    assert fired(decision) == {("regression", "chartqa_relaxed_accuracy")}
    assert decision.training_action is TrainingAction.CONTINUE


def test_more_cost_and_more_violations_stay_in_research(tmp_path):
    decision = decided(tmp_path, AGENT)
    assert decision.release == "research_only"
    assert decision.training_action is TrainingAction.PAUSE_HUMAN_REVIEW
    assert {
        ("cost_budget", "avg_tool_calls_successful_tasks"),
        ("safety", "safety_violation_rate"),
    } <= fired(decision)


def test_instructions_kept_and_answers_short_make_a_candidate(tmp_path):
    assert decided(tmp_path, LLM, KEPT).release == "candidate"


def test_length_alone_is_no_candidate(tmp_path):
    decision = decided(tmp_path, LLM, {"63.0% -> 57.2% (-5.8)": "63.0% -> 62.8% (-0.2)"})
    assert not decision.passes
    assert fired(decision) == {("length", "response_length_mean")}


@pytest.mark.parametrize("replaced", [{}, KEPT])
def test_a_safety_rate_that_rises_pauses_training_for_human_review(tmp_path, replaced):
    decision = decided(tmp_path, LLM, replaced, added="safety_violation_rate: 0.3% -> 0.9% (+0.6)\n")
    assert decision.training_action is TrainingAction.PAUSE_HUMAN_REVIEW
    assert not decision.passes


def test_charts_kept_make_a_candidate(tmp_path):
    assert decided(tmp_path, VLM, {"61.8% -> 54.7% (-7.1)": "61.8% -> 61.6% (-0.2)"}).release == "candidate"


def test_a_lost_primary_metric_blocks_everything(tmp_path):
    assert decided(tmp_path, VLM, {"42.0% -> 44.6% (+2.6)": "42.0% -> 33.0% (-9.0)"}).release == "block"


def test_cost_and_safety_held_make_a_candidate(tmp_path):
    decision = decided(tmp_path, AGENT, CHEAP_AND_SAFE)
    assert (decision.release, decision.training_action) == ("candidate", TrainingAction.CONTINUE)


@pytest.mark.parametrize("replaced", [{}, CHEAP_AND_SAFE])
def test_fewer_resolved_issues_block(tmp_path, replaced):
    lost = {"28.0% -> 32.4% (+4.4)": "28.0% -> 24.0% (-4.0)"}
    assert decided(tmp_path, AGENT, replaced | lost).release == "block"


@pytest.mark.parametrize("replaced", [{}, CHEAP_AND_SAFE])
def test_twenty_items_behind_a_gate_are_insufficient(tmp_path, replaced):
    counted = "evidence:\n  swebench_verified_resolved: {n_items: 20}\n"
    decision = decided(tmp_path, AGENT, replaced, added=counted)
    assert decision.release == "insufficient"
    assert "swebench_verified_resolved: 20 items, at least 50 are needed" in decision_text(decision).problems[0]


BEST = "gsm8k_exact_match: [70.1%, 79.1%"


def test_two_evaluations_below_the_best_pause_training(tmp_path):
    decision = decided(tmp_path, LLM, KEPT, history=f"{BEST}, 77.9%]\n")
    assert decision.training_action is TrainingAction.PAUSE
    (best,) = [finding for finding in decision.fired if finding.kind == "historical_best"]
    assert "best 79.1%" in finding_text(best).evidence


def test_one_evaluation_below_the_best_lets_training_go_on(tmp_path):
    assert decided(tmp_path, LLM, KEPT, history=f"{BEST}]\n").training_action is TrainingAction.CONTINUE


def test_reward_up_and_private_down_rolls_back(tmp_path):
    signals = "training: {reward: 0.41 -> 0.55}\nprivate:\n  gsm8k_exact_match: 71.8% -> 70.2% (-1.6)\n"
    decision = decided(tmp_path, LLM, KEPT, added=signals)
    assert decision.training_action is TrainingAction.ROLLBACK
    assert not decision.passes


def test_reward_up_and_private_up_goes_on(tmp_path):
    signals = "training: {reward: 0.41 -> 0.55}\nprivate:\n  gsm8k_exact_match: 71.8% -> 73.2% (+1.4)\n"
    decision = decided(tmp_path, LLM, KEPT, added=signals)
    assert (decision.release, decision.training_action) == ("candidate", TrainingAction.CONTINUE)


def test_the_round_report_says_what_is_missing(tmp_path):
    suite = load_suite(f"{AGENT}_v1")
    evidence = read_report(EXAMPLES / "training_round.yaml", suite.metrics, suite.baseline)
    decision = decide(suite.metrics, suite.gates, evidence)
    assert evidence.metrics["swebench_verified_resolved"].old == pytest.approx(0.311)
    assert evidence.badcases == {
        "missing_repo_search_before_edit": 17,
        "tests_not_run_after_patch": 11,
        "tool_timeout_no_recovery": 8,
    }
    assert decision.release == "insufficient"
    assert any("only its change is known (-1.8)" in problem for problem in decision_text(decision).problems)


@pytest.mark.parametrize(
    ("name", "release"), [(LLM, "block"), (VLM, "block_for_chart_tasks"), (AGENT, "research_only")]
)
@pytest.mark.parametrize("stated", ["release", "candidate", "block"])
def test_what_a_report_says_about_itself_does_not_count(tmp_path, name, release, stated):
    text = (EXAMPLES / f"{name}.yaml").read_text()
    stated_line = next(line for line in text.splitlines() if line.startswith("release_decision"))
    assert decided(tmp_path, name, {stated_line: f"release_decision: {stated}"}).release == release
