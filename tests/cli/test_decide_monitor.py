import json

import pytest
from typer.testing import CliRunner

import monitor_builders
from agent2.cli import app
from agent2.errors import ConfigError

SUITE = "llm_core_regression_v1"


def invoke(*arguments):
    return CliRunner().invoke(app, ["monitor", *map(str, arguments)])


@pytest.mark.parametrize(
    ("run", "signals", "action", "code"),
    [
        ("healthy", set(), "continue", 0),
        ("kl_spike", {"kl_spike", "policy_drift"}, "pause", 1),
        ("entropy_collapse", {"entropy_collapse"}, "pause", 1),
        ("length_inflation", {"length_inflation"}, "continue", 1),
        ("reward_up_benchmark_down", {"reward_benchmark_divergence", "loophole"}, "pause", 1),
        ("cost_doubled", {"cost_inflation"}, "continue", 1),
    ],
)
def test_each_logged_run_gets_the_right_signal_and_the_healthy_one_none(tmp_path, run, signals, action, code):
    log = monitor_builders.write_jsonl(tmp_path / f"{run}.jsonl", getattr(monitor_builders, run)(0))
    result = invoke(log, "--suite", SUITE, "--out", tmp_path / "out")
    assert result.exit_code == code, result.output
    record = json.loads((tmp_path / "out" / "monitor.json").read_text())
    assert {signal["danger"] for signal in record["signals"]} == signals
    assert record["training_action"] == action
    assert result.output.strip().endswith("monitor.html")


def test_suspicious_rollouts_are_pulled_into_the_report(tmp_path):
    log = monitor_builders.write_jsonl(tmp_path / "log.jsonl", monitor_builders.healthy())
    rows = [
        {"id": f"i{i}", "reward": i / 100, "score": float(i < 95), "completion": f"text <b>{i}</b>"} for i in range(100)
    ]
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = invoke(log, "--suite", SUITE, "--rollouts", rollouts, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "monitor.json").read_text())
    assert record["pull"]["n_suspicious"] == 5
    html = (tmp_path / "out" / "monitor.html").read_text()
    assert "text &lt;b&gt;99&lt;/b&gt;" in html and "<script" not in html
    assert "99" in (tmp_path / "out" / "monitor.md").read_text()


def test_detector_thresholds_can_be_set_in_a_file_and_a_typo_is_named(tmp_path):
    log = monitor_builders.write_jsonl(tmp_path / "log.jsonl", monitor_builders.length_inflation())
    settings = tmp_path / "settings.yaml"
    settings.write_text("length_growth: 3.0\n")
    assert invoke(log, "--suite", SUITE, "--settings", settings, "--out", tmp_path / "out").exit_code == 0
    settings.write_text("length_grwth: 3.0\n")
    with pytest.raises(ConfigError, match="length_growth"):
        raise invoke(log, "--suite", SUITE, "--settings", settings, "--out", tmp_path / "out").exception


def test_out_of_order_steps_and_missing_series_are_told(tmp_path):
    rows = monitor_builders.healthy()
    rows[3], rows[4] = rows[4], rows[3]
    log = monitor_builders.write_jsonl(
        tmp_path / "log.jsonl", [{"step": r["step"], "reward": r["reward"]} for r in rows]
    )
    result = invoke(log, "--suite", SUITE, "--out", tmp_path / "out")
    assert result.exit_code == 0 and "out of order" in result.output
    assert "not watched, the log has no kl" in (tmp_path / "out" / "monitor.md").read_text()


def test_an_unknown_suite_is_bad_input(tmp_path):
    log = monitor_builders.write_jsonl(tmp_path / "log.jsonl", monitor_builders.healthy())
    result = invoke(log, "--suite", "llm_core_regresion_v1", "--out", tmp_path / "out")
    assert isinstance(result.exception, ConfigError) and "llm_core_regression_v1" in str(result.exception)


def test_dangers_are_looked_for_without_a_suite(tmp_path):
    healthy = monitor_builders.write_jsonl(tmp_path / "healthy.jsonl", monitor_builders.healthy())
    result = invoke(healthy, "--out", tmp_path / "out")
    assert result.exit_code == 0 and "training action: continue (dangers alone; --suite" in result.output
    assert "No suite was given" in (tmp_path / "out" / "monitor.md").read_text()
    spike = monitor_builders.write_jsonl(tmp_path / "spike.jsonl", monitor_builders.kl_spike(0))
    result = invoke(spike, "--out", tmp_path / "out", "--json")
    (record,) = json.loads(result.output)
    assert result.exit_code == 1 and record["suite"] is None and record["gates"] == []
    assert "kl_spike" in record["present"] or {s["danger"] for s in record["signals"]} >= {"kl_spike"}
