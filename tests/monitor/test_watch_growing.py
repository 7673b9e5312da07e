"""Judging line by line gives the verdicts of the whole log, at a cost that does not grow with it."""

import json
import sys

import numpy as np
import pytest

import monitor_builders
from agent2.contract.gates import HistoricalBestGate, LoopholeGate, RewardPrivateGate, SafetyGate
from agent2.contract.metrics import Direction, MetricSpec, Role, Unit
from agent2.monitor.detectors import detect
from agent2.monitor.readers import read_log
from agent2.monitor.series import Reading, assemble
from agent2.monitor.signals import Danger, measurements
from agent2.monitor.watch import LiveMonitor, Rules, stop_at, verdict, watch

SCORE = "gsm8k_exact_match"
SAFETY = MetricSpec(name="safety_violation_rate", role=Role.HARD_GATE, direction=Direction.LOWER, is_safety=True)
GATES = [HistoricalBestGate(), SafetyGate(), RewardPrivateGate(), LoopholeGate()]
RULES = Rules([MetricSpec(name=SCORE, benchmark="gsm8k", role=Role.PRIMARY), SAFETY], GATES)
LOSS = MetricSpec(name="loss", benchmark="text", role=Role.PRIMARY, direction=Direction.LOWER, unit=Unit.NUMBER)
LOWER = Rules([LOSS], [HistoricalBestGate(unit="relative", drop=0.05)])


