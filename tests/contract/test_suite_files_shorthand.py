# ruff: noqa: E501  (tables of one case a line)
from importlib import resources

import pytest
import yaml

from agent2.config import read_yaml_text
from agent2.contract.suite_files import expand, load_suite, open_suite
from agent2.errors import ConfigError
from agent2.records import Split

POST_TRAINING = """\
model: qwen-rl-step-1800
baseline: qwen-sft
sampling:
  temperature: 0.6
  top_p: 0.95
  n: 1
  max_tokens: 4096
judge:
  type: rule_then_llm_judge
  order_randomization: true
  tie_policy: count_as_half
split:
  dev: visible_for_iteration
  test_public: reported_every_night
  test_private: release_gate_only
"""

LLM = """\
suite: llm_core_regression_v1
model: qwen2.5-7b-grpo-step-1800
baseline: qwen2.5-7b-sft
generation:
  temperature: 0.0
  top_p: 1.0
  max_tokens: 2048
datasets:
  - name: mmlu_pro
    split: test
    metric: accuracy
  - name: gsm8k
    split: test
    metric: exact_match
  - name: ifeval
    split: test
    metric: prompt_level_accuracy
"""

OWN = """\
suite: mine_v1.0
track: llm_core
control_group: {kind: sft, checkpoint: null}
benchmarks:
- {name: quiz, source: ./quiz, scorer: {name: exact, tier: reference}, split: test_public, metric: quiz_accuracy, n_items: null}
metrics:
- {name: quiz_accuracy, benchmark: quiz, role: primary}
"""
TASKS = "task_distribution: {production_tasks: [{name: quiz, difficulty: medium, benchmarks: [quiz]}]}\n"

VLM = """\
suite: vlm_reasoning_regression_v1
model: qwen-vl-rl-step-900
baseline: qwen-vl-sft
generation:
  temperature: 0.0
  max_tokens: 1024
input:
  image_resolution: 1344
  preserve_aspect_ratio: true
metrics:
  - accuracy
  - relaxed_numeric_accuracy
  - ocr_error_rate
  - answer_parse_fail_rate
"""

AGENT = """\
suite: agent_tool_regression_v1
model: code-agent-rl-step-2400
baseline: code-agent-sft
tool_protocol:
  parallel_tool_calls: true
  max_tool_calls: 50
  max_wall_time_minutes: 20
datasets:
  - name: bfcl_v3
    metric: executable_accuracy
  - name: api_bank
    metric: api_call_accuracy
  - name: swebench_verified
    metric: resolved_rate
"""


def read(text, name="my_suite.yaml"):
    return expand(read_yaml_text(text, name))


def refused(text, name="my_suite.yaml"):
    with pytest.raises(ConfigError) as caught:
        read(text, name)
    return str(caught.value)


def origins(expansion):
    return {note.field: (note.value, note.origin) for note in expansion.notes}


@pytest.mark.parametrize(
    ("text", "packaged"),
    [
        (LLM, "llm_core_regression_v1"),
        (VLM, "vlm_reasoning_regression_v1"),
        (AGENT, "agent_tool_regression_v1"),
        (POST_TRAINING, "post_training_protocol"),
    ],
)
def test_the_packaged_suites_are_the_source_examples_as_they_stand(text, packaged):
    assert read(text, f"{packaged}.yaml").suite == load_suite(packaged)


def test_the_llm_example_keeps_what_it_says():
    suite = read(LLM).suite
    assert (suite.id, suite.model, suite.baseline) == (
        "llm_core_regression-v1.0",
        "qwen2.5-7b-grpo-step-1800",
        "qwen2.5-7b-sft",
    )
    sampling = suite.protocol.sampling
    assert (sampling.temperature, sampling.top_p, sampling.n, sampling.max_tokens) == (0.0, 1.0, 1, 2048)
    assert [(entry.name, entry.split, entry.metric) for entry in suite.benchmarks] == [
        ("mmlu_pro", Split.TEST_PUBLIC, "mmlu_pro_accuracy"),
        ("gsm8k", Split.TEST_PUBLIC, "gsm8k_exact_match"),
        ("ifeval", Split.TEST_PUBLIC, "ifeval_prompt_accuracy"),
    ]
    assert suite.primary.name == "gsm8k_exact_match"


