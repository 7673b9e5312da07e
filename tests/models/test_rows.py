import numpy as np
import pytest
import torch

from agent2.models.rows import Request, Rows
from agent2.models.slots import SampledTokens, SlotSwap
from agent2.records import SamplingSettings

NO_END = np.zeros(1000, dtype=np.bool_)


def request(id: int, limit: int = 100, n_tokens: int = 3, **settings) -> Request:
    return Request(id, tuple(range(1, n_tokens + 1)), limit, SamplingSettings(seed=id, **settings))


def drawn(*tokens: int) -> SampledTokens:
    return SampledTokens(np.array(tokens), np.array([-0.5 * token for token in tokens]))


def running(rows: Rows) -> list[int]:
    return [rows.request(row).id for row in np.flatnonzero(rows.is_running)]


def step(rows: Rows, *tokens: int) -> None:
    """A token for each running row, as a decoding step does it."""
    rows.lengths[: rows.n] += rows.counts[: rows.n] > 0
    rows.record(slice(0, rows.n), drawn(*tokens), NO_END)


def test_a_hole_is_filled_by_the_last_running_row_with_all_it_has():
    rows = Rows(3)
    for row, id in enumerate((10, 11, 12)):
        rows.start(row, request(id, n_tokens=2 + row))
    step(rows, 1, 2, 3)
    step(rows, 4, 5, 6)
    third = rows.numbers(np.array([2]))[0]
    rows.park(0)
    assert rows.compact() == [SlotSwap(0, 2, n_columns=5)]
    assert running(rows) == [12, 11]
    assert (rows.generated(0).tokens, rows.generated(0).logprobs) == ([3, 6], [-1.5, -3.0])
    assert rows.generated(1).tokens == [2, 5]
    assert rows.numbers(slice(0, 1))[0] == third
    assert rows.last[:2].tolist() == [6, 5]
    assert rows.parked().tolist() == [2]
    assert rows.tokens[2, : rows.lengths[2]].tolist() == [1, 2, 1]  # its prompt and what was fed, not the last draw


def test_nothing_moves_while_the_running_rows_are_the_first():
    rows = Rows(3)
    rows.start(0, request(1))
    rows.start(1, request(2))
    rows.park(1)
    assert rows.compact() == []
    assert running(rows) == [1]


def test_parked_rows_come_in_the_order_in_which_they_were_parked_and_dropped_ones_are_free():
    rows = Rows(4)
    for row in range(4):
        rows.start(row, request(row))
    for row in (2, 0, 3):
        rows.park(row)
    assert rows.parked().tolist() == [2, 0, 3]
    rows.drop(0)
    assert rows.parked().tolist() == [2, 3]
    assert rows.free().tolist() == [0]
    assert (rows.n, rows.peak) == (1, 4)
    with pytest.raises(AssertionError, match="not running"):
        rows.request(2)


def test_rows_are_done_at_an_end_token_at_their_limit_or_at_a_bad_number():
    rows = Rows(4)
    for id, limit in ((0, 9), (1, 1), (2, 9), (3, 9)):
        rows.start(id, request(id, limit))
    is_end = NO_END.copy()
    is_end[7] = True
    done = rows.record(slice(0, 4), SampledTokens(np.array([7, 1, 1, 1]), np.array([-1.0, -1.0, -1.0, np.nan])), is_end)
    assert done.tolist() == [0, 1, 3]


def test_tokens_are_noted_for_any_rows():
    rows = Rows(4)
    for row in range(4):
        rows.start(row, request(row))
    is_end = NO_END.copy()
    is_end[8] = True
    assert rows.record(np.array([3, 1]), drawn(8, 9), is_end).tolist() == [3]
    assert [rows.generated(row).tokens for row in range(4)] == [[], [9], [], [8]]


@pytest.mark.parametrize("n_tokens", [3, 500])
def test_a_long_history_is_kept_whole(n_tokens):
    rows = Rows(2)
    rows.start(0, request(0, limit=10_000, n_tokens=n_tokens))
    for i in range(300):
        step(rows, i)
    assert rows.generated(0).tokens == list(range(300))
    assert rows.tokens[0, :n_tokens].tolist() == list(range(1, n_tokens + 1))


def test_only_what_some_row_needs_is_asked_of_the_draw():
    rows, all_rows = Rows(3), slice(0, 3)
    rows.start(0, request(0, temperature=1.0))
    settings = rows.batch_sampling(slice(0, 1), torch.device("cpu"))
    assert settings == type(settings)()
    rows.start(0, request(0, temperature=None, top_p=None))
    assert rows.batch_sampling(slice(0, 1), torch.device("cpu")) == settings
    rows.start(1, request(1, temperature=0.0))
    rows.start(2, request(2, temperature=0.5, top_p=0.9))
    settings = rows.batch_sampling(all_rows, torch.device("cpu"))
    assert settings.temperatures.tolist() == [1, 1, 0.5]
    np.testing.assert_allclose(settings.top_ps, [1, 1, 0.9])
    assert settings.is_greedy.tolist() == [False, True, False]
    assert rows.batch_sampling(np.array([2]), torch.device("cpu")).is_greedy is None
    assert rows.batch_sampling(np.array([1]), torch.device("cpu")).all_greedy
