"""The thresholds of the packaged suites, on the reports of the sources and on variations of them."""

import pytest

from agent2.benchmarks import load_benchmark
from agent2.contract.decision import decide
from agent2.contract.report_file import read_report
from agent2.contract.suite import hold_prerequisites
from agent2.contract.suite_files import load_suite
from agent2.environments.tools.world import USUAL_FAULTS, ErrorKind
from agent2.records import SamplingSettings
from agent2.scorers.constraints import default_label
from agent2.scorers.constraints.checks import InstructionClass

LLM = {
    "checkpoint": "qwen2.5-7b-grpo-step-1800",
    "mmlu_pro_accuracy": "44.8% -> 44.1% (-0.7)",
    "gsm8k_exact_match": "72.4% -> 77.9% (+5.5)",
    "ifeval_prompt_accuracy": "63.0% -> 57.2% (-5.8)",
    "response_length_mean": "612 -> 941 (+53.8%)",
}
VLM = {
    "checkpoint": "qwen-vl-rl-step-900",
    "mmmu_val_accuracy": "42.0% -> 44.6% (+2.6)",
    "mathvista_accuracy": "37.5% -> 38.1% (+0.6)",
    "chartqa_relaxed_accuracy": "61.8% -> 54.7% (-7.1)",
    "answer_parse_fail_rate": "3.2% -> 4.9% (+1.7)",
}
AGENT = {
    "checkpoint": "code-agent-rl-step-2400",
    "bfcl_executable_accuracy": "82.1% -> 85.6% (+3.5)",
    "api_bank_call_accuracy": "68.4% -> 66.9% (-1.5)",
    "swebench_verified_resolved": "28.0% -> 32.4% (+4.4)",
    "avg_tool_calls_successful_tasks": "18.6 -> 27.9 (+50.0%)",
    "tool_error_recovery_rate": "41.2% -> 37.5% (-3.7)",
    "safety_violation_rate": "0.3% -> 0.9% (+0.6)",
}
IFEVAL_HOLDS = {"ifeval_prompt_accuracy": "63.0% -> 62.8% (-0.2)"}
LENGTH_HOLDS = {"response_length_mean": "612 -> 630 (+2.9%)"}
CHARTS_HOLD = {"chartqa_relaxed_accuracy": "61.8% -> 61.6% (-0.2)"}
SOUND = LLM | IFEVAL_HOLDS | LENGTH_HOLDS


@pytest.mark.parametrize(
    ("suite", "report", "release", "training", "fired"),
    [
        ("llm_core_regression_v1", LLM, "block", "continue", {"instructions_hold", "length"}),
        ("llm_core_regression_v1", SOUND, "candidate", "continue", set()),
        ("llm_core_regression_v1", LLM | IFEVAL_HOLDS, "research_only", "continue", {"length"}),
        (
            "llm_core_regression_v1",
            LLM | {"safety_violation_rate": "0.3% -> 0.9% (+0.6)"},
            "block",
            "pause_human_review",
            {"instructions_hold", "length", "safety"},
        ),
        ("vlm_reasoning_regression_v1", VLM, "block_for_chart_tasks", "continue", {"charts_hold"}),
        ("vlm_reasoning_regression_v1", VLM | CHARTS_HOLD, "candidate", "continue", set()),
        (
            "vlm_reasoning_regression_v1",
            VLM | {"mmmu_val_accuracy": "42.0% -> 33.0% (-9.0)"},
            "block",
            "continue",
            {"primary_holds", "charts_hold"},
        ),
        (
            "agent_tool_regression_v1",
            AGENT,
            "research_only",
            "pause_human_review",
            {"cost_budget", "success_and_cost", "safety"},
        ),
        (
            "agent_tool_regression_v1",
            AGENT
            | {
                "avg_tool_calls_successful_tasks": "18.6 -> 19.0 (+2.2%)",
                "safety_violation_rate": "0.3% -> 0.3% (0.0)",
            },
            "candidate",
            "continue",
            set(),
        ),
        (
            "agent_tool_regression_v1",
            AGENT | {"swebench_verified_resolved": "28.0% -> 24.0% (-4.0)"},
            "block",
            "pause_human_review",
            {"primary_holds", "cost_budget", "success_and_cost", "safety"},
        ),
    ],
)
def test_the_reference_reports_come_out_as_they_should(suite, report, release, training, fired, tmp_path):
    contract, path = load_suite(suite), tmp_path / "report.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in report.items()))
    decision = decide(contract.metrics, contract.gates, read_report(path, contract.metrics, contract.baseline))
    assert (decision.release, decision.training_action.value) == (release, training)
    assert {finding.gate for finding in decision.fired} == fired


@pytest.mark.parametrize(("earlier", "training"), [([0.791], "continue"), ([0.791, 0.779], "pause")])
def test_one_evaluation_below_the_best_is_no_reason_to_pause_and_two_are(earlier, training, tmp_path):
    contract, path = load_suite("llm_core_regression_v1"), tmp_path / "report.yaml"
    text = "".join(f"{key}: {value}\n" for key, value in SOUND.items())
    path.write_text(f"{text}history: {{gsm8k_exact_match: {earlier}}}\n")
    decision = decide(contract.metrics, contract.gates, read_report(path, contract.metrics, contract.baseline))
    assert decision.training_action.value == training


@pytest.mark.parametrize(
    "name", ["llm_core_regression_mini", "agent_tool_regression_mini", "vlm_reasoning_regression_mini"]
)
def test_the_mini_suites_play_installed_benchmarks_the_way_they_were_made_for(name):
    suite = load_suite(name)
    for entry in suite.benchmarks:
        benchmark = load_benchmark(entry.name)
        assert suite.sampling(entry, SamplingSettings(0.9)) == benchmark.sampling
        assert entry.scorer.name == benchmark.scorer().name
        assert entry.n_items == 200


def test_the_taxonomies_know_the_bad_cases_that_the_mini_scorers_name():
    llm, agent = (
        load_suite(f"{name}_mini").failure_taxonomy for name in ("llm_core_regression", "agent_tool_regression")
    )
    assert {default_label(kind) for kind in InstructionClass} <= set(llm)
    kinds = {*USUAL_FAULTS, *ErrorKind} - {ErrorKind.REFUSED, ErrorKind.BUDGET}
    assert {f"tool_{kind}_no_recovery" for kind in kinds} <= set(agent)


def test_a_report_is_held_to_prerequisites_as_an_evaluation_is(tmp_path):
    contract = load_suite("agent_tool_regression_v1")

    def decided(**changes):
        path = tmp_path / "r.yaml"
        path.write_text("\n".join(f"{key}: {value}" for key, value in (AGENT | changes).items()))
        evidence = hold_prerequisites(contract, read_report(path, contract.metrics, contract.baseline))
        return decide(contract.metrics, contract.gates, evidence)

    assert decided().release == "research_only"
    low = decided(bfcl_executable_accuracy="20.0% -> 20.0% (+0.0)")
    assert low.release == "insufficient"
    skipped = "swebench_verified was skipped: bfcl_v3 scored 20.0%, 60.0% is needed"
    assert any(skipped in problem.detail for problem in low.problems)
