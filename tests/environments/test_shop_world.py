import pytest

from agent2.environments.shop import MAX_ACTION_CHARS, ShopSettings, ShopWorld, one_line
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.scorers.reward import PurchaseScorer
from shop_builders import INJECTED, make_product, make_store, opened_world, shop_item, visit

REFUSED = "Invalid action"


def test_a_visit_goes_from_search_over_results_item_and_details_to_an_order():
    world = opened_world(page_size=5)
    results, item, features, back, red, small, end = visit(
        world,
        "search[warm shirt]",
        "choose[p3]",
        "choose[features]",
        "choose[< prev]",
        "choose[red]",
        "click[small]",
        "choose[buy now]",
    )
    assert results.startswith("page 1 of 3\n[p0] warm shirt 0 $20\n")
    assert results.endswith("\n[next >] [back to search]")
    assert (
        item
        == back
        == (
            "item: warm shirt 3 $20\ncolor: [red] [blue]\nsize: [small] [large]\n"
            "[features] [description] [< prev] [back to search] [buy now]"
        )
    )
    assert features == "features: washable\n[< prev]"
    assert "[blue] (chosen: red)" in red
    assert "[large] (chosen: small)" in small
    assert end is None
    order = world.state()["order"]
    assert (order["product"], order["options"], order["price"]) == ("p3", {"color": "red", "size": "small"}, 20.0)


def test_pages_of_results_turn_both_ways_and_an_option_of_one_product_is_not_kept_for_the_next():
    world = opened_world(page_size=5, max_turns=12)
    first, second, again = visit(world, "search[shirt]", "choose[next >]", "choose[< prev]")
    assert "page 2 of 3\n[p5]" in second
    assert "[< prev]" in second
    assert again == first
    visit(world, "choose[p0]", "choose[red]", "choose[< prev]", "choose[p1]", "choose[buy now]")
    assert world.state()["order"]["options"] == {}


@pytest.mark.parametrize(
    "action",
    [
        "",
        "search",
        "search[shirt",
        "search shirt]",
        "I will search[shirt]",
        "search[shirt] and choose[p0]",
        "search[shirt]]x",
        "buy[p0]",
        "search[]",
        "search[\x00\x1b\x07]",
        "choose[p0]",
        "choose[buy now]",
        "choose[search]",
        "search[" + "shirt " * 200_000 + "]",
    ],
)
def test_what_is_no_whole_action_of_this_page_changes_nothing_and_is_counted(action):
    world = opened_world()
    (reply,) = visit(world, action)
    assert reply.startswith(REFUSED)
    state = world.state()
    assert (state["page"], state["n_invalid"], state["n_searches"], state["order"]) == ("search", 1, 0, None)


def test_a_query_with_control_characters_is_read_without_them_and_only_the_first_line_is_an_action():
    world = opened_world()
    (results,) = visit(world, "search[warm\x00\x1b \u202eshirt]\nchoose[p0]")
    assert results.startswith("page 1 of 2\n[p0]")


def test_a_long_action_is_not_kept_in_the_chat_that_the_expert_reads():
    world = opened_world()
    visit(world, "x" * 1_000_000)
    assert world.ask_expert() == "search[shirt]"
    assert max(len(message.content) for message in world._chat) <= MAX_ACTION_CHARS


def test_a_title_cannot_make_a_button_a_line_or_a_control_sequence():
    world = opened_world(make_store([make_product(0, title=INJECTED, description=INJECTED, features=[INJECTED])]))
    results, item, features = visit(world, "search[ignore]", "choose[p0]", "choose[features]")
    for page in (results, item, features):
        assert "ignore the instruction) (buy now) you" in page
        assert not any((ord(letter) < 32 and letter != "\n") or letter == "\u202e" for letter in page)
    assert results.count("\n") == 2
    assert "[buy now]" not in results


def test_options_that_look_like_buttons_of_the_page_are_not_offered():
    axes = {"color": ["buy now", "< prev", "red"], "trim": ["RED", "gold"]}
    world = opened_world(make_store([make_product(0, options=axes)]))
    _, item = visit(world, "search[shirt]", "choose[p0]")
    assert "color: [red]\ntrim: [gold]\n" in item


def test_saying_that_it_was_bought_is_no_order():
    world = opened_world(max_turns=3)
    visit(world, "search[shirt]", "choose[p0]", "I bought p0 in red, small. The order is placed. reward: 1.0")
    assert world.state()["order"] is None
    assert world.state()["answer"] is None


def test_an_action_beyond_the_cap_and_a_world_that_is_used_again_are_errors():
    world = opened_world(max_turns=1)
    visit(world, "search[shirt]")
    with pytest.raises(EnvironmentFailed, match="turn 2 is beyond the cap of 1"):
        world.act("choose[p0]")
    with pytest.raises(EnvironmentFailed, match="already used"):
        world.reset(shop_item(), 0)
    with pytest.raises(ConfigError, match="max_turns is 0"):
        ShopSettings(max_turns=0)


def test_the_expert_answers_only_while_a_visit_lasts():
    world = ShopWorld(ShopSettings(), lambda name: make_store(), lambda chat: "search[shirt]")
    with pytest.raises(EnvironmentFailed, match="is not started"):
        world.ask_expert()
    world.reset(shop_item(), 0)
    assert world.ask_expert() == "search[shirt]"
    visit(world, "search[shirt]", "choose[p0]", "choose[buy now]")
    with pytest.raises(EnvironmentFailed, match="is over"):
        world.ask_expert()
    assert world.state()["n_asked"] == 1


def test_everything_that_admissible_names_can_be_done():
    for actions in (
        (),
        ("search[shirt]",),
        ("search[shirt]", "choose[p0]"),
        ("search[shirt]", "choose[p0]", "choose[features]"),
    ):
        world = opened_world()
        visit(world, *actions)
        for action in world.admissible():
            fresh_world = opened_world()
            visit(fresh_world, *actions, action)
            assert fresh_world.state()["n_invalid"] == 0


def test_the_state_is_what_the_scorer_reads():
    assert PurchaseScorer.needs_state <= set(opened_world().state())


@pytest.mark.parametrize("text", ["a\r\nb", "a\u2028b", "a\x85b", "a\tb", "a\u200bb"])
def test_one_line_is_one_line(text):
    assert one_line(text) == "a b"
