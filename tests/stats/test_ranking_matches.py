import numpy as np
import pytest

from agent2.errors import NotEnoughData
from agent2.stats.ranking import collect_matches, resampled_win_tables, win_table


def rng(seed=0):
    return np.random.default_rng(seed)


def test_a_draw_is_half_a_win_for_each():
    matches = collect_matches([0, 1, 2], [1, 0, 0], [1.0, 0.5, 0.25], 3)
    assert win_table(matches).tolist() == [[0.0, 1.5, 0.75], [0.5, 0.0, 0.0], [0.25, 0.0, 0.0]]


def test_a_match_without_a_score_is_counted_and_left_out():
    matches = collect_matches([0, 0], [1, 1], [1.0, None], 2)
    assert (matches.n, matches.n_missing) == (1, 1)


def test_matches_of_one_prompt_are_drawn_together():
    # prompt "a": 0 beats 1 and 1 beats 2; prompt "b": 2 beats 0
    matches = collect_matches([0, 1, 2], [1, 2, 0], [1, 1, 1], 3, group=["a", "a", "b"])
    tables = resampled_win_tables(matches, rng(), 500)
    assert (tables[:, 0, 1] == tables[:, 1, 2]).all()
    assert (tables[:, 0, 1] + tables[:, 2, 0] == 2).all()
    assert tables[:, 0, 1].mean() == pytest.approx(1.0, abs=0.1)


def test_single_matches_are_drawn_as_often_as_there_are():
    matches = collect_matches([0] * 60, [1] * 60, [1.0] * 40 + [0.5] * 20, 2)
    tables = resampled_win_tables(matches, rng(), 4000)
    assert tables.sum(axis=(1, 2)) == pytest.approx(60.0)
    assert tables[:, 0, 1].mean() == pytest.approx(50.0, abs=0.3)
    # 40 to 60 draws from 1 and 0.5 with chances 2/3 and 1/3: variance 60 * 0.25 * 2/9
    assert tables[:, 0, 1].var() == pytest.approx(60 * 0.25 * 2 / 9, rel=0.1)


def test_bad_matches_are_refused():
    with pytest.raises(NotEnoughData, match="2 are needed"):
        collect_matches([], [], [], 1)
    with pytest.raises(NotEnoughData, match="none of 0"):
        collect_matches([], [], [], 2)
    with pytest.raises(NotEnoughData, match="none of 1"):
        collect_matches([0], [1], [np.nan], 2)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        collect_matches([0], [2], [1.0], 2)
    with pytest.raises(ValueError, match="both sides"):
        collect_matches([1], [1], [1.0], 2)
    with pytest.raises(ValueError, match="expected 0-1"):
        collect_matches([0], [1], [1.5], 2)
    with pytest.raises(ValueError, match="shapes"):
        collect_matches([0, 1], [1], [1.0], 2)
    with pytest.raises(NotEnoughData, match="one group"):
        resampled_win_tables(collect_matches([0], [1], [1.0], 2), rng(), 10)
    with pytest.raises(ValueError, match="n_replicates"):
        resampled_win_tables(collect_matches([0, 1], [1, 0], [1.0, 1.0], 2), rng(), 0)
