import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent2.arena.sweep import UntilDecided, decide_cells
from agent2.arena.sweep_records import SweepRow
from agent2.errors import ConfigError
from agent2.stats.estimates import Estimate
from agent2.stats.sequential import SequentialVerdict

PLAN = UntilDecided(seeds_per_round=6, max_seeds=24)


def gain_of(points):
    return None if points is None else Estimate(points / 100, None, None, 1)


def row(agent, seed, gain, task="math", state="finished"):
    return SweepRow(task, agent, seed, f"{task}-{agent}-s{seed}", state, gain=gain_of(gain))


def rows_of(gains, task="math"):
    return [row(agent, seed, gain, task) for agent, values in gains.items() for seed, gain in enumerate(values)]


def cells_of(*agents, task="math"):
    return [(task, agent) for agent in agents]


def needs(decision):
    return {(need.task, need.agent): need.seeds for need in decision.needs}


def verdict(decision, a, b, task="math"):
    return {(p.agent_a, p.agent_b): p.verdict for p in decision.states[task].pairs}[a, b]


def gains(*means, n=6, seed=0):
    draw = np.random.default_rng(seed)
    return {name: list(draw.normal(mean, 1, n)) for name, mean in zip("abcd", means, strict=False)}


def test_a_sweep_begins_with_one_round_of_every_cell():
    decision = decide_cells([], cells_of("a", "b") + cells_of("a", "b", task="code"), PLAN, first_seed=3)
    assert set(needs(decision)) == {("math", "a"), ("math", "b"), ("code", "a"), ("code", "b")}
    assert set(needs(decision).values()) == {tuple(range(3, 9))}
    assert decision.needs


def test_an_agent_told_apart_from_all_others_gets_no_more_seeds():
    decision = decide_cells(rows_of(gains(9, 0, 0.1)), cells_of("a", "b", "c"), PLAN)
    assert verdict(decision, "a", "b") is SequentialVerdict.LARGER
    assert needs(decision) == {("math", "b"): tuple(range(6, 12)), ("math", "c"): tuple(range(6, 12))}
    assert "2 of 3 pairs differ" in str(decision)


def test_a_round_in_progress_asks_only_for_what_is_short():
    by_agent = gains(0, 0)
    by_agent["a"] += [0.3, 0.4]
    assert needs(decide_cells(rows_of(by_agent), cells_of("a", "b"), PLAN)) == {
        ("math", "a"): (8, 9, 10, 11),
        ("math", "b"): (6, 7, 8, 9, 10, 11),
    }


def test_tasks_are_decided_on_their_own():
    rows = rows_of(gains(9, 0)) + rows_of(gains(0, 0), task="code")
    decision = decide_cells(rows, cells_of("a", "b") + cells_of("a", "b", task="code"), PLAN)
    assert set(needs(decision)) == {("code", "a"), ("code", "b")}
    assert decision.states["math"].settings.alpha == 0.025


def test_the_cap_ends_the_sweep_with_equal_pairs():
    decision = decide_cells(rows_of(gains(0, 0, n=24)), cells_of("a", "b"), PLAN)
    assert not decision.needs
    assert verdict(decision, "a", "b") is SequentialVerdict.EQUAL


def test_a_missing_gain_is_replaced_by_another_seed_and_never_zero():
    by_agent = gains(9, 0)
    by_agent["a"][2] = None
    decision = decide_cells(rows_of(by_agent), cells_of("a", "b"), PLAN)
    assert needs(decision) == {("math", "a"): (6,)}
    assert decision.n_missing == {("math", "a"): 1}
    assert decision.states["math"].interim == 0
    decision = decide_cells([*rows_of(by_agent), row("a", 6, 9.0)], cells_of("a", "b"), PLAN)
    assert verdict(decision, "a", "b") is SequentialVerdict.LARGER


def test_an_unfinished_trial_is_missing_and_one_not_started_is_nothing():
    rows = [row("a", 0, None, state="not finished"), row("a", 1, None, state="not started")]
    decision = decide_cells(rows, cells_of("a", "b"), PLAN)
    assert decision.n_missing == {("math", "a"): 1}
    assert needs(decision)["math", "a"] == (1, 2, 3, 4, 5, 6)


def test_an_agent_that_hands_in_nothing_is_given_up_and_the_others_go_on():
    by_agent = gains(9, 0) | {"nop": [None] * 6}
    decision = decide_cells(rows_of(by_agent), cells_of("a", "b", "nop"), PLAN)
    assert decision.given_up == (("math", "nop"),)
    assert not decision.needs
    assert verdict(decision, "a", "b") is SequentialVerdict.LARGER
    assert "nop given up (6 trials without a gain)" in str(decision)
    alone = decide_cells(rows_of({"a": [1.0] * 6, "nop": [None] * 6}), cells_of("a", "nop"), PLAN)
    assert not alone.needs
    assert verdict(alone, "a", "nop") is SequentialVerdict.UNDECIDED


@given(st.randoms(), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_the_order_of_rows_and_cells_changes_nothing(random, seed):
    rows, cells = rows_of(gains(2, 1, 0, seed=seed)), cells_of("a", "b", "c")
    plain = decide_cells(rows, cells, PLAN)
    random.shuffle(rows)
    random.shuffle(cells)
    moved = decide_cells(rows, cells, PLAN)
    assert needs(moved) == needs(plain)
    assert moved.states == plain.states


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_a_sweep_driven_to_the_end_stops_within_its_cap_and_undoes_nothing(seed):
    draw = np.random.default_rng(seed)
    means = {"a": 0.0, "b": 0.0, "c": 2.0}
    rows, decided = [], {}
    for _ in range(40):
        decision = decide_cells(rows, cells_of(*means), PLAN)
        now = {(p.agent_a, p.agent_b): p.verdict for p in decision.states["math"].pairs}
        assert all(now[pair] is before for pair, before in decided.items())
        decided = {pair: v for pair, v in now.items() if v is not SequentialVerdict.UNDECIDED}
        if not decision.needs:
            break
        for need in decision.needs:
            # one trial in ten is lost
            rows += [
                row(need.agent, s, None if draw.random() < 0.1 else draw.normal(means[need.agent])) for s in need.seeds
            ]
    assert not decision.needs
    assert all(sum(r.agent == a and r.gain is not None for r in rows) <= 24 for a in means)


def test_bad_sweeps_are_refused():
    with pytest.raises(ConfigError, match="has only one"):
        decide_cells([], cells_of("a"), PLAN)
    with pytest.raises(ConfigError, match="which is not in this sweep"):
        decide_cells([row("z", 0, 1.0)], cells_of("a", "b"), PLAN)
    with pytest.raises(ConfigError, match="two rows"):
        decide_cells([row("a", 0, 1.0), row("a", 0, 2.0)], cells_of("a", "b"), PLAN)
    with pytest.raises(ValidationError, match="multiple"):
        UntilDecided(seeds_per_round=4, max_seeds=10)
    with pytest.raises(ValidationError):
        UntilDecided(alpha=0.0)
