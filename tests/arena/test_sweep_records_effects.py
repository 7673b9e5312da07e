"""What a driver makes of a scaffold and a scaffold of a driver, on scores that were written by hand."""

import pytest

from agent2.arena.sweep_records import Axis, PlannedTrial, axis_effects, pair_effects

ITEMS = [f"item-{number}" for number in range(40)]


def width(effect):
    low, high = effect.difference.change.interval
    return high - low


def trial(scaffold, driver, seed=0, mode="free"):
    return PlannedTrial(
        task="t", task_name="t", agent=scaffold, agent_name=scaffold, driver=driver, driver_name=driver, seed=seed,
        mode=mode,
    )  # fmt: skip


def solved(share):
    """The first items solved, the others not."""
    return {item: float(place < share * len(ITEMS)) for place, item in enumerate(ITEMS)}


def effects_of(table, seeds=(0,)):
    """table: (scaffold, driver) -> share of items solved for each seed, None without a result."""
    planned = [trial(*stack, seed) for stack in table for seed in seeds]
    scores = {}
    for stack, shares in table.items():
        runs = {seed: solved(share) for seed, share in zip(seeds, shares, strict=True) if share is not None}
        if runs:
            scores["t", trial(*stack).stack] = runs
    return pair_effects(planned, scores)


def test_a_driver_that_solves_three_quarters_more_is_worth_75_points_of_its_scaffold():
    (effect,) = effects_of({("codex", "weak"): [0.1], ("codex", "strong"): [0.85]})
    assert (effect.axis, effect.fixed, effect.level_a, effect.level_b) == (Axis.DRIVER, "codex", "weak", "strong")
    assert effect.difference.change.value == pytest.approx(-0.75)
    assert effect.difference.change.low < -0.75 < effect.difference.change.high < -0.5
    assert effect.difference.p_value < 1e-6
    assert effect.over_runs.low is None  # one run each: nothing is known of their luck
    assert (effect.difference.change.n, effect.n_seeds, effect.n_missing, effect.n_pairs) == (40, 1, 0, 1)


def test_the_widest_pair_stands_for_the_axis_with_the_better_level_first():
    table = {("codex", "weak"): [0.1], ("codex", "fair"): [0.3], ("codex", "strong"): [0.85]}
    pairs = effects_of(table)
    assert len(pairs) == 3
    (effect,) = axis_effects(pairs)
    assert (effect.n_levels, effect.widest.level_a, effect.widest.level_b) == (3, "strong", "weak")
    assert effect.widest.difference.change.value == pytest.approx(0.75)
    assert 0.5 < effect.widest.difference.change.low < 0.75 < effect.widest.difference.change.high


def test_scaffolds_are_compared_under_the_same_driver_only():
    table = {("a", "x"): [0.2], ("b", "x"): [0.6], ("a", "y"): [0.2], ("b", "y"): [0.2]}
    by_axis = {(e.axis, e.fixed): e for e in effects_of(table)}
    assert set(by_axis) == {(Axis.DRIVER, "a"), (Axis.DRIVER, "b"), (Axis.SCAFFOLD, "x"), (Axis.SCAFFOLD, "y")}
    assert by_axis[Axis.SCAFFOLD, "x"].difference.change.value == pytest.approx(-0.4)
    assert by_axis[Axis.SCAFFOLD, "y"].difference.change.value == 0.0
    assert by_axis[Axis.SCAFFOLD, "y"].p_adjusted == 1.0


def test_more_pairs_make_wider_intervals():
    two = effects_of({("c", "x"): [0.2], ("c", "y"): [0.6]})
    four = effects_of({("c", name): [share] for name, share in zip("xyzw", (0.2, 0.6, 0.6, 0.6), strict=True)})
    same = next(e for e in four if (e.level_a, e.level_b) == ("x", "y"))
    assert same.n_pairs == 6
    assert width(same) > width(two[0])
    assert same.p_adjusted > same.difference.p_value


def test_several_seeds_give_an_interval_over_runs():
    (effect,) = effects_of({("c", "x"): [0.2, 0.3, 0.4], ("c", "y"): [0.5, 0.5, 0.5]}, seeds=(0, 1, 2))
    # differences of runs: -30, -20, -10; mean -20, standard error 5.77, Student quantile 4.303 at 2 degrees of freedom
    assert effect.difference.change.value == pytest.approx(-0.2)
    assert effect.over_runs.low == pytest.approx(-0.4484, abs=0.0001)
    assert effect.over_runs.high == pytest.approx(0.0484, abs=0.0001)


def test_a_trial_without_a_result_is_missing_and_not_zero():
    (effect,) = effects_of({("c", "x"): [0.5, 0.5], ("c", "y"): [0.5, None]}, seeds=(0, 1))
    assert effect.difference.change.value == 0.0
    assert (effect.n_seeds, effect.n_missing) == (1, 1)
    assert effects_of({("c", "x"): [0.5], ("c", "y"): [None]}) == []


def test_stacks_without_a_driver_belong_to_no_effect():
    assert effects_of({("grpo", None): [0.5], ("sft", None): [0.6]}) == []


def test_modes_are_not_mixed():
    planned = [trial("c", "x"), trial("c", "y", mode="rl-only")]
    scores = {("t", planned_trial.stack): {0: solved(0.5)} for planned_trial in planned}
    assert pair_effects(planned, scores) == []
