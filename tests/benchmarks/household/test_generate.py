import numpy as np
import pytest

from agent2.benchmarks.household.generate import SIZES, draw_game, draw_layout, game_of, listed, opening, source_of
from agent2.environments.household.engine import shared_engine
from agent2.errors import ConfigError
from agent2.records import Split

pytestmark = pytest.mark.engine

BANNER = "-= Welcome to TextWorld, ALFRED! =-"
"""What the stock engine says before every opening; players are not shown it."""


@pytest.mark.parametrize("name", SIZES)
def test_the_opening_is_the_engines_own_and_the_game_is_not_won_yet(name):
    rng = np.random.default_rng(3)
    for _ in range(4):
        layout = draw_layout(rng, SIZES[name])
        start = shared_engine().start(game_of(layout))
        assert start.observation.removeprefix(BANNER).strip() == opening(layout)
        assert not start.won


def test_one_seed_gives_one_game_and_none_holds_a_way_to_solve_it():
    game = draw_game(np.random.default_rng(5), SIZES["tiny"])
    assert game == draw_game(np.random.default_rng(5), SIZES["tiny"])
    assert set(game.as_payload()) == {"task_type", "goal", "problem"}


def test_splits_share_no_room_with_the_same_goal_and_are_large_enough():
    source = source_of(SIZES["tiny"])
    train = source.first(Split.TRAIN, 1000, None)
    dev = source.first(Split.DEV, 100, None)
    public = source.first(Split.TEST_PUBLIC, 300, b"secret")
    private = source.first(Split.TEST_PRIVATE, 300, b"secret")
    keys = [{layout.canonical for layout in split} for split in (train, dev, public, private)]
    assert sum(map(len, keys)) == len(set.union(*keys))
    assert len({opening(layout) for layout in train}) == 1000
    with pytest.raises(ConfigError, match="needs the installation secret"):
        source.first(Split.TEST_PUBLIC, 1, None)


def test_names_are_listed_as_the_engine_does():
    assert listed([]) == "nothing"
    assert listed(["mug 1"]) == "a mug 1"
    assert listed(["mug 2", "mug 1"]) == "a mug 2, and a mug 1"
    assert listed(["pen 1", "mug 2", "mug 1"]) == "a pen 1, a mug 2, and a mug 1"
