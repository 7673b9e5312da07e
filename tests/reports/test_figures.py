"""Figures over many trials, from records written by hand: what is drawn, what the tables say, what is refused."""

import csv
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.arena.analysis.pooled import LeaderboardTrial, PooledTrial, TrialConditions
from agent2.arena.analysis.result import analyse
from agent2.arena.sweep_records import SweepRow
from agent2.cli import app
from agent2.errors import ConfigError, NotEnoughData
from agent2.reports.figures import cost_plot, effects_plot, gains_plot, profiles_plot, write_plot
from agent2.reports.run_figures import (
    JudgedMatch,
    TrialRun,
    learning_plot,
    routes_plot,
    strengths_plot,
    times_plot,
    trajectories_plot,
)
from agent2.reports.style import drawing
from agent2.stats.estimates import Estimate
from builders import DESIGN, make_evidence, make_gain, make_score, make_submission

N_ITEMS = 40


def pooled(stack, seed, rate, task="t", driver=None, **changes):
    rng = np.random.default_rng([seed, len(stack), int(1000 * rate)])
    solved = (rng.random(N_ITEMS) < rate).astype(float)
    base = {f"i{at}": float(at % 4 == 0) for at in range(N_ITEMS)}
    gain = float(solved.mean()) - 0.25
    row = SweepRow(
        task=task, agent=f"{stack}+{driver}" if driver else stack, seed=seed, trial=f"{stack}-{seed}", state="finished",
        base=make_score(0.25), gain=Estimate(gain, gain - 0.1, gain + 0.1, N_ITEMS), result="measured", scaffold=stack,
        driver=driver, integrity="clean", seconds=60.0 * (seed + 1), llm_dollars=0.5 if driver else None,
        llm_tokens=1000 if driver else None, n_submissions=seed,
    )  # fmt: skip
    conditions = TrialConditions(task, "b-v1", "items", "secret", "base", "protocol", "wall_clock_s=60")
    fields = {
        "trial": LeaderboardTrial(f"/trials/{stack}-{driver}-{task}-{seed}", replace(row, **changes.pop("row", {})), (),
                                  True, changes.pop("is_counted", True)),
        "conditions": conditions, "is_interactive": False, "agent_digest": "d" * 8,
        "identity": f"{stack}-{driver}-{task}-{seed}", "base": base,
        "final": {f"i{at}": float(value) for at, value in enumerate(solved)},
    }  # fmt: skip
    return PooledTrial(**(fields | changes))


def board(n_seeds=4, tasks=("t",), **rates):
    return make_leaderboard(
        [pooled(stack, seed, rate, task) for stack, rate in rates.items() for seed in range(n_seeds) for task in tasks]
    )


def run(stack="fox", seed=0, scores=((60.0, 0.5), (90.0, 0.4)), task="arithmetic", **changes):
    submissions = [make_submission(k, at=at, score=score) for k, (at, score) in enumerate(scores, start=1)]
    evidence = make_evidence(submissions=submissions, **changes)
    return TrialRun(stack, task, seed, evidence, analyse(evidence))


def shown(plot):
    """The axes after drawing, and every text of the figure."""
    with drawing(*plot.size, is_file=True) as figure:
        plot.draw(figure)
        figure.draw_without_rendering()
        texts = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
        return figure.axes, " | ".join(texts)


def table(plot):
    return [dict(zip(plot.columns, row, strict=True)) for row in plot.rows]


def test_a_forest_has_a_row_for_each_agent_and_its_numbers():
    plot = gains_plot(board(low=0.3, high=0.9))
    (high, low) = table(plot)
    assert (high["agent"], low["agent"]) == ("high", "low"), "best first"
    gains = [pooled("high", seed, 0.9).trial.row.gain.value for seed in range(4)]
    assert high["mean_gain"] == pytest.approx(np.mean(gains)) and high["low"] < high["mean_gain"] < high["high"]
    assert high["std"] == pytest.approx(np.std(gains, ddof=1)) and high["share_positive"] == 1.0
    assert (high["lowest"], high["highest"]) == (min(gains), max(gains))
    assert high["gap_closed"] == pytest.approx(np.mean(gains) / 0.75) and high["claim"] == "better"
    (axes,), texts = shown(plot)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["high", "low"]
    assert "better than the base" in texts
    ticks = [line for line in axes.lines if line.get_marker() == "|"]
    assert sorted(ticks[0].get_xdata()) == pytest.approx(sorted(100 * gain for gain in gains))


