import pytest

from agent2.benchmarks.shop import (
    MAX_PRODUCTS,
    SHOP_PLAYERS,
    GeneratedProducts,
    Shop,
    buy_first_result,
    expert,
    read_instruction,
)
from agent2.environments.shop import index_products
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.scoring import score_played
from agent2.records import HIDDEN_SPLITS, Item, Split

SECRET = b"a secret for tests of this length"
SHOP = Shop()


def items_of(split, n):
    return SHOP.items(split, n, SECRET if split in HIDDEN_SPLITS else None)


def play_items(player, items):
    attempts = [Attempt(item, 0, 0) for item in items]
    rollouts = play_by(
        lambda attempt, world, chat: player(attempt.item, chat), attempts, SHOP.environment, SHOP.max_turns
    )
    return list(score_played(rollouts, SHOP.scorer()))


def share_won(player, items):
    return sum(result.score.value for result in play_items(player, items)) / len(items)


def test_items_are_the_same_again_and_hidden_ones_need_the_secret():
    assert Shop().items(Split.TRAIN, 5, None) == SHOP.items(Split.TRAIN, 5, None)
    with pytest.raises(ConfigError, match="secret"):
        SHOP.items(Split.TEST_PRIVATE, 1, None)
    mine, theirs = (SHOP.items(Split.TEST_PRIVATE, 20, secret) for secret in (SECRET, b"another"))
    assert not {item.id for item in mine} & {item.id for item in theirs}


def test_no_split_asks_for_the_goods_of_another():
    tasks = {split: {item.payload["canonical"] for item in items_of(split, 200)} for split in Split}
    for first in Split:
        for second in Split:
            assert first is second or not tasks[first] & tasks[second]


def test_the_expert_buys_what_is_asked_for_and_the_shortcut_the_random_player_and_silence_do_not():
    items = items_of(Split.DEV, 60)
    assert share_won(expert, items) >= 0.95
    assert share_won(buy_first_result, items) <= 0.05
    assert share_won(SHOP_PLAYERS.random(items), items) <= 0.05
    assert share_won(lambda item, chat: "", items[:5]) == 0.0


def test_a_model_that_says_it_bought_but_did_not_has_nothing():
    (result,) = play_items(lambda item, chat: "choose[buy now] done, I bought it. reward: 1.0", items_of(Split.DEV, 1))
    assert result.score.value == 0.0
    assert result.score.views["invalid_share"] == 1.0


def test_sixty_four_visits_at_once_are_those_of_one_at_a_time():
    items = items_of(Split.DEV, 64)
    worlds = [SHOP.environment() for _ in items]
    for world, item in zip(worlds, items, strict=True):
        world.reset(item, 0)
    for _ in range(SHOP.max_turns):
        for world in worlds:
            if world.state()["order"] is None:
                world.act(world.ask_expert())
    alone = [result.rollout.state["order"] for result in play_items(expert, items)]
    assert [world.state()["order"] for world in worlds] == alone


def test_a_row_of_the_workspace_can_be_played_and_names_no_product():
    item = items_of(Split.TRAIN, 1)[0]
    row = SHOP.visible_row(item)
    assert set(row) == {"id", "prompt", "instruction", "store", "goal", "task_type"}
    (again,), (first,) = play_items(expert, [SHOP.item_of(row)]), play_items(expert, [item])
    assert again.rollout.state == first.rollout.state
    assert str(first.rollout.state["order"]["product"]) not in str(row)
    assert "choose[" not in str(row)


@pytest.mark.parametrize("row", [{"id": "x"}, {"id": "x", "prompt": "buy", "instruction": "buy", "store": "s"}])
def test_a_row_that_is_no_instruction_is_refused(row):
    with pytest.raises(ConfigError, match="row 'x' of shop has no"):
        SHOP.item_of(row)


def test_an_item_of_another_store_is_refused():
    item = Item("x", Split.DEV, "", payload={"instruction": "buy a shirt", "store": "shop-v1-7-0"})
    with pytest.raises(EnvironmentFailed, match="belongs to store 'shop-v1-7-0'"):
        SHOP.environment().reset(item, 0)


def test_static_answers_are_first_actions_without_a_page():
    items = items_of(Split.TRAIN, 3)
    for item, answer in zip(items, SHOP.static_answers(items, 0), strict=True):
        world = SHOP.environment()
        world.reset(item, 0)
        assert (answer.startswith("search["), world.act(answer).done) == (True, False)


def test_catalogues_of_every_size_come_from_their_seed():
    assert GeneratedProducts(10)[3] == GeneratedProducts(1_000_000)[3]
    assert GeneratedProducts(10, seed=1)[3] != GeneratedProducts(10)[3]
    assert index_products("ten", GeneratedProducts(10)).size == 10
    for n in (0, -1, MAX_PRODUCTS + 1):
        with pytest.raises(ConfigError, match="ask for 1 to"):
            GeneratedProducts(n)


def test_a_wish_is_what_the_instruction_names():
    wish = read_instruction("buy a slim and reversible medium trousers in yellow, and price lower than 50 dollars")
    assert (wish.query, set(wish.options), wish.price_upper) == (
        "trousers slim reversible medium yellow",
        {"medium", "yellow"},
        50.0,
    )
