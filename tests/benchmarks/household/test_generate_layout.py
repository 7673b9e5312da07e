from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from agent2.benchmarks.household.generate import (
    LAMP,
    LOOK,
    PICK,
    SIZES,
    TOOLS,
    TWO,
    affordances,
    draw_layout,
    shown_names,
    size_of,
)
from agent2.errors import ConfigError

pytestmark = pytest.mark.engine


def layouts(name, n, seed=0):
    rng = np.random.default_rng(seed)
    return [draw_layout(rng, SIZES[name]) for _ in range(n)]


@pytest.mark.parametrize("name", SIZES)
def test_every_layout_can_be_solved_and_is_not_solved_yet(name):
    tables = affordances()
    for layout in layouts(name, 200):
        kinds = {receptacle.id: receptacle.type for receptacle in layout.receptacles}
        places = [kinds[placed.place] for placed in layout.objects if placed.type == layout.target]
        assert len(places) >= (2 if layout.task_type == TWO else 1)
        if layout.task_type in (PICK, TWO):
            assert layout.destination not in places
        if layout.task_type == LOOK:
            assert [placed.type for placed in layout.objects].count(LAMP) == 1
        else:
            assert layout.destination in kinds.values()
            assert layout.target in tables.holds[layout.destination]
        if layout.task_type in TOOLS:
            assert TOOLS[layout.task_type] in kinds.values()


@pytest.mark.parametrize("name", SIZES)
def test_layouts_are_as_large_as_their_size_says_and_hold_only_what_fits(name):
    size, tables = SIZES[name], affordances()
    drawn_layouts = layouts(name, 200)
    assert set(Counter(layout.task_type for layout in drawn_layouts)) == set(size.task_types)
    for layout in drawn_layouts:
        assert size.n_receptacles[0] <= len(layout.receptacles) <= size.n_receptacles[1]
        assert size.n_objects[0] <= len(layout.objects) <= size.n_objects[1]
        kinds = {receptacle.id: receptacle.type for receptacle in layout.receptacles}
        for placed in layout.objects:
            assert placed.type == LAMP or placed.type in tables.holds[kinds[placed.place]]
            assert not size.object_types or placed.type in size.object_types | {LAMP}


def test_one_seed_gives_one_layout_and_another_seed_another():
    assert layouts("tiny", 5) == layouts("tiny", 5)
    assert layouts("tiny", 5) != layouts("tiny", 5, seed=1)


def test_ids_of_one_kind_are_numbered_from_the_last():
    names = shown_names(["Shelf_bar_00", "Shelf_bar_01", "Sink_bar_00_bar_SinkBasin", "Mug_bar_00"])
    assert names == {
        "Mug_bar_00": "mug 1",
        "Shelf_bar_00": "shelf 2",
        "Shelf_bar_01": "shelf 1",
        "Sink_bar_00_bar_SinkBasin": "sinkbasin 1",
    }


def test_wording_and_places_make_no_other_game_but_the_goal_does():
    layout = next(layout for layout in layouts("tiny", 20) if layout.task_type == PICK)
    assert replace(layout, wording=1 - layout.wording, objects=()).canonical == layout.canonical
    assert replace(layout, target="Mug" if layout.target != "Mug" else "Pen").canonical != layout.canonical


def test_a_size_whose_rooms_never_suit_its_tasks_is_refused():
    impossible = replace(SIZES["tiny"], task_types=("pick_cool_then_place_in_recep",))
    with pytest.raises(ConfigError, match="no room for pick_cool"):
        draw_layout(np.random.default_rng(0), impossible)


def test_an_unknown_size_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        size_of("smal")