def test_a_trial_without_a_result_is_told_and_not_drawn_at_zero():
    lost = pooled("nop", 0, 0.5, is_counted=False, row={"gain": None, "result": "no_submission"})
    plot = gains_plot(make_leaderboard([pooled("fox", 0, 0.9), lost]))
    nop = table(plot)[-1]
    assert nop["agent"] == "nop" and nop["n"] == 0 and nop["mean_gain"] is None
    assert plot.notes == ["no counted trial: nop on t"]
    assert "no counted trial" in shown(plot)[1]


def test_the_mean_over_tasks_pairs_tasks_by_name():
    plot = gains_plot(board(tasks=("t", "u"), fox=0.9))
    over = table(plot)[-1]
    assert (over["task"], over["n"], over["over"]) == ("mean over tasks", 2, "tasks")
    assert over["mean_gain"] == pytest.approx(np.mean([row["mean_gain"] for row in table(plot)[:-1]]))


def test_sixty_agents_are_rows_of_a_forest_and_too_many_for_lines():
    many = board(n_seeds=1, **{f"agent{k}": 0.3 + 0.01 * k for k in range(60)})
    plot = gains_plot(many)
    (axes,), _ = shown(plot)
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert len(boxes) == 60 and not any(first.overlaps(two) for first, two in itertools.pairwise(boxes))
    with pytest.raises(ConfigError, match=r"60 agents hide each other .* --only"):
        profiles_plot(many)
    _, texts = shown(cost_plot(many, "minutes"))
    assert "60  agent9" in texts
    with pytest.raises(ConfigError, match="122 rows do not fit"):
        gains_plot(board(n_seeds=1, tasks=[f"t{k}" for k in range(61)], fox=0.9, hen=0.4))


def test_profiles_fall_from_all_to_none_and_need_two_runs():
    plot = profiles_plot(board(fox=0.9, hen=0.4))
    rows = [row for row in table(plot) if row["agent"] == "fox"]
    shares = [row["value"] for row in rows if row["measure"] == "share_above"]
    assert shares[0] == 1.0 and shares[-1] == 0.0 and shares == sorted(shares, reverse=True)
    (iqm,) = [row["value"] for row in rows if row["measure"] == "iqm"]
    closed = [pooled("fox", seed, 0.9).trial.row.gain.value / 0.75 for seed in range(4)]
    assert iqm == pytest.approx(np.mean(sorted(closed)[1:3]))
    (gap,) = [row["value"] for row in rows if row["measure"] == "optimality_gap"]
    assert gap == pytest.approx(1 - np.mean(closed))
    assert "fox (few runs)" in shown(plot)[1]
    with pytest.raises(NotEnoughData, match="run more seeds"):
        profiles_plot(board(n_seeds=1, fox=0.9))


def test_an_unknown_cost_is_counted_and_never_zero():
    leaderboard = make_leaderboard([pooled("fox", s, 0.9, driver="gpt") for s in range(2)] + [pooled("hen", 0, 0.5)])
    plot = cost_plot(leaderboard, "dollars")
    assert [row["dollars"] for row in table(plot)] == [0.5, 0.5, None]
    assert plot.notes == ["hen: 1 trial whose dollars are not known"]
    _, texts = shown(plot)
    assert "hen" not in texts and "1  fox+gpt" in texts
    minutes = cost_plot(leaderboard, "minutes")
    assert [row["minutes"] for row in table(minutes)] == [1.0, 2.0, 1.0]
    with pytest.raises(NotEnoughData, match="try --cost with one of: tokens"):
        cost_plot(board(fox=0.5), "dollars")