def test_the_vlm_example_keeps_its_input_and_metrics():
    suite = read(VLM).suite
    assert suite.protocol.input.image_resolution == 1344 and suite.protocol.input.preserve_aspect_ratio
    assert suite.protocol.sampling.max_tokens == 1024
    assert [metric.name for metric in suite.metrics] == [
        "mmmu_val_accuracy",
        "mathvista_accuracy",
        "chartqa_relaxed_accuracy",
        "ocr_error_rate",
        "answer_parse_fail_rate",
        "safety_violation_rate",  # a list of short names cannot leave safety out
    ]


def test_the_agent_example_keeps_its_tool_protocol():
    suite = read(AGENT).suite
    assert suite.protocol.tools.parallel_tool_calls and suite.protocol.tools.max_tool_calls == 50
    assert suite.protocol.max_wall_time_minutes == 20
    assert suite.agent.trajectory_audit.error_recovery and suite.agent.success_criteria


def test_the_post_training_example_is_known_by_its_keys_and_named_after_its_file():
    expansion = read(POST_TRAINING, "somewhere/Math RLVR_v3.2.yaml")
    suite = expansion.suite
    assert (suite.id, suite.track) == ("math_rlvr-v3.2", "post_training")
    assert suite.protocol.judge.tie_policy.value == "count_as_half" and suite.protocol.judge.order_randomization
    assert suite.protocol.sampling.temperature == 0.6 and suite.protocol.sampling.max_tokens == 4096
    assert suite.splits.train.value == "visible_for_training"
    assert origins(expansion)["name"] == ("math_rlvr", "the name of the file Math RLVR_v3.2.yaml")


def test_every_part_that_was_filled_in_is_noted_with_its_place():
    notes = origins(read(LLM))
    assert notes["version"] == ("1.0", "suite in my_suite.yaml:1")
    value, origin = notes["protocol.sampling.n"]
    assert value == "1" and origin.startswith("track llm_core (tracks/llm_core.yaml:")
    assert notes["protocol.judge"][0] == "null"
    assert notes["benchmarks[gsm8k].split"] == ("test_public", "'test' in my_suite.yaml:13")
    assert notes["benchmarks[gsm8k].metric"] == ("gsm8k_exact_match", "'exact_match' in my_suite.yaml:14")
    for part in ("task_distribution.production_tasks", "control_group.kind", "splits.dev", "gates[length]", "agent"):
        assert part in notes
    for stated in ("protocol.sampling.temperature", "control_group.checkpoint", "model", "benchmarks[gsm8k].name"):
        assert stated not in notes


def test_the_line_of_a_note_is_the_templates_line():
    _, origin = origins(read(LLM))["failure_taxonomy.refusal"]
    number = int(origin.rstrip(")").rsplit(":", 1)[1])
    lines = (resources.files("agent2.contract") / "tracks" / "llm_core.yaml").read_text().splitlines()
    assert lines[number - 1].strip() == "refusal: safety"


def test_defaults_that_nobody_wrote_are_told_apart():
    defaults = {note.field: note.value for note in read(LLM).defaults}
    assert defaults["gates[release_evidence].min_spot_checks"] == "20"
    assert "gates[length].max_rise" not in defaults


def test_expanding_a_full_suite_changes_nothing():
    suite = load_suite("agent_tool_regression_mini")
    again = read(yaml.safe_dump(suite.model_dump(mode="json"), sort_keys=False))
    assert again.suite == suite and again.notes == ()