def random_rows(seed, n=60):
    """Steady, rising, falling and broken quantities, with relaunches, repeated lines and lines that lack some."""
    rng = np.random.default_rng(seed)
    names = ["reward", "kl", "entropy", "length", "loss", "success", "signal_share", "reward_valid", "cost", "private"]
    names += [SCORE, "safety_violation_rate", "win_rate", "factuality", "invalid_share", "kl_initial", "refusal_rate"]
    drift = {name: rng.choice([-2.0, 0.0, 2.0]) / n for name in names}
    rows, step = [], 0
    for i in range(n):
        step = max(0, step - int(rng.integers(1, 20))) if rng.random() < 0.03 else step + 1
        row = {name: abs(0.5 + drift[name] * i + rng.normal(0, 0.05)) for name in names if rng.random() < 0.8}
        rows += [{"step": step, **row}] * (2 if rng.random() < 0.05 else 1)
    if seed % 2:
        rows[n // 2]["reward"] = float("nan")
    return rows


def relaunched(rows):
    """The run is launched again from a checkpoint at its middle."""
    return rows[:60] + [{**row, "reward": row["reward"] - 0.05} for row in rows[30:]]


LOGS = {
    "healthy": monitor_builders.healthy(0),
    "kl_spike": monitor_builders.kl_spike(0),
    "entropy_collapse": monitor_builders.entropy_collapse(0),
    "reward_up_benchmark_down": monitor_builders.reward_up_benchmark_down(0),
    "relaunched": relaunched(monitor_builders.kl_spike(1)),
    "rewritten": monitor_builders.healthy(1)[:40] + monitor_builders.reward_up_benchmark_down(1),
    **{f"random {seed}": random_rows(seed) for seed in range(2)},
}


def readings_of(rows, rules):
    return [
        Reading(int(row["step"]), name, value, f"step {int(row['step'])}")
        for row in rows
        for key, number in row.items()
        if key != "step"
        for name, value in measurements(key, number, rules.names())
    ]


def without_step(row):
    return {name: value for name, value in row.items() if name != "step"}


def said(training_verdict):
    """All of a verdict but the settings of gates, among which NaN may be."""
    findings = [(f.gate, f.state, f.rule, repr(f.inputs), repr(f.comparison)) for f in training_verdict.findings]
    return training_verdict.action, training_verdict.step, training_verdict.reasons, findings


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("rules", [RULES, LOWER], ids=["higher", "lower"])
def test_every_line_is_judged_as_the_whole_log_up_to_it(name, rules):
    monitor, rows = LiveMonitor(rules), LOGS[name]
    raised = {}
    for n, row in enumerate(rows, start=1):
        live = monitor.add(int(row["step"]), without_step(row))
        if n % 6 and n < len(rows):
            continue
        log = assemble("run", readings_of(rows[:n], rules))
        present = detect(rules.monitored(log))
        raised |= {signal.danger: signal for signal in present if signal.danger not in raised}
        assert said(live) == said(verdict(log, present, rules)), n
    assert set(raised) <= set(monitor.raised)


@pytest.mark.parametrize("name", LOGS)
def test_watching_a_log_raises_what_each_of_its_steps_shows_alone(name):
    log = assemble("run", readings_of(LOGS[name], RULES))
    raised = {}
    for step in sorted({int(row["step"]) for row in LOGS[name]}):
        points = [r for s in log.series.values() for r in zip(s.steps, s.values, strict=True) if r[0] <= step]
        assert points or log.not_finite
        alone = assemble("run", [
            *(Reading(int(at), s.name, float(value), "") for s in log.series.values()
              for at, value in zip(s.steps, s.values, strict=True) if at <= step),
            *(reading for reading in log.not_finite if reading.step <= step),
        ])  # fmt: skip
        for signal in detect(RULES.monitored(alone)):
            raised.setdefault(signal.danger, signal)
    watched = watch(RULES.monitored(log))
    assert {signal.danger: signal for signal in watched.signals} == raised


def test_a_half_written_last_line_changes_no_verdict_on_the_lines_before(tmp_path):
    rows = monitor_builders.kl_spike(0)
    lines = [json.dumps(row) for row in rows]
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn.jsonl"
    whole.write_text("\n".join(lines[:70]) + "\n")
    torn.write_text("\n".join(lines[:71])[:-20])
    of_whole, of_torn = (watch(RULES.monitored(read_log(path, RULES.names()))) for path in (whole, torn))
    assert of_torn.signals == of_whole.signals and of_torn.present == of_whole.present
    monitor = LiveMonitor(RULES)
    for row in rows[:70]:
        monitor.add(int(row["step"]), without_step(row))
    assert {s.danger: (s.step, s.evidence) for s in of_torn.signals} == {
        danger: (signal.step, signal.evidence) for danger, signal in monitor.raised.items()
    }


def test_a_log_that_was_cut_and_written_again_is_judged_by_what_it_says_now(tmp_path):
    """A relaunch from the start: its lines replace those of the launch before, step by step; what was raised stays."""
    old, new = monitor_builders.kl_spike(0), monitor_builders.healthy(0)
    monitor = LiveMonitor(RULES)
    for row in [*old, *new]:
        last = monitor.add(int(row["step"]), without_step(row))
    fresh = LiveMonitor(RULES)
    for row in new:
        of_new = fresh.add(int(row["step"]), without_step(row))
    assert said(last) == said(of_new) and Danger.KL_SPIKE in monitor.raised
    path = monitor_builders.write_jsonl(tmp_path / "train_log.jsonl", old)
    path.write_text("")
    monitor_builders.write_jsonl(path, new)
    assert watch(RULES.monitored(read_log(path, RULES.names()))).signals == []


def calls_of(action):
    """Function calls, ours and the libraries', that an action takes: its cost without the noise of a clock."""
    n_calls = 0

    def count(frame, event, argument):
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return n_calls


def line(i, rng):
    return {"reward": 0.3 + 0.0005 * i + rng.normal(0, 0.02), "kl": 0.01, SCORE: 0.5 + rng.normal(0, 0.01), "loss": 0.0}


def test_a_line_costs_the_same_after_three_hundred_lines_and_after_three_thousand():
    rng = np.random.default_rng(0)
    monitor = LiveMonitor(RULES)
    costs = {}
    for i in range(3001):
        values = line(i, rng)
        if i in (300, 3000):
            monitor.add(i - 1, values)  # what is begun when it is first asked for
            costs[i] = calls_of(lambda i=i, values=values: monitor.add(i, values))
        else:
            monitor._log.extend([Reading(i, name, value, "") for name, value in values.items()])
    assert costs[3000] <= 1.05 * costs[300], costs


def test_a_hook_that_stops_costs_the_same_at_each_line():
    stop, rng, costs = stop_at(*Danger), np.random.default_rng(0), []
    for i in range(601):
        row = {"step": i, **line(i, rng)}
        costs.append(calls_of(lambda row=row: stop(row)))
    assert costs[600] <= 1.05 * costs[300], (costs[300], costs[600])


def test_watching_a_log_of_twice_the_lines_costs_twice():
    rng = np.random.default_rng(0)
    rows = [{"step": i, **line(i, rng)} for i in range(800)]
    costs = {}
    for n in (400, 800):
        run = RULES.monitored(assemble("run", readings_of(rows[:n], RULES)))
        costs[n] = calls_of(lambda run=run: watch(run))
    assert costs[800] <= 2.1 * costs[400], costs
