from dataclasses import replace

import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd, LlmCall, LlmRecord, SubmissionState
from agent2.arena.sweep_records import SweepRow, difference_of_runs, row_of, summarise_agents
from agent2.errors import Fault
from agent2.llm.records import LlmTotals, TokenCounts
from agent2.stats.estimates import Estimate
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


def test_an_agent_that_had_its_budget_and_handed_in_nothing_counts_with_the_base_models_score():
    for end in (AgentEnd.EXITED, AgentEnd.CRASHED, AgentEnd.DEADLINE, AgentEnd.LIMIT):
        sweep_row = row(submissions=[], agent_end=end)
        assert (sweep_row.gain.value, sweep_row.gain.low, sweep_row.result) == (0.0, None, "no_submission")
    broken = make_submission(1, state=SubmissionState.FAILED, fault=Fault.SUBMITTER, score=None)
    assert row(submissions=[broken]).gain.value == 0.0


def test_what_infrastructure_lost_is_missing():
    for end in (AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE):
        assert row(submissions=[], agent_end=end).gain is None
    for state, fault in (
        (SubmissionState.ACCEPTED, None),
        (SubmissionState.FAILED, Fault.INFRASTRUCTURE),
        (SubmissionState.FAILED, None),
    ):
        assert row(submissions=[make_submission(1, state=state, fault=fault, score=None)]).gain is None
    assert row(submissions=[], base_private=None).gain is None


@pytest.mark.parametrize(("outcomes", "gain"), [(["failed"] * 3, None), (["ok", "failed"], 0.0), (["refused"], 0.0)])
def test_a_provider_that_never_answered_is_no_failure_of_the_agent(outcomes, gain):
    calls = [
        LlmCall(n, 1e6, 1.0, "openai-chat", "m", "m", outcome, None, TokenCounts(), True, 0.0, 0, "")
        for n, outcome in enumerate(outcomes, start=1)
    ]
    totals = LlmTotals(len(calls), TokenCounts(), 0.0, 0, 0, 0, 0, 0, 0, 0, 0)
    trial = row(submissions=[], llm=LlmRecord(totals, calls, None, None))
    assert (trial.gain and trial.gain.value) == gain


def test_a_summary_averages_gains_only_and_counts_the_rest():
    rows = [row(seed=s, gain=make_gain(d)) for s, d in enumerate((0.1, 0.2, 0.01))]
    rows += [row(seed=3, submissions=[], agent_end=AgentEnd.INFRASTRUCTURE)]
    rows += [SweepRow("arithmetic", "grpo", 4, "t", "failed: disk full")]
    (summary,) = summarise_agents(rows)
    assert (summary.n_trials, summary.n_finished, summary.n_with_gain, summary.n_better) == (5, 4, 3, 2)
    assert summary.mean_gain.value == pytest.approx(0.31 / 3)
    assert summary.spread_points == pytest.approx(9.504385)
    (with_nothing,) = summarise_agents([*rows, row(seed=5, submissions=[])])
    assert (with_nothing.n_with_gain, with_nothing.n_submitted) == (4, 3)
    assert with_nothing.mean_gain.value == pytest.approx(0.31 / 4)
    assert with_nothing.gain_submitted.value == pytest.approx(0.31 / 3)
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
    alone = row(gain=replace(make_gain(0.02), change=Estimate(0.02, 0.005, 0.035, 600)))
    assert alone.noise > 0.02
    (within,) = summarise_agents([alone], {("arithmetic", "grpo"): inside})
    (beyond,) = summarise_agents([row(gain=make_gain(0.19))], {("arithmetic", "grpo"): outside})
    assert within.mean_gain.low > 0, "its interval over items alone would say better"
    assert (within.claim, beyond.claim) == ("unclear", "better")


def test_the_mean_of_one_trial_has_the_interval_of_that_trial():
    alone = row(gain=make_gain(0.19))
    (summary,) = summarise_agents([alone], {("arithmetic", "grpo"): gains(0.19)})
    assert summary.mean_gain == alone.gain == summary.gain_submitted


def test_without_item_gains_a_mean_has_no_interval_and_claims_nothing():
    (summary,) = summarise_agents([row(seed=0), row(seed=1)])
    assert (summary.mean_gain.low, summary.claim, summary.over) == (None, "", "")


def test_runs_that_share_no_scored_item_have_no_difference():
    assert difference_of_runs({0: {"a": 1.0, "b": None}}, {0: {"a": None, "b": 1.0}}, "none") is None
    assert difference_of_runs({0: {"a": 1.0}}, {1: {"a": 1.0}}, "other seeds") is None


def test_one_seed_has_no_spread_and_agents_keep_their_order():
    rows = [row(agent="b"), row(agent="a", submissions=[make_submission(1, score=0.2)])]
    summaries = summarise_agents(rows)
    assert [s.agent for s in summaries] == ["b", "a"]
    assert summaries[0].spread_points is None
