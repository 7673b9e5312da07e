"""Runs that go wrong as real ones do: each raises its danger within 15 logged points; healthy ones raise none."""

import math

import numpy as np
import pytest

import monitor_builders
from agent2.contract.metrics import Direction, MetricSpec, Role
from agent2.monitor.series import Reading, assemble
from agent2.monitor.signals import Danger, MonitoredRun, MonitorSettings, canonical_name, measurements
from agent2.monitor.watch import LiveMonitor, Rules, watch

RULES = Rules([MetricSpec(name="score", benchmark="mini_math", role=Role.PRIMARY)], [])


def log_of(rows, keep=()):
    return assemble(
        "run",
        [
            Reading(int(row["step"]), name, number, "here")
            for row in rows
            for key, value in row.items()
            if key != "step"
            for name, number in measurements(key, value, keep)
        ],
    )


def raised(rows, rules=RULES):
    return {signal.danger: signal for signal in watch(rules.monitored(log_of(rows, rules.names()))).signals}


def grpo(n=15, seed=0, **series):
    """TRL's own names. series: name -> function of the log's number; in place of a healthy one."""
    rng = np.random.default_rng(seed)
    healthy = {
        "reward": lambda i: 0.31 + 0.01 * i + rng.normal(0, 0.03),
        "reward_std": lambda i: 0.2 + rng.normal(0, 0.01),
        "frac_reward_zero_std": lambda i: 0.3 + rng.normal(0, 0.05),
        "kl": lambda i: 0.002 * i,
        "entropy": lambda i: 1.2 - 0.01 * i,
        "completions/mean_length": lambda i: 40 + rng.normal(0, 2),
        "loss": lambda i: rng.normal(0, 0.02),
        "grad_norm": lambda i: 0.5 + rng.normal(0, 0.05),
    }
    return [{"step": 5 * (i + 1), **{name: make(i) for name, make in (healthy | series).items()}} for i in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_raises_nothing(seed):
    assert raised(grpo(40, seed)) == {}


@pytest.mark.parametrize(
    ("broken", "danger"),
    [
        ({"reward": lambda i: 0.31 * math.exp(-max(0, i - 2)), "kl": lambda i: min(1.6, 0.2 * i)}, Danger.REWARD_FALL),
        ({"reward": lambda i: 0.31 if i < 6 else 0.0}, Danger.REWARD_FALL),
        ({"kl": lambda i: min(1.6, 0.4 * i)}, Danger.POLICY_DRIFT),
        ({"reward": lambda i: 1.0}, Danger.REWARD_CONSTANT),
        ({"reward": lambda i: 0.0}, Danger.REWARD_CONSTANT),
        ({"frac_reward_zero_std": lambda i: 1.0 if i > 4 else 0.3}, Danger.SIGNAL_LOST),
        ({"loss": lambda i: math.nan if i > 3 else 0.1}, Danger.NOT_FINITE),
        ({"grad_norm": lambda i: math.inf if i > 3 else 0.1}, Danger.NOT_FINITE),
    ],
)
def test_a_broken_run_is_told_within_fifteen_points(broken, danger):
    signals = raised(grpo(15, **broken))
    assert danger in signals
    assert signals[danger].step <= 75


def test_a_broken_run_asks_training_to_stop_also_live():
    monitor = LiveMonitor(RULES)
    actions = [
        monitor.add(row.pop("step"), row).action.value for row in grpo(15, reward=lambda i: 0.31 if i < 6 else 0.0)
    ]
    assert actions[5] == "continue" and "pause" in actions


def test_a_run_whose_every_loss_is_nan_is_told_live_and_from_its_log():
    rows = [{"step": i, "loss": math.nan} for i in range(3)]
    assert raised(rows)[Danger.NOT_FINITE].step == 0
    assert LiveMonitor(RULES).add(0, {"loss": math.nan}).action.value == "pause"


def test_a_reward_that_no_row_asked_for_is_nan_and_no_danger():
    sparse = {"rewards/tool/mean": lambda i: math.nan if i % 3 else 0.5}
    assert raised(grpo(40, **sparse)) == {}
    assert Danger.NOT_FINITE in raised(grpo(40, **{**sparse, "reward": lambda i: math.nan if i % 3 else 0.5}))
    assert Danger.NOT_FINITE in raised(grpo(40, **{"rewards/tool/mean": lambda i: math.inf}))


def test_a_reward_that_was_won_and_stays_is_no_constant_reward():
    assert Danger.REWARD_CONSTANT not in raised(grpo(30, reward=lambda i: min(1.0, 0.1 * i)))


def test_a_reward_of_losses_is_no_fall():
    rng = np.random.default_rng(1)
    assert raised([{"step": i, "reward": -10 + 0.1 * i + rng.normal(0, 0.5)} for i in range(30)]) == {}


@pytest.mark.parametrize(("growth", "is_raised"), [(0.0, False), (0.3, True)])
def test_a_supervised_loss_that_rises_is_told(growth, is_raised):
    rng = np.random.default_rng(2)
    rows = [{"step": i, "loss": 1.0 + growth * i + rng.normal(0, 0.05)} for i in range(12)]
    assert (Danger.LOSS_RISE in raised(rows)) is is_raised


@pytest.mark.parametrize("name", ["refusal_rate", "repetition_rate"])
def test_refusals_and_repetitions_that_take_over_are_told(name):
    rows = [{"step": i, name: value} for i, value in enumerate((0.02, 0.3, 0.9, 0.96))]
    assert Danger.DEGENERATE_ANSWERS in raised(rows)
    assert raised([{"step": i, name: 0.02 + 0.01 * i} for i in range(6)]) == {}


def lower(name="cost_of_errors"):
    return Rules([MetricSpec(name=name, role=Role.PRIMARY, direction=Direction.LOWER)], [])


@pytest.mark.parametrize(("direction", "is_raised"), [(+0.05, True), (-0.05, False)])
def test_a_primary_metric_that_is_better_when_smaller_is_not_inverted(direction, is_raised):
    rows = grpo(40)
    for place, row in enumerate(rows):
        if place % 4 == 3:
            row["cost_of_errors"] = 0.8 + direction * place / 4
    assert (Danger.REWARD_BENCHMARK_DIVERGENCE in raised(rows, lower())) is is_raised


def test_a_suites_own_name_is_kept_beside_ours():
    rules = Rules([MetricSpec(name="success_rate", role=Role.PRIMARY)], [])
    log = log_of([{"step": 1, "success_rate": 0.5}], rules.names())
    assert {"success_rate", "success"} <= set(log.series)


def test_a_suites_own_win_rate_is_watched():
    rules = Rules([MetricSpec(name="alpaca_eval_lc_win_rate", role=Role.PRIMARY)], [])
    rng = np.random.default_rng(0)
    rows = [
        {
            "step": s,
            "alpaca_eval_lc_win_rate": 0.5 + 0.02 * s + rng.normal(0, 0.005),
            "safety_violation_rate": 0.01 + 0.004 * s,
        }
        for s in range(12)
    ]
    assert Danger.WIN_RATE_AT_A_PRICE in raised(rows, rules)


def test_cost_to_success_is_a_quantity_of_its_own():
    assert canonical_name("cost_to_success") == "cost_to_success"
    rows = [{"step": i, "cost": 1.0, "cost_to_success": 10.0 + 1.2 * i} for i in range(15)]
    assert raised(rows)[Danger.COST_INFLATION].series == ("cost_to_success",)


@pytest.mark.parametrize(
    ("logged", "ours"),
    [
        ("eval_loss", "eval_loss"),
        ("eval/reward", "eval_reward"),
        ("train/loss", "loss"),
        ("eval/gsm8k_exact_match", "gsm8k_exact_match"),
        ("eval_win_rate", "win_rate"),
        ("objective/kl", "kl_sequence"),
    ],
)
def test_what_was_measured_on_evaluation_data_is_a_series_of_its_own(logged, ours):
    assert canonical_name(logged) == ours


def test_the_summary_of_a_trainer_is_no_point_of_the_run():
    monitor = LiveMonitor(RULES)
    monitor.add(10, {"loss": 0.5})
    monitor.add(10, {"train_runtime": 3.0, "train_loss": 9.0})
    assert monitor.log.series["loss"].values.tolist() == [0.5]


def test_a_kl_of_whole_responses_has_no_limit_a_token():
    assert raised([{"step": i, "objective/kl": 5 + 0.01 * i} for i in range(12)]) == {}


def test_the_old_healthy_runs_stay_without_alarm():
    for seed in range(10):
        log = log_of(monitor_builders.healthy(seed))
        assert watch(MonitoredRun(log, MonitorSettings(), ["gsm8k_exact_match"])).signals == []


# What TRL logged in runs of `benchmarks/monitor_runs.py`, every second step.
HARD = {
    "reward": "23 23 0 0 0 0 16 31 0 0 31 8 31 8 16 0 16 47 0 0 0 8 47 16 0 0 31 62 31 8",
    "frac_reward_zero_std": "938 938 1000 1000 1000 1000 938 875 1000 1000 938 938 875 938 938 1000 938 875 1000 1000 "
    "1000 938 875 875 1000 1000 875 812 750 938",
}
"""A healthy run on a task of which the model solves one item in 50."""
INVERTED = "875 859 797 875 852 930 945 961 922 984 969 961 922 992 938 961"
"""Rewards of a run that is paid for wrong answers; its accuracy went 0.25 0.15 0.09 0.06 0.045 0.015."""
KL = "2 10 22 34 40 53 53 62 126 240 83 95 93 86 99 104 191 99 73 131 155 98 153 122 133 107 144 166 142 207"
KL_OF_ANOTHER_SEED = "3 12 34 45 57 65 62 73 254"
"""KL of healthy runs; single batches lie far above their neighbours."""


def recorded(**series):
    """Rows from thousandths, as they are written above."""
    columns = {name.replace("__", "/"): [int(text) / 1000 for text in texts.split()] for name, texts in series.items()}
    n = len(next(iter(columns.values())))
    return [{"step": 2 * (i + 1), **{name: column[i] for name, column in columns.items()}} for i in range(n)]


def test_a_real_run_on_a_hard_task_is_left_alone():
    assert raised(recorded(**HARD)) == {}


@pytest.mark.parametrize("reward", [0.0, 0.02])
def test_a_run_without_any_signal_is_told_even_where_success_is_rare(reward):
    rows = [{"step": i, "reward": reward + 1e-4 * (i % 3), "frac_reward_zero_std": 1.0} for i in range(1, 16)]
    assert raised(rows)[Danger.SIGNAL_LOST].step <= 15


def test_a_signal_that_went_with_the_success_is_told():
    shares = [300] * 8 + [1000] * 7
    rows = recorded(
        reward=" ".join(["250"] * 8 + ["5", "0"] * 3 + ["5"]), frac_reward_zero_std=" ".join(map(str, shares))
    )
    assert raised(rows)[Danger.SIGNAL_LOST].step <= 30


@pytest.mark.parametrize("kl", [KL, KL_OF_ANOTHER_SEED])
def test_one_outlier_of_the_estimate_of_kl_is_no_spike(kl):
    assert raised(recorded(kl=kl)) == {}


def test_kl_that_jumps_and_stays_is_a_spike():
    assert Danger.KL_SPIKE in raised(recorded(kl=f"{KL} 900 950"))


def test_a_reward_for_wrong_answers_is_told_by_the_benchmark_within_fifteen_points():
    rows = recorded(reward=INVERTED)
    accuracy = [0.25, 0.15, 0.09, 0.06, 0.045, 0.015]
    rows += [{"step": 6 * i, "score": value} for i, value in enumerate(accuracy)]
    assert raised(rows)[Danger.REWARD_BENCHMARK_DIVERGENCE].step <= 30


def test_a_benchmark_that_scatters_around_its_rise_is_no_divergence():
    """200 items drawn at temperature 0.6 scatter by three points; the reward of this healthy run rises."""
    accuracy = (0.285, 0.34, 0.37, 0.39, 0.42, 0.385, 0.39, 0.425, 0.47, 0.445, 0.39, 0.41)
    rows = [{"step": i, "reward": 0.2 + 0.004 * i + 0.01 * (i % 3)} for i in range(36)]
    rows += [{"step": 3 * i, "score": value} for i, value in enumerate(accuracy)]
    assert raised(rows) == {}


def test_rewards_that_are_rare_fall_to_nothing_now_and_then():
    rng = np.random.default_rng(4)
    for _ in range(5):
        rows = [{"step": i, "reward": rng.binomial(64, 0.02) / 64} for i in range(40)]
        assert Danger.REWARD_FALL not in raised(rows)


@pytest.mark.parametrize(("values", "is_raised"), [([0.0] * 10, True), ([0.5, 0.4] + [0.0] * 9, False)])
def test_a_supervised_loss_that_never_moves_is_told(values, is_raised):
    """A Trainer puts 0 in the place of a NaN."""
    rows = [{"step": i, "loss": value} for i, value in enumerate(values)]
    assert (Danger.LOSS_CONSTANT in raised(rows)) is is_raised
    assert Danger.LOSS_CONSTANT not in raised([{**row, "reward": 0.1 * row["step"]} for row in rows])


@pytest.mark.parametrize("name", ["grad_norm", "actor/grad_norm", "train/grad_norm"])
def test_a_gradient_that_explodes_is_raised_while_reward_and_loss_look_well(name):
    signals = raised(grpo(40, **{name: lambda i: 0.5 + 0.1 * math.sin(i) if i < 25 else 1.5 ** (i - 20)}))
    assert list(signals) == [Danger.GRADIENT_EXPLOSION]
    assert 26 * 5 <= signals[Danger.GRADIENT_EXPLOSION].step <= 30 * 5
    assert "first 20 logs" in signals[Danger.GRADIENT_EXPLOSION].evidence


@pytest.mark.parametrize(
    "norm",
    [
        lambda i: 80.0 if i % 9 == 4 else 0.8,  # single outliers
        lambda i: 0.001 if i < 10 else 0.4,  # rises, and is small
        lambda i: 30.0 * 0.8**i,  # falls
    ],
)
def test_a_gradient_with_outliers_or_of_small_size_is_no_danger(norm):
    assert raised(grpo(40, grad_norm=norm)) == {}


def test_a_reward_that_froze_after_a_rise_is_raised_and_one_at_its_best_is_not():
    rise = [0.1 + 0.01 * i for i in range(25)]
    signals = raised(grpo(45, reward=lambda i: [*rise, *[0.33] * 40][i]))
    assert "below its best of 0.34" in signals[Danger.REWARD_CONSTANT].evidence
    assert Danger.REWARD_CONSTANT not in raised(grpo(45, reward=lambda i: [*rise, *[0.34] * 40][i]))


@pytest.mark.parametrize(
    "name", ["rewards/tool/mean", "reward/format", "tool_reward_mean", "accuracy/hard", "tools/calls"]
)
def test_nan_of_a_quantity_that_no_row_of_the_step_has_is_a_note_and_no_danger(name):
    rows = grpo(30, **{name: lambda i: math.nan if i % 3 else 0.5, "grad_norm": lambda i: 0.4})
    assert raised(rows) == {}
    assert any(name in note and "nan" in note for note in log_of(rows).notes)


@pytest.mark.parametrize("name", ["reward", "loss", "actor/pg_loss", "grad_norm", "actor/grad_norm", "entropy", "kl"])
def test_nan_of_a_vital_quantity_is_a_danger_though_others_are_finite(name):
    series = {"grad_norm": lambda i: 0.4, "loss": lambda i: 0.01, name: lambda i: math.nan if i == 20 else 0.3}
    assert Danger.NOT_FINITE in raised(grpo(25, **series))


def test_infinity_is_a_danger_in_any_quantity_and_so_is_nan_where_nothing_shows_sound_weights():
    assert Danger.NOT_FINITE in raised(grpo(20, **{"rewards/tool/mean": lambda i: math.inf if i == 9 else 0.1}))
    lost = [{"step": i, "loss": 0.0, "rewards/chosen": math.nan} for i in range(1, 12)]  # a filter logs 0 for NaN
    assert Danger.NOT_FINITE in raised(lost)
