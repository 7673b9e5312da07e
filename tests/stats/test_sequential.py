from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.errors import NotEnoughData
from agent2.stats import sequential
from agent2.stats.sequential import (
    AdaStop,
    AdaStopSettings,
    SequentialVerdict,
    _possible_true_counts,
    _weights,
    compare_sequentially,
    sampled_signs,
)

ONE_LOOK = AdaStopSettings(n_seeds=4, n_interims=1)


def rng(seed=0):
    return np.random.default_rng(seed)


def verdicts(state):
    by_pair = {}
    for pair in state.pairs:
        mirrored = {
            SequentialVerdict.LARGER: SequentialVerdict.SMALLER,
            SequentialVerdict.SMALLER: SequentialVerdict.LARGER,
        }.get(pair.verdict, pair.verdict)
        by_pair[pair.agent_a, pair.agent_b] = pair.verdict
        by_pair[pair.agent_b, pair.agent_a] = mirrored
    return by_pair


def exact_p(a, b):
    """Share of all relabellings with a difference as large, by plain loops."""
    pooled, observed = [*a, *b], abs(sum(a) - sum(b))
    sums = [2 * sum(pooled[i] for i in half) - sum(pooled) for half in combinations(range(len(pooled)), len(a))]
    return sum(abs(s) >= observed - 1e-9 for s in sums) / len(sums)


def test_one_look_at_two_agents_is_the_exact_permutation_test():
    # complete separation of 4 and 4: 2 of 70 relabellings are as extreme, p = 0.029
    state = compare_sequentially({"a": [5, 6, 7, 8], "b": [1, 2, 3, 4]}, ONE_LOOK, rng())
    assert verdicts(state)["a", "b"] is SequentialVerdict.LARGER
    assert state.pairs[0].delta == 4.0
    assert state.pairs[0].n == 4
    # one swap: T = 14; 4 of 70 relabellings reach it, p = 0.057
    state = compare_sequentially({"a": [4, 6, 7, 8], "b": [1, 2, 3, 5]}, ONE_LOOK, rng())
    assert verdicts(state)["a", "b"] is SequentialVerdict.EQUAL


