import math

import numpy as np
import pytest
from scipy import special, stats

from agent2.errors import NotEnoughData
from agent2.stats.ranking import bradley_terry, play_bracket, play_round_robin, play_tournament


def strengths(ranking):
    return [one.value for one in ranking.strength]


def rng(seed=0):
    return np.random.default_rng(seed)


def stronger_wins(prompt, first, second):
    return float(first < second)


@pytest.mark.parametrize("n_models", [2, 3, 5, 8, 13])
def test_a_bracket_plays_one_match_less_than_models_and_the_best_wins_the_last(n_models):
    for seed in range(10):
        played = play_bracket(n_models, 0, stronger_wins, rng(seed))
        assert len(played) == n_models - 1
        assert 0 in played[-1][1:3]
        losers = [max(first, second) for _, first, second, _ in played]
        assert sorted(losers) == list(range(1, n_models))  # everyone but the winner is eliminated once


def test_byes_go_to_random_models():
    first_round = {frozenset(play_bracket(3, 0, stronger_wins, rng(seed))[0][1:3]) for seed in range(30)}
    assert first_round == {frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})}


def test_who_is_shown_first_is_random():
    shown_first = [play_bracket(2, 0, stronger_wins, rng(seed))[0][1] for seed in range(200)]
    assert 70 < sum(shown_first) < 130


@pytest.mark.parametrize("score", [lambda *match: 0.5, lambda *match: None, lambda *match: math.nan])
def test_a_draw_and_a_missing_score_are_decided_by_a_coin(score):
    assert {play_bracket(4, 0, score, rng(seed))[-1][1] for seed in range(60)} == {0, 1, 2, 3}


def test_a_score_that_is_not_a_number_is_no_loss():
    brackets = [play_bracket(4, 0, lambda *match: math.nan, rng(seed)) for seed in range(40)]
    advanced = [played[0][1] in played[-1][1:3] for played in brackets]  # who was shown first in the first match
    assert 5 < sum(advanced) < 35


def test_missing_scores_are_counted_not_drawn():
    result = play_tournament(4, 5, lambda p, a, b: None if p == 0 else stronger_wins(p, a, b), rng())
    assert (result.n_judgements, result.matches.n, result.matches.n_missing) == (15, 12, 3)
    assert "3 missing" in str(result)


def test_the_cost_is_two_over_models_of_a_round_robin():
    result = play_tournament(8, 10, stronger_wins, rng())
    assert (result.n_judgements, result.n_round_robin, result.cost_share) == (70, 280, 0.25)
    assert play_round_robin(8, 10, stronger_wins, rng()).n == 280


def test_brackets_order_the_models_as_a_round_robin_does():
    true = np.linspace(1.5, -1.5, 9)
    draws = rng(5)

    def judge(prompt, first, second):
        return float(draws.random() < special.expit(true[first] - true[second]))

    brackets = strengths(bradley_terry(play_tournament(9, 200, judge, rng(1)).matches))
    everyone = strengths(bradley_terry(play_round_robin(9, 200, judge, rng(2))))
    assert stats.spearmanr(brackets, everyone).statistic > 0.95


def test_bad_arguments_are_refused():
    for n_models, n_prompts in ((1, 5), (4, 0)):
        with pytest.raises(NotEnoughData):
            play_tournament(n_models, n_prompts, stronger_wins, rng())
        with pytest.raises(NotEnoughData):
            play_round_robin(n_models, n_prompts, stronger_wins, rng())
    with pytest.raises(NotEnoughData):
        play_bracket(1, 0, stronger_wins, rng())
    with pytest.raises(NotEnoughData, match="has a score"):
        play_tournament(3, 2, lambda *match: None, rng())
    with pytest.raises(ValueError, match="expected 0-1"):
        play_tournament(3, 2, lambda *match: 7.0, rng())