def test_driver_effects_are_pairs_that_differ_in_one_part():
    trials = [pooled("fox", s, rate, driver=d) for d, rate in (("big", 0.9), ("small", 0.4)) for s in range(3)]
    plot = effects_plot(make_leaderboard(trials))
    (row,) = table(plot)
    assert (row["axis"], row["fixed"], row["a"], row["b"], row["claim"]) == ("driver", "fox", "big", "small", "better")
    assert row["low"] < row["a_minus_b"] < row["high"]
    assert "big − small" in shown(plot)[1]
    with pytest.raises(NotEnoughData, match="several drivers"):
        effects_plot(board(fox=0.5, hen=0.6))


def test_planned_routes_are_held_against_those_taken():
    plan = dict(DESIGN)
    runs = [
        run(design=plan),
        run(design=plan | {"algorithm": "SFT"}),
        run(design=plan | {"algorithm": "my own thing"}),
        run(design=None),
        run(design=plan, scores=()),
    ]
    rows = table(routes_plot(runs))
    assert {row["planned"] for row in rows} == {"RL only", "SFT only", "plan names no known method", "no plan"}
    assert {row["taken"] for row in rows} >= {"no submission"}
    assert sum(row["trials"] for row in rows) == 5
    _, texts = shown(routes_plot(runs))
    assert "route planned" in texts


def test_learning_curves_start_at_the_base_and_never_fall():
    base = make_evidence().base_public.value
    runs = [run("fox", 0), run("fox", 1, ((30.0, 0.9),)), run("hen", 0, ())]
    plot = learning_plot(runs)
    fox = [row for row in table(plot) if row["agent"] == "fox"]
    values = [row["best_public"] for row in fox]
    assert values[0] == pytest.approx(base) and values == sorted(values)
    assert values[-1] == pytest.approx((max(base, 0.5) + 0.9) / 2) and fox[-1]["n_runs"] == 2
    assert fox[-1]["low"] <= values[-1] <= fox[-1]["high"]
    hen = [row for row in table(plot) if row["agent"] == "hen"]
    assert [row["best_public"] for row in hen] == pytest.approx([base] * len(hen)) and hen[-1]["low"] is None
    _, texts = shown(plot)
    assert "hen (n = 1)" in texts and "95% band over runs" in texts


def test_the_time_to_a_target_needs_the_private_score_too():
    base = make_evidence().base_public.value
    reached = base + 0.5 * (1 - base)
    fast = run("fast", 0, ((30.0, reached), (60.0, 0.99)), gain=make_gain(0.6))
    slow = run("slow", 0, ((60.0, reached),), gain=make_gain(0.6))
    faded = run("faded", 0, ((30.0, reached),), gain=make_gain(0.01))
    never = run("never", 0, ())
    plot = times_plot([fast, slow, faded, never], 0.4)
    seconds = {row["agent"]: row["seconds"] for row in table(plot) if row["run"] is not None}
    assert seconds == {"fast": 30.0, "slow": 60.0, "faded": None, "never": None}
    areas = {row["agent"]: row["area"] for row in table(plot) if row["area"] is not None}
    assert areas == pytest.approx({"fast": 1.0, "slow": 2 / 3, "faded": 0.0, "never": 0.0})
    shown(plot)
    with pytest.raises(ConfigError, match="above 0"):
        times_plot([fast], 0.0)
    with pytest.raises(NotEnoughData, match="no task that all"):
        times_plot([fast, replace(slow, task="other")], 0.5)


def test_trajectories_have_a_panel_each_and_their_numbers():
    plot = trajectories_plot([run(), run("hen", 1)])
    assert [row["submission"] for row in table(plot)][:3] == ["base, public", 1, 2]
    axes, texts = shown(plot)
    assert len(axes) == 2 and "hen on arithmetic, seed 1" in texts
    with pytest.raises(ConfigError, match="13 trials do not fit"):
        trajectories_plot([run()] * 13)


def test_strengths_follow_from_judged_pairs():
    rng = np.random.default_rng(3)
    pairs = [JudgedMatch("b", "a", f"i{k}", float(rng.random() < 0.75)) for k in range(300)]
    pairs += [JudgedMatch("b", "a", "lost", None)]
    plot = strengths_plot(pairs)
    best, weakest = table(plot)
    assert (best["checkpoint"], weakest["checkpoint"], weakest["win_rate"]) == ("b", "a", 0.5)
    won = np.mean([pair.points for pair in pairs[:-1]])
    assert best["win_rate"] == pytest.approx(won, abs=1e-6)
    assert best["strength"] - weakest["strength"] == pytest.approx(math.log(won / (1 - won)), abs=1e-6)
    assert plot.notes[0].startswith("1 comparison without a verdict")
    assert "baseline" in shown(plot)[1]
    with pytest.raises(ConfigError, match="'c': is not one of"):
        strengths_plot(pairs, "c")
    with pytest.raises(NotEnoughData):
        strengths_plot([JudgedMatch("b", "a", "i", 1.0), JudgedMatch("b", "a", "j", 1.0)])


