from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from agent2.errors import NotEnoughData
from agent2.stats.attempts import best_of_n, cost_per_point, majority_at_k, pass_at_k

ATTEMPTS = st.tuples(
    st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=8), st.sets(st.sampled_from("abcd"))
)


def majority_by_hand(answers, correct, k):
    """Every subset of k in turn; tied answers share the win."""
    total = 0.0
    subsets = list(combinations(answers, k))
    for subset in subsets:
        votes = {answer: subset.count(answer) for answer in set(subset) - {None}}
        top = [answer for answer, n in votes.items() if n == max(votes.values())]
        total += sum(answer in correct for answer in top) / max(1, len(top))
    return total / len(subsets)


def best_by_hand(solved, scores, n):
    total = 0.0
    subsets = list(combinations(range(len(solved)), n))
    for subset in subsets:
        top = [i for i in subset if scores[i] == max(scores[j] for j in subset)]
        total += sum(solved[i] for i in top) / len(top)
    return total / len(subsets)


def test_majority_of_all_attempts_is_the_plurality():
    majority = majority_at_k([["7", "7", "8"], ["1", "2", "2"]], [[1, 1, 0], [1, 0, 0]], 3)
    assert majority.value == 0.5


def test_tied_answers_share_the_win():
    assert majority_at_k([["7", "8"]], [[1, 0]], 2).value == 0.5
    assert majority_at_k([["7", "8", "9"]], [[1, 0, 1]], 3).value == pytest.approx(2 / 3)


def test_an_attempt_without_answer_takes_a_place_and_has_no_vote():
    assert majority_at_k([["7", None, None]], [[1, 0, 0]], 3).value == 1.0
    assert majority_at_k([[None, None]], [[0, 0]], 2).value == 0.0
    assert majority_at_k([["7", None]], [[1, 0]], 1).value == 0.5


def test_majority_at_1_is_pass_at_1():
    answers, solved = [["7", "8", None, "7"], ["5", "5", "6", "4"]], [[1, 0, 0, 1], [0, 0, 1, 0]]
    assert majority_at_k(answers, solved, 1).value == pytest.approx(pass_at_k([2, 1], [4, 4], 1))


def test_items_with_too_few_judged_attempts_are_missing():
    majority = majority_at_k([["7", "7"], ["7", "8"]], [[1, 1], [None, 0]], 2)
    assert (majority.value, majority.n, majority.n_missing) == (1.0, 1, 1)
    with pytest.raises(NotEnoughData, match="majority@3"):
        majority_at_k([["7", "7"]], [[1, 1]], 3)


def test_majority_of_two_answers_is_hypergeometric_however_many_attempts():
    majority = majority_at_k([["yes"] * 1100 + ["no"] * 900], [[1] * 1100 + [0] * 900], 25)
    assert majority.value == pytest.approx(hypergeom.sf(12, 2000, 1100, 25))


@pytest.mark.parametrize(
    ("answers", "solved", "message"),
    [
        ([["7", "7"]], [[1, 0]], "both right and wrong"),
        ([[None]], [[1]], "without an answer"),
        ([["7"]], [[1, 0]], "match them"),
        ([["7"]], [[1], [1]], "must match"),
        ([["7"]], [[0.5]], "0 or 1"),
    ],
)
def test_votes_that_cannot_be_are_refused(answers, solved, message):
    with pytest.raises(ValueError, match=message):
        majority_at_k(answers, solved, 1)
    with pytest.raises(ValueError, match="at least 1"):
        majority_at_k([["7"]], [[1]], 0)


@given(ATTEMPTS, st.data())
@settings(max_examples=100, deadline=None)
def test_majority_equals_counting_every_subset(attempts, data):
    answers, correct = attempts
    k = data.draw(st.integers(1, len(answers)))
    solved = [int(answer in correct) for answer in answers]
    majority = majority_at_k([answers], [solved], k)
    assert majority.value == pytest.approx(majority_by_hand(answers, correct, k), abs=1e-12)
    order = data.draw(st.permutations(range(len(answers))))
    again = majority_at_k([[answers[i] for i in order]], [[solved[i] for i in order]], k)
    assert again.value == pytest.approx(majority.value, abs=1e-12)