def test_benchmarks_that_are_not_listed_take_their_metrics_and_gates_with_them_and_it_is_said():
    short = LLM[: LLM.index("  - name: ifeval")]
    expansion = read(short)
    assert "ifeval_prompt_accuracy" not in {metric.name for metric in expansion.suite.metrics}
    notes = origins(expansion)
    assert notes["metrics[ifeval_prompt_accuracy]"] == ("left out", "its benchmark is not in this suite")
    assert notes["gates[instructions_hold]"] == ("left out", "it reads a metric that is not in this suite")


def test_a_prerequisite_from_the_template_that_is_not_in_the_suite_is_left_out_and_said():
    text = AGENT.replace("  - name: bfcl_v3\n    metric: executable_accuracy\n", "")
    expansion = read(text)
    assert expansion.suite.benchmark("swebench_verified").requires == []
    assert ("benchmarks[swebench_verified].requires", "bfcl_v3") in {(n.field, n.value) for n in expansion.notes}


def test_what_the_file_says_wins_over_the_template():
    text = (
        LLM + "gates:\n- {name: evidence}\n- {name: primary_holds, tolerance: 0.02}\n- {name: length, max_rise: 0.5}\n"
    )
    text += "- {name: safety}\n- {name: knowledge_holds}\n- {name: instructions_hold}\n- {name: format_failures}\n"
    gates = {gate.name: gate for gate in read(text).suite.gates}
    assert len(gates) == 7 and gates["length"].max_rise == 0.5 and gates["length"].metric == "response_length_mean"
    assert gates["primary_holds"].tolerance == 0.02 and gates["primary_holds"].kind == "regression"


def test_overrides_reach_the_suite():
    assert open_suite("llm_core_regression_v1", ["generation.n=4"]).suite.protocol.sampling.n == 4