def test_files_are_written_with_their_table(tmp_path):
    plot = gains_plot(board(**{"=fox": 0.9}))
    written = write_plot(plot, tmp_path / "new", ["png", "svg"])
    assert [path.name for path in written] == ["gains.png", "gains.svg", "gains.csv"]
    (row,) = csv.DictReader(written[-1].open())
    assert row["agent"] == "'=fox" and float(row["mean_gain"]) == pytest.approx(plot.rows[0][3])
    again = write_plot(plot, tmp_path / "again", ["png", "svg"])
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_one_agent_with_one_run_is_drawn():
    alone = board(n_seeds=1, fox=0.9)
    for plot in (
        gains_plot(alone), cost_plot(alone, "minutes"), routes_plot([run()]), learning_plot([run()]),
        times_plot([run()], 0.25), trajectories_plot([run()]),
    ):  # fmt: skip
        assert plot.rows and shown(plot)[0]


def test_a_name_with_markup_is_text(tmp_path):
    name = "<script>alert(1)</script>$x_1$"
    runs, named = [run(name, seed) for seed in range(2)], board(**{name: 0.9})
    for plot in (
        gains_plot(named), profiles_plot(named), cost_plot(named, "minutes"), learning_plot(runs),
        trajectories_plot(runs), times_plot(runs, 0.25),
    ):  # fmt: skip
        figure, _ = write_plot(plot, tmp_path, ["svg"])
        assert (
            "<script" not in figure.read_text() and "&lt;script" in figure.read_text() and "$x_1$" in figure.read_text()
        )


def test_five_thousand_trials_are_drawn():
    rng = np.random.default_rng(0)
    row = pooled("fox", 0, 0.9).trial.row
    gains = rng.normal(0.3, 0.1, 5_000)
    rows = [replace(row, seed=at, gain=Estimate(gain, gain, gain, 40)) for at, gain in enumerate(gains)]
    trials = [LeaderboardTrial(f"/t/{trial_row.seed}", trial_row, (), True, True) for trial_row in rows]
    many = replace(board(n_seeds=2, fox=0.9), trials=trials)
    (fox,) = table(gains_plot(many))
    assert fox["n"] == 5_000 and fox["std"] == pytest.approx(np.std(gains, ddof=1))
    shown(gains_plot(many))
    shown(cost_plot(many, "minutes"))
    assert sum(table_row["trials"] for table_row in table(routes_plot([run()] * 5_000))) == 5_000
    with pytest.raises(ConfigError, match="5000 trials do not fit"):
        trajectories_plot([run()] * 5_000)


@pytest.mark.parametrize("name", ["trajectory", "gains", "profiles", "cost", "effects", "routes", "learning", "times"])
def test_folders_without_a_trial_are_refused_in_one_line(name, tmp_path):
    for folder, message in ((tmp_path, "no"), (tmp_path / "none", "no such folder")):
        result = CliRunner().invoke(app, ["chart", name, str(folder), "--out", str(tmp_path / "out")])
        assert result.exit_code != 0 and message in str(result.exception)
    assert not (tmp_path / "out").exists()
    broken = tmp_path / "t"
    broken.mkdir()
    (broken / "trial.json").write_text("{")
    result = CliRunner().invoke(app, ["chart", name, str(tmp_path), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, ConfigError) and "left out" in result.stderr


def test_wrong_options_are_told(tmp_path):
    for arguments, message in (
        (["cost", str(tmp_path), "--cost", "euros"], "euros"),
        (["strengths", str(tmp_path)], "card"),
    ):
        result = CliRunner().invoke(app, ["chart", *arguments])
        assert result.exit_code != 0 and message in str(result.exception)
