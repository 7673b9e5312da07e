import pytest

from agent2.environments.tools import Permission, ToolRules
from agent2.environments.tools.toolboxes import CAPABILITIES, Api, ApiToolbox
from agent2.environments.tools.world import ToolWorld, WorldSettings
from agent2.records import Item, Split
from tool_builders import ALL, run

ITEM = Item("api-1", Split.DEV, "Order 3 lamp.", payload={"capability": "order", "prefix": "open", "dialect": 1})


def world(rules=None):
    return ToolWorld(ApiToolbox, WorldSettings(rules or ToolRules(ALL)))


def search(keyword):
    return ("search", {"keyword": keyword})


def test_an_api_can_be_called_only_after_a_search_revealed_it():
    order = ("open_order", {"product": "lamp", "amount": 3})
    replies, state = run(world(), ITEM, order, search("order"), order)
    assert replies == [
        {"error": "unknown_tool: no tool 'open_order'"},
        {"result": "open_order(product,amount)"},
        {"result": "done"},
    ]
    assert state["final"] == {"found": ["open_order"], "cart": [["lamp", 3]], "bookings": []}


def test_bookings_and_lookups_go_to_their_own_apis():
    replies, state = run(
        world(),
        ITEM,
        search("book"),
        ("fast_book", {"city": "Rome", "day": "Friday"}),
        search("distance"),
        ("fast_distance", {"start": "Oslo", "end": "Rome"}),
    )
    assert [reply["result"] for reply in replies] == [
        "fast_book(city,day)",
        "done",
        "fast_distance(start,end)",
        8,
    ]
    assert state["final"]["bookings"] == [["Rome", "Friday"]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (search("love"), "tool: nothing about 'love'"),
        (("open_order", {"item": "lamp", "count": 3}), "schema_error: no parameter 'item'"),
        (("open_order", {"product": "sofa", "amount": 3}), "tool: no such order"),
        (("open_order", {"product": "lamp", "amount": 0}), "tool: no such order"),
    ],
)
def test_a_wrong_call_is_told_why_and_orders_nothing(call, error):
    replies, state = run(world(), ITEM, search("order"), call)
    assert replies[1] == {"error": error}
    assert state["final"]["cart"] == []


def test_what_changes_records_needs_leave():
    rules = ToolRules(permissions=frozenset({Permission.READING}))
    replies, state = run(world(rules), ITEM, search("order"), ("open_order", {"product": "lamp", "amount": 3}))
    assert replies[1] == {"error": "not_permitted: record_changes is not permitted"}
    assert state["final"]["cart"] == []


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_no_two_parameters_of_an_api_share_a_name(capability):
    for dialect in (0, 1):
        names = [parameter.name for parameter in Api(capability, "open", dialect).spec.parameters]
        assert len(set(names)) == len(names)
