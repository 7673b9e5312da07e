import numpy as np
import pytest

import monitor_builders
from agent2.contract.findings import SignalInput
from agent2.contract.gates import (
    HistoricalBestGate,
    LoopholeGate,
    RegressionGate,
    RewardPrivateGate,
    SafetyGate,
    TrainingAction,
)
from agent2.contract.metrics import Direction, MetricSpec, Role
from agent2.monitor.series import Reading, assemble
from agent2.monitor.signals import Danger, MonitorSettings
from agent2.monitor.watch import LiveMonitor, Rules, verdict

SCORE = "gsm8k_exact_match"
RULES = Rules(
    metrics=[
        MetricSpec(name=SCORE, benchmark="gsm8k", role=Role.PRIMARY),
        MetricSpec(name="safety_violation_rate", role=Role.HARD_GATE, direction=Direction.LOWER, is_safety=True),
    ],
    gates=[
        HistoricalBestGate(),
        SafetyGate(),
        RewardPrivateGate(),
        LoopholeGate(),
        RegressionGate(name="primary", metrics=[SCORE]),
    ],
)


def log_of(**series):
    return assemble("run", (Reading(i, name, v, "") for name, values in series.items() for i, v in enumerate(values)))


def action_of(**series):
    return verdict(log_of(**series), [], RULES).action


def test_two_evaluations_below_the_best_pause_and_one_does_not():
    steady = [0.50, 0.52, 0.54, 0.56, 0.58, 0.60]  # no noise: one point is a real drop
    assert action_of(**{SCORE: [*steady, 0.588]}) is TrainingAction.CONTINUE
    assert action_of(**{SCORE: [*steady, 0.588, 0.588]}) is TrainingAction.PAUSE


def evaluations(seed, n, noise):
    """A run that rises a little and then stays, evaluated on few items."""
    rng = np.random.default_rng(seed)
    return [0.6 + 0.1 * min(1.0, i / n) + rng.normal(0, noise) for i in range(n)]


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_the_best_of_noisy_evaluations_is_no_level_that_a_run_has_to_hold(noise):
    """Looked at after each evaluation, as a live monitor does; before, every such run was paused."""
    runs = [evaluations(seed, 30, noise) for seed in range(40)]
    paused = [
        any(action_of(**{SCORE: values[: n + 1]}) is TrainingAction.PAUSE for n in range(2, 30)) for values in runs
    ]
    assert sum(paused) <= 2, sum(paused)
    gate = HistoricalBestGate()
    fixed = [any(max(v[: n - 1]) - max(v[n - 1 : n + 1]) > gate.drop for n in range(2, 30)) for v in runs]
    assert sum(fixed) > 20  # what the gate's own drop would do


def test_a_real_drop_pauses_whatever_the_noise():
    for seed in range(20):
        values = evaluations(seed, 20, 0.03)
        assert action_of(**{SCORE: [*values, *(value - 0.25 for value in values[-5:])]}) is TrainingAction.PAUSE


def test_a_safety_metric_that_gets_worse_pauses_for_review():
    review = verdict(log_of(**{SCORE: [0.5, 0.6], "safety_violation_rate": [0.003, 0.009]}), [], RULES)
    assert review.action is TrainingAction.PAUSE_HUMAN_REVIEW
    assert "gate safety" in review.reasons[0] and "0.3% -> 0.9%" in review.reasons[0]


def test_reward_up_and_private_down_rolls_back():
    rising = [0.1 * i for i in range(20)]
    assert action_of(**{SCORE: [0.5, 0.6], "reward": rising, "private": [0.55, 0.50]}) is TrainingAction.ROLLBACK
    assert action_of(**{SCORE: [0.5, 0.6], "reward": rising, "private": [0.55, 0.56]}) is TrainingAction.CONTINUE


def test_reward_that_only_wobbles_counts_as_unchanged():
    level = [0.5 + 0.01 * (-1) ** i for i in range(20)]
    assert action_of(**{SCORE: [0.5, 0.6], "reward": level, "private": [0.55, 0.50]}) is TrainingAction.CONTINUE


def test_a_change_is_told_in_values_that_were_seen_and_not_by_the_end_of_a_line_through_them():
    entropy = [0.05 + 1.02 * 0.7**i for i in range(30)]  # falls fast, then lies flat: a straight line ends below 0
    kl = [0.001 * 1.3**i for i in range(30)]
    log = log_of(
        **{SCORE: [0.60, 0.55, 0.50, 0.45], "reward": [0.01 * i for i in range(30)], "kl": kl, "entropy": entropy}
    )
    finding = next(finding for finding in verdict(log, [], RULES).findings if finding.gate == "loophole")
    (change,) = [read.change for read in finding.inputs if isinstance(read, SignalInput) and read.name == "entropy"]
    assert finding.fired
    assert min(entropy) <= change.new < change.old <= max(entropy)


def test_a_healthy_run_goes_on_and_the_gates_say_what_they_saw():
    monitor = LiveMonitor(RULES)
    for row in monitor_builders.healthy(3):
        training_verdict = monitor.add(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
        assert training_verdict.action is TrainingAction.CONTINUE, training_verdict.reasons
    assert monitor.raised == {}
    assert {finding.gate for finding in training_verdict.findings} >= {
        "historical_best",
        "safety",
        "reward_private",
        "loophole",
    }


def test_a_live_monitor_pauses_at_the_step_of_the_spike_and_settings_can_say_otherwise():
    for actions, expected in (({}, TrainingAction.PAUSE), ({Danger.KL_SPIKE: "continue"}, TrainingAction.CONTINUE)):
        rules = Rules(RULES.metrics, RULES.gates, MonitorSettings(actions=actions))
        monitor = LiveMonitor(rules)
        action_at_step = {}
        for row in monitor_builders.kl_spike(0):
            training_verdict = monitor.add(
                int(row["step"]), {name: value for name, value in row.items() if name != "step"}
            )
            action_at_step[int(row["step"])] = training_verdict.action
        assert action_at_step[250] is TrainingAction.CONTINUE
        assert action_at_step[255] is expected
        assert Danger.KL_SPIKE in monitor.raised


def test_only_gates_about_training_are_asked():
    training_verdict = verdict(log_of(**{SCORE: [0.6, 0.3]}), [], RULES)
    assert all(finding.kind != "regression" for finding in training_verdict.findings)


def test_settings_refuse_an_unknown_danger():
    with pytest.raises(ValueError, match="actions"):
        MonitorSettings(actions={"boredom": "pause"})