def test_an_override_that_is_wrong_is_named_as_one():
    with pytest.raises(ConfigError, match=r"^--set generation\.temperature=-1: .*give a temperature of 0 to 100"):
        open_suite("llm_core_regression_v1", ["generation.temperature=-1"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LLM.replace("metric: exact_match", "metric: exact_mach"), "my_suite.yaml:14: unknown metric of gsm8k 'exact_mach'; did you mean 'exact_match'?"),
        (VLM.replace("  - ocr_error_rate", "  - ocr_eror_rate"), "my_suite.yaml:13: unknown metric 'ocr_eror_rate'; did you mean 'ocr_error_rate'?"),
        (LLM.replace("split: test", "split: tset", 1), "my_suite.yaml:10: unknown split 'tset'; did you mean 'test'?"),
        (POST_TRAINING.replace("dev: visible_for_iteration", "dev: visible_for_iterations"), "unknown dev 'visible_for_iterations'; did you mean 'visible_for_iteration'?"),
        (POST_TRAINING.replace("count_as_half", "count_as_halve"), "my_suite.yaml:11: unknown tie_policy 'count_as_halve'; did you mean 'count_as_half'?"),
        (LLM + "metrics:\n- {name: gsm8k_exact_match, role: primry}\n", "my_suite.yaml:19: unknown role 'primry'; did you mean 'primary'?"),
        (LLM + "metrics:\n- {name: gsm8k_exact_match, rolle: primary}\n", "my_suite.yaml:19: unknown key 'metrics.0.rolle'; did you mean 'role'?"),
        (LLM + "metrics:\n- {name: m, benchmark: gsm8, role: primary}\n", "unknown benchmark 'gsm8'; did you mean 'gsm8k'?"),
        (LLM + "metrics:\n- {name: gsm8k_exact_match, measure: scor}\n", "my_suite.yaml:19: metric 'gsm8k_exact_match': unknown measure 'scor'; did you mean 'score'?"),
        (LLM + "metrics:\n- {name: gsm8k_exact_match, split: test_pubic}\n", "my_suite.yaml:19: unknown split 'test_pubic'; did you mean 'test_public'?"),
        (LLM + "gates:\n- kind: regresion\n  name: g\n", "my_suite.yaml:19: unknown kind 'regresion'; did you mean 'regression'?"),
        (LLM + "gates:\n- kind: regression\n  name: g\n  metrics: [gsm8k_exact_mach]\n", "my_suite.yaml:21: gate 'g': unknown metric 'gsm8k_exact_mach'; did you mean 'gsm8k_exact_match'?"),
        (LLM + "gates:\n- kind: regression\n  name: g\n  metrics: [gsm8k_exact_match]\n  tolerence: 0.1\n", "my_suite.yaml:22: unknown key 'gates.0.regression.tolerence'; did you mean 'tolerance'?"),
        (AGENT.replace("    metric: resolved_rate", "    metric: resolved_rate\n    requires: [{benchmark: bfcl, at_least: 0.5}]"), "my_suite.yaml:15: unknown benchmark prerequisite 'bfcl'; did you mean 'bfcl_v3'?"),
        (LLM + "modle: x\n", "my_suite.yaml:18: unknown key 'modle'; did you mean 'model'?"),
        (LLM.replace("temperature: 0.0", "temperature: -0.1"), "my_suite.yaml:5: protocol.sampling.temperature: give a temperature of 0 to 100, or unset to send none (got -0.1)"),
        (LLM.replace("max_tokens: 2048", "max_tokens: many"), "my_suite.yaml:7: protocol.sampling.max_tokens: "),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_the_nearest_name(text, message):
    assert message in refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LLM.replace("baseline: qwen2.5-7b-sft\n", ""), "names no baseline, and a score without control group is no evidence"),
        (LLM.replace("llm_core_regression_v1", "my_own_v1"), "no track is named and no template matches; add 'track' (known: agent_tool, llm_core"),
        ("suite: a_v1\ntrack: my_track\nbaseline: b\n", "the suite has no task_distribution, one of its six mandatory parts"),
        ("suite: a_v1\ntrack: llm_cor\nbaseline: b\n", "track 'llm_cor' has no template (did you mean 'llm_core'?)"),
        (LLM + "  - name: my_bench\n    split: test\n    metric: accuracy\n", "my_suite.yaml:18: benchmark 'my_bench' has no scorer and no n_items, and track 'llm_core' does not know it; add scorer: {name: exact, tier: reference}, n_items: null (an example), or let `agent2 suite new ./my_bench` write the suite"),
        (OWN, "my_suite.yaml: none of the tasks of template 'llm_core' uses the suite's benchmarks, so it needs a task_distribution of its own; add task_distribution: {production_tasks: [{name: quiz, difficulty: medium, benchmarks: [quiz]}]}"),
        (OWN + TASKS, "my_suite.yaml:1: nothing blocks a fall of the primary metric 'quiz_accuracy'; name it in a gate of kind 'regression', such as {kind: regression, name: primary_holds, metrics: [quiz_accuracy], "),
        ((OWN + TASKS).replace("control_group: {kind: sft, checkpoint: null}\n", ""), "my_suite.yaml:1: the suite names no baseline"),
        (LLM + "failure_taxonomy: null\n", "the suite has no failure_taxonomy, one of its six mandatory parts"),
        (LLM + "task_distribution: null\n", "the suite has no task_distribution"),
        (LLM + "control_group: null\n", "'control_group' is not a mapping of keys; 'baseline' belongs into it"),
        (LLM + "splits: null\n", "the suite has no splits"),
        (LLM.replace("datasets:", "sampling: {n: 2}\ndatasets:"), "'generation' says the same as 'protocol.sampling', which is there too"),
        (LLM + "version: v2.0\n", "my_suite.yaml:18: version '2.0' is not the '1.0' of 'llm_core_regression_v1'"),
        (LLM.replace("llm_core_regression_v1", "llm_core_regression") + "version: 2.0\n", "version 2.0 is a number"),
        (LLM + "name: x\n", "'suite' says the same as 'name'"),
        (LLM + "gates: []\n", "the suite has no gates"),
        (LLM[: LLM.index("datasets")] + "datasets: 7\n", "my_suite.yaml:8: benchmarks: Input should be a valid list (got 7)"),
        (LLM[: LLM.index("datasets")] + "datasets: [[]]\n", "my_suite.yaml:8: "),
        (LLM + "protocol: 7\n", "my_suite.yaml:18: 'protocol' is not a mapping of keys"),
        (LLM + "metrics:\n- {name: gsm8k_exact_match, measure: 'pass_at:8'}\n", "my_suite.yaml:19: metric 'gsm8k_exact_match' needs 8 attempts, protocol.sampling.n is 1"),
        (LLM.replace("top_p: 1.0", "n: 8") + "metrics:\n- {name: gsm8k_exact_match, measure: 'pass_at:8'}\n", "no metric of gsm8k is the chance with one; add one"),
        (POST_TRAINING.replace("release_gate_only", "reported_every_night"), "it must be 'release_gate_only'"),
        (POST_TRAINING + "cadence: {nightly: {split: test_private}}\n", "cadence.nightly plays test_private; use dev or test_public"),
        (LLM + "task_distribution:\n  production_tasks:\n  - {name: a, difficulty: easy, benchmarks: [gsm8k], share: 0.4}\n", "with sum 1, or none"),
    ],
)  # fmt: skip
def test_a_gap_or_contradiction_is_refused(text, message):
    assert message in refused(text)


