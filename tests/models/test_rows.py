import numpy as np
import torch

from agent2.models.draws import Drawn
from agent2.models.rows import Request, Rows
from agent2.records import SamplingSettings

NO_END = np.zeros(1000, dtype=np.bool_)


def request(id: int, limit: int = 100, **settings) -> Request:
    return Request(id, (1, 2, 3), limit, SamplingSettings(seed=id, **settings))


def drawn(*tokens: int) -> Drawn:
    return Drawn(np.array(tokens), np.array([-0.5 * token for token in tokens]))


def test_a_removed_row_is_replaced_by_the_last_with_all_it_has():
    rows = Rows(3)
    for id in (10, 11, 12):
        rows.add(request(id))
    rows.record(0, drawn(1, 2, 3), NO_END)
    rows.record(0, drawn(4, 5, 6), NO_END)
    third = rows.numbers(2)[0]
    assert rows.remove(0) == 2
    assert [r.id for r in rows.requests] == [12, 11]
    assert rows.generated(0).tokens == [3, 6]
    assert rows.generated(0).logprobs == [-1.5, -3.0]
    assert rows.generated(1).tokens == [2, 5]
    assert rows.numbers(0)[0] == third
    assert rows.last[:2].tolist() == [6, 5]


def test_removing_the_last_row_moves_nothing():
    rows = Rows(2)
    rows.add(request(1))
    rows.add(request(2))
    assert rows.remove(1) == 1
    assert [r.id for r in rows.requests] == [1]


def test_rows_are_done_at_an_end_token_at_their_limit_or_at_a_bad_number_highest_first():
    rows = Rows(4)
    for id, limit in ((0, 9), (1, 1), (2, 9), (3, 9)):
        rows.add(request(id, limit))
    is_end = NO_END.copy()
    is_end[7] = True
    done = rows.record(0, Drawn(np.array([7, 1, 1, 1]), np.array([-1.0, -1.0, -1.0, np.nan])), is_end)
    assert done.tolist() == [3, 1, 0]


def test_a_long_history_is_kept_whole():
    rows = Rows(2)
    rows.add(request(0, limit=10_000))
    for i in range(300):
        rows.record(0, drawn(i), NO_END)
    assert rows.generated(0).tokens == list(range(300))


def test_only_what_some_row_needs_is_asked_of_the_draw():
    rows = Rows(3)
    rows.add(request(0, temperature=1.0))
    settings = rows.draw_settings(0, torch.device("cpu"))
    assert (settings.temperatures, settings.top_ps, settings.is_greedy, settings.all_greedy) == (
        None,
        None,
        None,
        False,
    )
    rows.add(request(1, temperature=0.0))
    rows.add(request(2, temperature=0.5, top_p=0.9))
    settings = rows.draw_settings(0, torch.device("cpu"))
    assert settings.temperatures.tolist() == [1, 1, 0.5]
    np.testing.assert_allclose(settings.top_ps, [1, 1, 0.9])
    assert settings.is_greedy.tolist() == [False, True, False]
    assert rows.draw_settings(2, torch.device("cpu")).is_greedy is None
    rows.remove(2)
    rows.remove(0)
    assert rows.draw_settings(0, torch.device("cpu")).all_greedy