def test_best_of_n_lies_between_one_attempt_and_the_oracle():
    best = best_of_n([[1, 0, 0, 1]], [[0.9, 0.1, 0.2, 0.8]], 2, "reward model 3")
    # the best of a pair is wrong only for the pair of both wrong ones: 1 of 6
    assert best.chosen.value == pytest.approx(5 / 6)
    assert (best.pass_at_1, best.oracle) == (pytest.approx(0.5), pytest.approx(5 / 6))
    assert best.share_of_oracle == pytest.approx(1.0)
    assert "best-of-2 by reward model 3 0.8333" in str(best) and "100% of the oracle's gain" in str(best)


def test_an_inverted_selector_loses_and_a_constant_one_changes_nothing():
    solved, scores = [[1, 0, 0, 1], [1, 1, 0, 0]], [[-0.9, -0.1, -0.2, -0.8], [-3.0, -4.0, 2.0, 1.0]]
    assert best_of_n(solved, scores, 2, "inverted").gain < 0.0
    assert best_of_n(solved, [[5.0] * 4] * 2, 3, "constant").gain == pytest.approx(0.0)


def test_best_of_1_is_pass_at_1_and_nothing_to_gain_has_no_share():
    best = best_of_n([[1, 0], [1, 1]], [[0.1, 0.7], [1.0, 2.0]], 1, "any")
    assert best.chosen.value == pytest.approx(best.pass_at_1) == pytest.approx(0.75)
    assert best.share_of_oracle is None


def test_attempts_without_verdict_or_score_are_left_out():
    best = best_of_n([[1, 0, None], [1, 0, 1]], [[0.5, 0.6, 0.9], [None, 0.1, 0.2]], 2, "any")
    assert best.chosen.value == pytest.approx(0.5)
    short = best_of_n([[1, None], [1, 0]], [[0.5, 0.6], [1.0, 0.0]], 2, "any")
    assert (short.chosen.n, short.chosen.n_missing) == (1, 1)
    with pytest.raises(NotEnoughData):
        best_of_n([[1, None]], [[0.5, 0.6]], 2, "any")


@pytest.mark.parametrize(
    ("solved", "scores", "selector"),
    [([[1]], [[1.0]], ""), ([[1]], [[1.0, 2.0]], "x"), ([[1]], [[1.0], [1.0]], "x"), ([[1]], [[np.inf]], "x")],
)
def test_selections_that_cannot_be_are_refused(solved, scores, selector):
    with pytest.raises(ValueError):
        best_of_n(solved, scores, 1, selector)


def test_best_of_0_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        best_of_n([[1, 0]], [[1.0, 2.0]], 0, "any")


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-2, 2)), min_size=1, max_size=8), st.data())
@settings(max_examples=80, deadline=None)
def test_best_of_n_equals_counting_every_subset(attempts, data):
    solved, scores = [s for s, _ in attempts], [score for _, score in attempts]
    n = data.draw(st.integers(1, len(solved)))
    best = best_of_n([solved], [scores], n, "any")
    assert best.chosen.value == pytest.approx(best_by_hand(solved, scores, n), abs=1e-12)
    assert best.chosen.value <= best.oracle + 1e-12


def test_cost_per_point_of_a_hand_computed_case():
    cost = cost_per_point(0.40, 0.45, [900, 1100, None], [7, 7, 7], [None, None, None])
    assert (cost.points, cost.tokens, cost.verifier_calls) == (
        pytest.approx(5.0),
        pytest.approx(200.0),
        pytest.approx(1.4),
    )
    assert cost.latency_s is None
    assert str(cost) == (
        "+5.0 points; for each point and item: 200 tokens (1 missing), 1.4 verifier calls, s latency not recorded "
        "(n=3 items)"
    )


@pytest.mark.parametrize("searched", [0.4, 0.3])
def test_no_gain_has_no_price(searched):
    cost = cost_per_point(0.4, searched, [100], [1], [1.0])
    assert (cost.tokens, cost.verifier_calls, cost.latency_s) == (None, None, None)
    assert "nothing gained" in str(cost)


def test_costs_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="not percent"):
        cost_per_point(40.0, 45.0, [1], [1], [1])
    with pytest.raises(ValueError, match="extra_tokens"):
        cost_per_point(0.4, 0.5, [-1], [1], [1])


def test_costs_say_how_many_items_they_rest_on():
    cost = cost_per_point(0.40, 0.45, [900, 1100, None], [7, 7, 7], [])
    assert (cost.n, cost.n_missing) == (3, {"tokens": 1, "verifier_calls": 0, "latency_s": 3})


def test_costs_of_other_items_cannot_be_paired():
    with pytest.raises(ValueError, match="pair them by id"):
        cost_per_point(0.4, 0.5, [1, 2], [1], [])