def metric(name, role, benchmark="gsm8k"):
    return f"- {{name: {name}, benchmark: {benchmark}, role: {role}}}\n"


OWN_GATES = "gates:\n- {kind: regression, name: holds, metrics: [a]}\n"


@pytest.mark.parametrize("roles", [("diagnostic", "diagnostic"), ("primary", "primary")])
def test_no_or_two_primary_metrics_are_refused(roles):
    text = LLM.replace("  - name: mmlu_pro\n    split: test\n    metric: accuracy\n", "")
    text = text[: text.index("  - name: ifeval")].replace("metric: exact_match", "metric: a")
    message = refused(text + "metrics:\n" + metric("a", roles[0]) + metric("b", roles[1]) + OWN_GATES)
    assert "my_suite.yaml:12: exactly one metric has the role 'primary', here it is" in message
    assert ("a and b" if "primary" in roles else "none") in message


def test_a_metric_whose_role_is_to_gate_needs_a_gate():
    text = LLM[: LLM.index("  - name: ifeval")].replace("metric: exact_match", "metric: a")
    text = text.replace("  - name: mmlu_pro\n    split: test\n    metric: accuracy\n", "")
    message = refused(text + "metrics:\n" + metric("a", "primary") + metric("b", "hard_gate") + OWN_GATES)
    assert "metric 'b' has the role 'hard_gate' and no gate reads it" in message


def test_benchmarks_that_require_each_other_are_refused():
    text = AGENT.replace(
        "    metric: executable_accuracy",
        "    metric: executable_accuracy\n    requires: [{benchmark: api_bank, at_least: 0.1}]",
    )
    assert "benchmarks require each other in a circle" in refused(text)


def test_a_suite_without_any_template_may_be_spelled_out():
    suite = load_suite("llm_core_regression_mini")
    data = suite.model_dump(mode="json") | {"track": "my_track", "name": "mine"}
    assert read(yaml.safe_dump(data)).suite.id == "mine-v1.0"


@pytest.mark.parametrize("part", ["task_distribution", "protocol", "control_group", "splits", "failure_taxonomy"])
def test_a_suite_without_template_lacks_none_of_the_mandatory_parts(part):
    data = load_suite("llm_core_regression_mini").model_dump(mode="json") | {"track": "my_track"}
    del data[part]
    assert f"the suite has no {part}, one of its six mandatory parts" in refused(yaml.safe_dump(data))


@pytest.mark.parametrize("part", ["context_length", "tools", "max_wall_time_minutes", "retries", "judge", "input"])
def test_nothing_that_changes_a_score_has_a_silent_default(part):
    data = load_suite("llm_core_regression_mini").model_dump(mode="json") | {"track": "my_track"}
    del data["protocol"][part]
    assert f"key 'protocol.{part}' is missing" in refused(yaml.safe_dump(data))
