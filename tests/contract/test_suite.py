import subprocess
import sys

import pytest

from agent2.contract.suite import EvaluationRole, Suite, SuiteBenchmark, unmet_prerequisite
from agent2.contract.suite_files import load_suite, suite_names
from agent2.errors import ConfigError
from agent2.records import SamplingSettings, Split

OTHER = SamplingSettings(0.9, 0.5, 7)


@pytest.fixture(scope="module")
def agent_suite():
    return load_suite("agent_tool_regression_v1")


def changed(suite: Suite, **values) -> Suite:
    return Suite.model_validate(suite.model_dump(mode="json") | values)


def dumped(suite: Suite) -> list[dict]:
    return suite.model_dump(mode="json")["benchmarks"]


def test_the_digest_covers_everything_but_the_checkpoint_under_test(agent_suite):
    assert changed(agent_suite, model="another").digest == agent_suite.digest
    others = {
        "version": "1.1",
        "description": "other words",
        "control_group": {"kind": "production", "checkpoint": "code-agent-sft"},
        "failure_taxonomy": {"wrong_function": "reward"},
        "gates": [gate.model_dump(mode="json") for gate in agent_suite.gates[:-1]],
    }
    digests = {changed(agent_suite, **{key: value}).digest for key, value in others.items()}
    assert len(digests | {agent_suite.digest}) == len(others) + 1


def test_name_and_version_are_told_together(agent_suite):
    assert agent_suite.id == "agent_tool_regression-v1.0"


def test_benchmarks_come_after_what_they_require(agent_suite):
    backwards = changed(agent_suite, benchmarks=[b.model_dump(mode="json") for b in reversed(agent_suite.benchmarks)])
    assert [entry.name for entry in backwards.in_order()] == ["bfcl_v3", "swebench_verified", "api_bank"]


def test_without_prerequisites_the_order_is_that_of_the_file():
    suite = load_suite("llm_core_regression_v1")
    assert [entry.name for entry in suite.in_order()] == ["mmlu_pro", "gsm8k", "ifeval"]


@pytest.mark.parametrize("scores", [{"bfcl_v3": 0.599}, {"bfcl_v3": None}, {}])
def test_a_prerequisite_below_its_floor_or_without_a_score_is_unmet(agent_suite, scores):
    unmet = unmet_prerequisite(agent_suite.benchmark("swebench_verified"), scores)
    assert unmet is not None and unmet.at_least == 0.6
    assert "swebench_verified was skipped: bfcl_v3" in str(unmet)


def test_a_prerequisite_at_its_floor_is_met(agent_suite):
    assert unmet_prerequisite(agent_suite.benchmark("swebench_verified"), {"bfcl_v3": 0.6}) is None
    assert unmet_prerequisite(agent_suite.benchmark("bfcl_v3"), {}) is None


def test_each_role_plays_its_split_and_number_of_items():
    suite = load_suite("llm_core_regression_mini")
    entry = suite.benchmark("mini_math")
    by_role = {role: (suite.role_rule(role).split, suite.n_items(entry, role)) for role in EvaluationRole}
    assert by_role == {
        EvaluationRole.DEV: (Split.DEV, 100),
        EvaluationRole.NIGHTLY: (Split.TEST_PUBLIC, 200),
        EvaluationRole.CANDIDATE: (Split.TEST_PRIVATE, 200),
    }


def test_no_number_of_items_anywhere_means_all_there_are():
    suite = load_suite("llm_core_regression_v1")
    assert suite.n_items(suite.benchmarks[0], EvaluationRole.NIGHTLY) is None
    assert suite.n_items(suite.benchmarks[0], EvaluationRole.DEV) == 200


def test_sampling_is_the_protocols_unless_a_benchmark_has_its_own_length():
    suite = load_suite("agent_tool_regression_mini")
    assert suite.sampling(suite.benchmark("mini_functions"), OTHER) == SamplingSettings(0.0, 1.0, 64)
    assert suite.sampling(suite.benchmark("mini_apis"), OTHER).max_tokens == 40


def test_a_suite_leaves_settings_unset_in_its_protocol_or_for_one_benchmark():
    suite = load_suite("agent_tool_regression_mini", ["protocol.sampling.top_p=unset"])
    assert suite.sampling(suite.benchmark("mini_functions"), OTHER) == SamplingSettings(0.0, None, 64)
    own = changed(suite, benchmarks=[entry | {"sampling": {"temperature": "unset"}} for entry in dumped(suite)])
    assert own.sampling(own.benchmarks[0], OTHER) == SamplingSettings(None, 0.5, own.benchmarks[0].max_tokens or 7)


@pytest.mark.parametrize("value", ["none", -1, "0.5x"])
def test_another_word_than_unset_is_refused(value):
    with pytest.raises(ConfigError, match=r"protocol.sampling.temperature.*unset"):
        load_suite("agent_tool_regression_mini", [f"protocol.sampling.temperature={value}"])


@pytest.mark.parametrize("name", suite_names())
def test_a_packaged_suite_has_the_mandatory_parts_and_one_primary_metric(name):
    suite = load_suite(name)
    assert suite.primary.benchmark in {entry.name for entry in suite.benchmarks}
    assert suite.task_distribution.production_tasks and suite.failure_taxonomy
    assert suite.splits.test_private.value == "release_gate_only"
    assert suite.cadence.candidate.spot_check
    assert all(isinstance(entry, SuiteBenchmark) and entry.scorer.name for entry in suite.benchmarks)
    assert (suite.agent is None) == (suite.protocol.tools is None)


def test_suites_load_without_torch_and_without_benchmarks():
    code = (
        "import sys; from agent2.contract.suite_files import load_suite; load_suite('agent_tool_regression_v1');"
        "heavy = {'torch', 'transformers', 'agent2.benchmarks', 'agent2.models', 'agent2.environments'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