@given(st.lists(st.integers(-3, 9), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_one_look_agrees_with_the_p_value_by_loops(scores):
    a, b = scores[:4], scores[4:]
    state = compare_sequentially({"a": a, "b": b}, ONE_LOOK, rng())
    assert (state.pairs[0].verdict is not SequentialVerdict.EQUAL) == (exact_p(a, b) <= 0.05)


def test_three_seeds_cannot_decide_at_five_percent():
    # the smallest p-value of 3 and 3 is 2/20
    state = compare_sequentially({"a": [10, 11, 12], "b": [0, 1, 2]}, AdaStopSettings(n_seeds=3, n_interims=1), rng())
    assert verdicts(state)["a", "b"] is SequentialVerdict.EQUAL


def test_alpha_is_spent_over_the_interims():
    # 5 and 5 separated: p = 2/252 = 0.8% <= 0.05 / 5 but > 0.05 / 10
    scores = {"a": [6, 7, 8, 9, 10], "b": [1, 2, 3, 4, 5]}
    assert not compare_sequentially(scores, AdaStopSettings(5, 5), rng()).needs_seeds
    assert compare_sequentially(scores, AdaStopSettings(5, 10), rng()).needs_seeds


def test_listed_relabellings_of_two_blocks_stay_inside_their_block():
    state = AdaStop(["a", "b"], AdaStopSettings(2, 3, max_permutations=400), rng())
    state.feed({"a": [1, 2], "b": [3, 4]})
    state.feed({"a": [10, 20], "b": [30, 40]})
    first = [2 * sum(half) - 10 for half in combinations([1, 2, 3, 4], 2)]
    second = [2 * sum(half) - 100 for half in combinations([10, 20, 30, 40], 2)]
    assert sorted(state._sums_MP[:, 0]) == sorted(x + y for x in first for y in second)
    assert state._sums_MP[0, 0] == -44


def test_sampling_takes_over_when_there_are_too_many_relabellings():
    test = AdaStop(["a", "b"], AdaStopSettings(5, 2, max_permutations=300), rng())
    test.feed({"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]})
    assert len(test._sums_MP) == 252
    state = test.feed({"a": [11, 12, 13, 14, 15], "b": [1, 2, 3, 4, 5]})
    assert len(test._sums_MP) == 301
    assert test._sums_MP[0, 0] == 50
    assert not state.needs_seeds


def test_far_agents_are_decided_first_and_need_no_more_seeds():
    draw = rng(3)
    test = AdaStop(["best", "mid", "mid2"], AdaStopSettings(6, 4), rng())
    state = test.feed({"best": draw.normal(9, 1, 6), "mid": draw.normal(0, 1, 6), "mid2": draw.normal(0, 1, 6)})
    assert verdicts(state)["best", "mid"] is SequentialVerdict.LARGER
    assert verdicts(state)["mid2", "best"] is SequentialVerdict.SMALLER
    assert verdicts(state)["mid", "mid2"] is SequentialVerdict.UNDECIDED
    assert state.needs_seeds == ("mid", "mid2")
    assert state.needs_seeds
    state = test.feed({"mid": draw.normal(0, 1, 6), "mid2": draw.normal(0, 1, 6)})
    assert [pair.n for pair in state.pairs] == [6, 6, 12]
    assert "2 of 3 pairs differ, 1 undecided (n=12 seeds each at most" in str(state)


def test_levels_follow_how_many_pairs_can_be_equal_at_once():
    assert _possible_true_counts(2) == [0, 1]
    assert _possible_true_counts(3) == [0, 1, 3]
    assert _possible_true_counts(5) == [0, 1, 2, 3, 4, 6, 10]


def test_interims_too_early_to_decide_anything_pass_their_share_on():
    assert _weights(AdaStopSettings(5, 5), 1) == [0.2] * 5  # 2/252 <= 0.05 / 5
    assert _weights(AdaStopSettings(5, 5), 10) == [0.0, 0.4, 0.2, 0.2, 0.2]
    assert _weights(AdaStopSettings(1, 3), 1) == [0.0, 0.0, 1.0]


def test_step_down_finds_a_pair_that_one_step_would_miss():
    # a and b alone: 4 of 252 relabellings are as extreme, 1.6%: below 5% but not below 5% / 3
    scores = {"a": [1, 2, 3, 4, 6], "b": [5, 7, 8, 9, 10]}
    far = {"c": [108, 109, 110, 111, 112]}
    near = {"c": [3, 4, 5, 6, 7]}
    design = AdaStopSettings(5, 1)
    assert exact_p(scores["a"], scores["b"]) == pytest.approx(4 / 252)
    assert verdicts(compare_sequentially(scores | far, design, rng()))["a", "b"] is SequentialVerdict.SMALLER
    scores["a"], scores["b"] = [1, 2, 3, 5, 6], [4, 7, 8, 9, 10]  # 8 of 252: 3.2%
    assert verdicts(compare_sequentially(scores | far, design, rng()))["a", "b"] is SequentialVerdict.SMALLER
    assert verdicts(compare_sequentially(scores | near, design, rng()))["a", "b"] is SequentialVerdict.EQUAL


def test_all_equal_scores_are_never_different():
    scores = {name: [0.5] * 15 for name in "abc"}
    state = compare_sequentially(scores, AdaStopSettings(5, 3), rng())
    assert {pair.verdict for pair in state.pairs} == {SequentialVerdict.EQUAL}
    assert state.interim == 3


def test_early_acceptance_ends_a_hopeless_comparison():
    scores = {"a": [1, 2, 3, 4, 5] * 5, "b": [1, 2, 3, 4, 5] * 5}
    late = compare_sequentially(scores, AdaStopSettings(5, 5), rng())
    early = compare_sequentially(scores, AdaStopSettings(5, 5, beta=0.5), rng())
    assert early.interim < late.interim == 5
    assert early.pairs[0].verdict is SequentialVerdict.EQUAL


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [([32, 1, 4], [2, 8, 16], SequentialVerdict.EQUAL), ([32, 1, 8], [2, 4, 16], SequentialVerdict.UNDECIDED)],
)
def test_early_acceptance_spends_an_equal_part_at_each_interim(a, b, verdict):
    # 20 relabellings in 10 pairs of equal size; beta 0.25 accepts what is below the sixth: the two smallest
    state = compare_sequentially({"a": a, "b": b}, AdaStopSettings(3, 2, beta=0.5), rng())
    assert state.pairs[0].verdict is verdict


def test_scores_beyond_the_last_whole_block_wait():
    state = compare_sequentially({"a": [1, 2, 3, 4, 5, 6, 7], "b": [1, 2, 3, 4, 5]}, AdaStopSettings(5, 3), rng())
    assert state.interim == 1
    assert state.needs_seeds == ("a", "b")
    assert compare_sequentially({"a": [], "b": []}, AdaStopSettings(5, 3), rng()).interim == 0


def test_more_seeds_do_not_change_what_was_decided():
    draw = rng(5)
    scores = {name: draw.normal(mean, 1, 25) for name, mean in {"a": 0, "b": 1, "c": 3}.items()}
    decided = {}
    for n in (5, 10, 15, 20, 25):
        state = compare_sequentially({k: v[:n] for k, v in scores.items()}, AdaStopSettings(), rng(1))
        now = {pair[:2]: v for pair, v in verdicts(state).items() if v is not SequentialVerdict.UNDECIDED}
        assert decided.items() <= now.items()
        decided = now
    assert len(decided) == 6


@pytest.mark.parametrize("order", list(permutations("abc"))[:4])
def test_the_order_of_agents_changes_nothing(order):
    draw = rng(7)
    scores = {name: draw.normal(mean, 1, 20) for name, mean in {"a": 0, "b": 1, "c": 2}.items()}
    settings_ = AdaStopSettings(5, 4, max_permutations=1000)
    first = compare_sequentially(scores, settings_, rng(1))
    assert compare_sequentially({name: scores[name] for name in order}, settings_, rng(1)) == first


@given(st.permutations(list("abcd")), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_renaming_agents_renames_the_decisions_when_they_are_clear(names, seed):
    draw = rng(seed)
    blocks = [draw.normal(100 * place, 1, 6) for place in range(4)]
    state = compare_sequentially(
        dict(zip(names, blocks, strict=True)), AdaStopSettings(6, 1, max_permutations=500), rng()
    )
    by_pair = verdicts(state)
    for low, high in combinations(range(4), 2):
        assert by_pair[names[low], names[high]] is SequentialVerdict.SMALLER


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_shifting_and_scaling_all_scores_changes_no_decision(shift, scale):
    draw = rng(11)
    scores = {name: draw.normal(mean, 1, 10) for name, mean in {"a": 0, "b": 1.5, "c": 3}.items()}
    design = AdaStopSettings(5, 2, max_permutations=300)
    plain = compare_sequentially(scores, design, rng(1))
    moved = compare_sequentially({k: shift + scale * v for k, v in scores.items()}, design, rng(1))
    assert verdicts(plain) == verdicts(moved)


def test_relabellings_are_balanced_uniform_and_come_in_bounded_chunks(monkeypatch):
    monkeypatch.setattr(sequential, "CHUNK_ELEMENTS", 6 * 50)
    chunks = list(sampled_signs(rng())(1000, 3))
    assert [len(chunk) for chunk in chunks] == [50] * 20
    signs = np.concatenate(chunks)
    assert not signs.sum(axis=1).any()
    patterns, counts = np.unique(signs, axis=0, return_counts=True)
    assert len(patterns) == 20
    assert counts.min() > 20


def test_a_withdrawn_agent_keeps_what_was_decided_and_holds_nobody_up():
    draw = rng(3)
    scores = {name: draw.normal(mean, 1, 12) for name, mean in {"a": 9, "b": 0, "c": 0.2}.items()}
    scores["b"] = scores["b"][:6]
    state = compare_sequentially(scores, AdaStopSettings(6, 2), rng(), withdrawn=["b"])
    by_pair = verdicts(state)
    assert by_pair["a", "b"] is by_pair["a", "c"] is SequentialVerdict.LARGER
    assert by_pair["b", "c"] is SequentialVerdict.UNDECIDED
    assert not state.needs_seeds
    assert compare_sequentially(scores, AdaStopSettings(6, 2), rng()).needs_seeds == ("b", "c")
    test = AdaStop(["a", "b"], ONE_LOOK, rng())
    with pytest.raises(ValueError, match="not among"):
        test.withdraw("z")


def test_listed_and_sampled_relabellings_agree():
    draw = rng(2)
    scores = {name: draw.normal(mean, 1, 12) for name, mean in {"a": 0, "b": 1, "c": 4, "d": 4.5}.items()}
    listed = compare_sequentially(scores, AdaStopSettings(6, 2, max_permutations=10**6), rng())
    sampled = compare_sequentially(scores, AdaStopSettings(6, 2, max_permutations=5000), rng())
    assert verdicts(listed) == verdicts(sampled)
    assert SequentialVerdict.SMALLER in verdicts(listed).values()


def test_the_error_under_the_null_is_close_to_alpha():
    wrong = 0
    for seed in range(200):
        draw = rng(seed)
        scores = {name: draw.normal(0, 1, 8) for name in "abc"}
        state = compare_sequentially(scores, AdaStopSettings(4, 2, max_permutations=400), draw)
        wrong += any(pair.verdict is not SequentialVerdict.EQUAL for pair in state.pairs)
    assert wrong <= 21  # 1 in 1000 for 5% of 200


def test_bad_designs_and_scores_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        AdaStopSettings(n_seeds=0)
    with pytest.raises(ValueError, match="alpha"):
        AdaStopSettings(alpha=1.5)
    with pytest.raises(ValueError, match="cannot decide 3 pairs in 5 interims; use at least 300"):
        AdaStop(["a", "b", "c"], AdaStopSettings(max_permutations=299), rng())
    with pytest.raises(NotEnoughData, match="at least 2 agents"):
        AdaStop(["a"], AdaStopSettings(), rng())
    with pytest.raises(ValueError, match="twice"):
        AdaStop(["a", "a"], AdaStopSettings(), rng())
    test = AdaStop(["a", "b"], ONE_LOOK, rng())
    with pytest.raises(NotEnoughData, match="no new scores"):
        test.feed({"a": [1, 2, 3, 4]})
    with pytest.raises(NotEnoughData, match="3 new scores; each interim takes 4"):
        test.feed({"a": [1, 2, 3, 4], "b": [1, 2, 3]})
    with pytest.raises(NotEnoughData, match="missing"):
        test.feed({"a": [1, 2, 3, 4], "b": [1, 2, 3, float("nan")]})
    with pytest.raises(ValueError, match="not among"):
        test.feed({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4], "z": [1, 2, 3, 4]})
    assert test.state.interim == 0
    test.feed({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]})
    with pytest.raises(ValueError, match="decided by interim 1"):
        test.feed({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]})
