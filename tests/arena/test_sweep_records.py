import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.sweep_records import SweepRow, difference_of_runs, row_of, summarise_agents
from builders import make_evidence, make_gain, make_submission


def row(**changes):
    evidence = make_evidence(**changes)
    return row_of(evidence, analyse(evidence))


def test_a_row_holds_the_headline_of_its_trial():
    sweep_row = row(seed=2)
    assert (sweep_row.agent, sweep_row.seed, sweep_row.state, sweep_row.route) == (
        "grpo",
        2,
        "finished",
        "RL only (GRPO)",
    )
    assert sweep_row.gain.value == pytest.approx(0.28) and sweep_row.public.value == 0.6 and sweep_row.seconds == 150


def test_a_row_without_submission_has_no_gain():
    sweep_row = row(submissions=[])
    assert (sweep_row.gain, sweep_row.result) == (None, "no_submission")


def test_a_summary_averages_gains_only_and_counts_the_rest():
    rows = [row(seed=s, gain=make_gain(d)) for s, d in enumerate((0.1, 0.2, 0.01))]
    rows += [row(seed=3, submissions=[]), SweepRow("arithmetic", "grpo", 4, "t", "failed: disk full")]
    (summary,) = summarise_agents(rows)
    assert (summary.n_trials, summary.n_finished, summary.n_with_gain, summary.n_better) == (5, 4, 3, 2)
    assert summary.mean_gain.value == pytest.approx(0.31 / 3)
    assert summary.spread_points == pytest.approx(9.504385)
    assert summary.routes == {"RL only (GRPO)": 3}  # a trial without a submission took no route


def gains(*runs):
    """Per seed, 200 items gain 1 with the given shares."""
    return {s: {f"i{n}": float(n < share * 200) for n in range(200)} for s, share in enumerate(runs)}


def test_the_mean_gain_has_an_interval_over_items_and_seeds_that_seeds_far_apart_make_wide():
    rows = [row(seed=s, gain=make_gain(d)) for s, d in enumerate((0.14, 0.24))]
    (apart,) = summarise_agents(rows, {("arithmetic", "grpo"): gains(0.14, 0.24)})
    (alike,) = summarise_agents(rows, {("arithmetic", "grpo"): gains(0.19, 0.19)})
    (single,) = summarise_agents(rows[:1], {("arithmetic", "grpo"): gains(0.19)})
    assert (apart.over, alike.over, single.over) == ("items and seeds", "items and seeds", "items")
    assert apart.mean_gain.low < 0 < apart.mean_gain.high and apart.claim == "unclear"  # two seeds, ten points apart
    assert alike.claim == "better" and alike.mean_gain.high - alike.mean_gain.low < 0.17
    assert (
        single.mean_gain.high - single.mean_gain.low < alike.mean_gain.high - alike.mean_gain.low
    )  # two seeds are few


def test_one_run_within_the_noise_band_is_unclear_in_the_summary_as_in_its_own_row():
    inside, outside = gains(0.02), gains(0.19)
    alone = row(gain=make_gain(0.02))
    assert alone.noise > 0.02
    (within,) = summarise_agents([alone], {("arithmetic", "grpo"): inside})
    (beyond,) = summarise_agents([row(gain=make_gain(0.19))], {("arithmetic", "grpo"): outside})
    assert within.mean_gain.low > 0, "its interval over items alone would say better"
    assert (within.claim, beyond.claim) == ("unclear", "better")


def test_without_item_gains_a_mean_has_no_interval_and_claims_nothing():
    (summary,) = summarise_agents([row()])
    assert (summary.mean_gain.low, summary.claim, summary.over) == (None, "", "")


def test_runs_that_share_no_scored_item_have_no_difference():
    assert difference_of_runs({0: {"a": 1.0, "b": None}}, {0: {"a": None, "b": 1.0}}, "none") is None
    assert difference_of_runs({0: {"a": 1.0}}, {1: {"a": 1.0}}, "other seeds") is None


def test_one_seed_has_no_spread_and_agents_keep_their_order():
    rows = [row(agent="b"), row(agent="a", submissions=[make_submission(1, score=0.2)])]
    summaries = summarise_agents(rows)
    assert [s.agent for s in summaries] == ["b", "a"]
    assert summaries[0].spread_points is None
