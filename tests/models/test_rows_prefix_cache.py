import pytest

from agent2.models import rows as prefix_cache
from agent2.models.rows import Request, Rows, SlotAssignment, assign_slots
from agent2.records import SamplingSettings


@pytest.fixture(autouse=True)
def short_prefixes_count(monkeypatch):
    monkeypatch.setattr(prefix_cache, "MIN_REUSED", 2)
    monkeypatch.setattr(prefix_cache, "MIN_COPIED", 3)


def request(id: int, *tokens: int) -> Request:
    return Request(id, tokens, 100, SamplingSettings())


def rows_with(parked: list[tuple[int, ...]], n_running: int = 0, capacity: int = 8) -> Rows:
    """Parked rows with these tokens, in the order in which they were parked, then running ones."""
    rows = Rows(capacity)
    for row, tokens in enumerate(parked):
        rows.start(row, request(row, *tokens))
    for row in range(len(parked), len(parked) + n_running):
        rows.start(row, request(row, 99))
    for row in range(len(parked)):
        rows.park(row)
    return rows


def places(rows: Rows, *prompts: tuple[int, ...]) -> list[SlotAssignment]:
    """In the order of the prompts."""
    assignments = assign_slots(rows, [request(100 + i, *prompt) for i, prompt in enumerate(prompts)])
    return sorted(assignments, key=lambda place: place.request.id)


def test_a_prompt_goes_on_where_its_first_tokens_are_parked():
    rows = rows_with([(1, 2, 3), (4, 5, 6)])
    (place,) = places(rows, (4, 5, 6, 7, 8))
    assert (place.row, place.n_cached, place.copied_from) == (1, 3, None)
    assert rows.lengths[1] == 5 and rows.tokens[1, :5].tolist() == [4, 5, 6, 7, 8]
    assert rows.parked().tolist() == [0]


def test_of_two_beginnings_the_longer_one_is_taken():
    rows = rows_with([(1, 2, 3, 4), (1, 2), (1, 2, 3)])
    assert [(p.row, p.n_cached) for p in places(rows, (1, 2, 3, 4, 5))] == [(0, 4)]


def test_the_last_token_of_a_prompt_is_always_computed():
    rows = rows_with([(1, 2, 3, 4)])
    assert [(p.row, p.n_cached) for p in places(rows, (1, 2, 3, 4))] == [(0, 3)]
    rows = rows_with([(1, 2, 3, 4)])
    assert [(p.row, p.n_cached) for p in places(rows, (1, 2, 3))] == [(0, 2)]


def test_a_row_is_continued_once_and_the_next_of_its_kind_gets_a_copy():
    rows = rows_with([(1, 2, 3, 4)])
    first, second = places(rows, (1, 2, 3, 4, 5), (1, 2, 3, 4, 6))
    assert (first.row, first.n_cached, first.copied_from) == (0, 4, None)
    assert (second.row, second.n_cached, second.copied_from) == (1, 4, 0)


def test_a_prompt_that_changed_in_the_middle_goes_on_where_it_changed():
    rows = rows_with([(1, 2, 3, 4, 5), (6, 7)])
    assert [(p.row, p.n_cached) for p in places(rows, (1, 2, 3, 9, 9))] == [(0, 3)]


def test_a_row_of_which_little_fits_stays_and_its_first_tokens_are_copied():
    rows = rows_with([(50, 51), (1, 2, 3, 4, 5, 6, 7, 8)])
    (place,) = places(rows, (1, 2, 3, 30, 31))
    assert (place.row, place.n_cached, place.copied_from) == (0, 3, 1)
    assert rows.parked().tolist() == [1]


def test_the_row_parked_longest_ago_gives_way_and_nothing_of_it_is_kept():
    rows = rows_with([(1, 2, 3), (4, 5, 6)])
    assert [(p.row, p.n_cached) for p in places(rows, (7, 8, 9))] == [(0, 0)]
    assert rows.parked().tolist() == [1]


def test_parked_rows_take_no_more_room_than_ever_ran_at_once():
    rows = rows_with([(1, 2, 3), (4, 5, 6)], n_running=1)
    assert sorted(p.row for p in places(rows, (7, 7, 7), (8, 8, 8))) == [0, 1]
    assert rows.peak == 3
    rows = rows_with([(1, 2, 3)])
    assert [p.row for p in places(rows, (7, 7, 7), (1, 2, 3, 4))] == [1, 0]
    assert rows.peak == 2


def test_those_that_go_on_are_served_before_those_that_take_any_row():
    rows = rows_with([(1, 2, 3), (4, 5, 6)])
    new, old = places(rows, (9, 9, 9), (1, 2, 3, 4))
    assert (old.row, old.n_cached) == (0, 3)
    assert (new.row, new.n_cached) == (1, 0)


def test_a_few_tokens_that_every_prompt_begins_with_are_not_worth_it():
    rows = rows_with([(1, 5, 6)])
    assert [(p.row, p.n_cached) for p in places(rows, (1, 7, 8))] == [(0, 0)]


def test_a_row_that_was_copied_over_is_nobodys_source():
    rows = rows_with([(1, 2, 3, 4, 5, 6, 7, 8), (30, 31, 32, 33, 34, 35, 36, 37)])
    first, second = places(rows, (30, 31, 32, 1), (1, 2, 3, 9))
    assert (first.row, first.n_cached, first.copied_from) == (0, 3, 1)
    assert (second.row, second.n_cached, second.copied_from) == (1, 0, None)
