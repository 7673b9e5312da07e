"""Difficulty, discrimination and chance, against hand-computed cases."""

import math

import numpy as np
import pytest

from agent2.errors import NotEnoughData
from agent2.stats.items import chance_of_as_many, item_difficulty, item_discrimination


def test_difficulty_leaves_missing_scores_out():
    difficulty = item_difficulty([[1, math.nan, 0], [0, 1, math.nan], [1, 1, math.nan]])
    assert np.allclose(difficulty, [1 / 3, 0, 1])


def test_an_item_that_only_the_better_players_solve_discriminates_and_a_reversed_one_has_the_opposite_sign():
    scores = [[0, 0, 0, 1], [0, 1, 1, 0], [1, 1, 1, 0]]
    discrimination = item_discrimination(scores)
    # item 0: scores 0 0 1, elsewhere 1/3 2/3 2/3
    assert discrimination[0] == pytest.approx(0.5)
    assert discrimination[1] > 0 > discrimination[3]


def test_an_item_that_all_solve_says_nothing():
    assert math.isnan(item_discrimination([[1, 0], [1, 1], [1, 0]])[0])
    with pytest.raises(NotEnoughData, match="at least 3"):
        item_discrimination([[1, 0], [1, 1]])


def test_the_chance_of_as_many_right_guesses_is_the_binomial_tail():
    assert chance_of_as_many(2, [0.5, 0.5]) == pytest.approx(0.25)
    assert chance_of_as_many(1, [0.25, 0.5]) == pytest.approx(1 - 0.75 * 0.5)
    assert chance_of_as_many(0, []) == 1.0
