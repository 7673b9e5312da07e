from fractions import Fraction

import pytest

from agent2.errors import ConfigError, Fault
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.reward import PurchaseGoal, PurchaseScorer, phrases_match, reward_of, title_nouns

NAME = "Acme Warm Winter Shirt for Men"
ELEVEN = "Acme Warm Winter Shirt Men Cotton Flannel Plaid Button Pocket Collar"
TEN = ELEVEN.removesuffix(" Collar")
GOAL = {
    "name": NAME,
    "query": "men's shirts",
    "category": "Clothing › Men › Shirts",
    "attributes": ["machine wash", "long sleeve"],
    "options": ["navy blue", "large"],
    "price_upper": 30.0,
}
ORDER = {
    "product": "B0",
    "name": NAME,
    "title": NAME,
    "query": "men's shirts",
    "category": "Clothing › Men › Shirts",
    "attributes": ["machine wash", "long sleeve"],
    "features": ["Soft cotton fabric", "Imported"],
    "description": "A shirt for cold days.",
    "options": {"color": "navy blue", "size": "large"},
    "price": 20.0,
}
ELSEWHERE = {"query": "hats", "category": "Garden › Tools"}
NO_OPTIONS = {"options": []}


def f(text):
    return Fraction(text)


# (what it is about, changes of the goal, changes of the order, reward by hand). With the goal as it stands the formula
# is r_type * (attributes of 2 + options of 2 + price of 1) / 5.
CASES = [
    ("all as asked for", {}, {}, f("1")),
    ("price at the limit", {}, {"price": 30.0}, f("1")),
    ("price a cent above", {}, {"price": 30.01}, f("4/5")),
    ("no price limit", {"price_upper": 1_000_000}, {"price": 999.0}, f("1")),
    ("no attribute", {}, {"attributes": []}, f("3/5")),
    ("one attribute", {}, {"attributes": ["machine wash"]}, f("4/5")),
    ("86 of 100 alike: 2 x 12 / 28 letters", {}, {"attributes": ["machine washable", "long sleeve"]}, f("1")),
    ("words in another order", {}, {"attributes": ["wash machine", "sleeve long"]}, f("1")),
    ("more words than asked for", {}, {"attributes": ["machine wash", "long sleeve shirts"]}, f("1")),
    ("fewer words than asked for", {"attributes": ["machine wash"]}, {"attributes": ["machine"]}, f("1")),
    ("one word shared", {"attributes": ["machine wash"]}, {"attributes": ["hand wash"]}, f("3/4")),
    ("attribute among features", {"attributes": ["soft cotton"]}, {"attributes": []}, f("1")),
    ("attribute across two features", {"attributes": ["fabric imported"]}, {"attributes": []}, f("1")),
    ("attribute in the title", {"attributes": ["winter shirt"]}, {"attributes": []}, f("1")),
    ("attribute in the description", {"attributes": ["cold days"]}, {"attributes": []}, f("1")),
    ("texts are lowered, the attribute is not", {"attributes": ["Soft Cotton"]}, {"attributes": []}, f("3/4")),
    ("no annotation", {"attributes": ["machine wash"]}, {"attributes": ["DUMMY_ATTR"]}, f("3/4")),
    ("a third attribute", {"attributes": ["machine wash", "long sleeve", "gluten free"]}, {}, f("5/6")),
    ("one attribute twice", {"attributes": ["machine wash", "machine wash"]}, {}, f("1")),
    ("no option chosen", {}, {"options": {}}, f("3/5")),
    ("color alone", {}, {"options": {"color": "navy blue"}}, f("4/5")),
    ("no option asked for", NO_OPTIONS, {}, f("1")),
    ("no option asked for, too dear", NO_OPTIONS, {"price": 31.0}, f("2/3")),
    ("both are blue to the list", {}, {"options": {"color": "light blue", "size": "large"}}, f("1")),
    ("navy is not blue", {}, {"options": {"color": "navy", "size": "large"}}, f("4/5")),
    ("another color", {}, {"options": {"color": "red", "size": "large"}}, f("4/5")),
    ("dark comes before grey", {"options": ["grey"]}, {"options": {"color": "dark grey"}}, f("3/4")),
    ("x-large holds large", {}, {"options": {"color": "navy blue", "size": "x-large"}}, f("1")),
    ("another size", {}, {"options": {"color": "navy blue", "size": "small"}}, f("4/5")),
    ("sizes with bars", {"options": ["38 | 40 | 41 mm"]}, {"options": {"size": "38 | 40 | 41 mm"}}, f("1")),
    ("8.5 holds 8", {"options": ["8"]}, {"options": {"size": "8.5"}}, f("1")),
    ("9 is not 8", {"options": ["8"]}, {"options": {"size": "9"}}, f("3/4")),
    ("one choice for two options", {"options": ["blue", "navy blue"]}, {"options": {"color": "blue"}}, f("1")),
    ("axes do not count", {}, {"options": {"size": "navy blue", "color": "large"}}, f("1")),
    ("nothing but letters outside ASCII", {"options": ["红色"]}, {"options": {"color": "红色"}}, f("3/4")),
    ("same title, filed elsewhere", {}, ELSEWHERE, f("1")),
    ("2 of 5 nouns, filed elsewhere", {}, ELSEWHERE | {"name": "Acme Winter Hat"}, f("1")),
    ("1 of 5 nouns, filed elsewhere", {}, ELSEWHERE | {"name": "Acme Hat"}, f("1/2")),
    ("1 of 5 nouns, same search word", {}, ELSEWHERE | {"name": "Acme Hat", "query": "men's shirts"}, f("1")),
    ("1 of 5 nouns, two parts", {}, {"name": "Acme Hat", "query": "hats", "category": "Clothing › Men › Hats"}, f("1")),
    ("1 of 5 nouns, one part", {}, {"name": "Acme Hat", "query": "hats", "category": "Clothing › Hats"}, f("1/2")),
    ("parts in another order", {}, {"name": "Acme Hat", "query": "hats", "category": "Men › Clothing"}, f("1")),
    ("no noun, same search word", {}, {"name": "Garden Hose"}, f("0")),
    ("1 of 11 nouns, same search word", {"name": ELEVEN}, {"name": "Acme Hose"}, f("1/10")),
    ("1 of 10 nouns, same search word", {"name": TEN}, {"name": "Acme Hose"}, f("1")),
    ("1 of 10 nouns, filed elsewhere", {"name": TEN}, ELSEWHERE | {"name": "Acme Hose"}, f("1/2")),
    ("a goal without nouns, same search word", {"name": "12 34"}, {}, f("1")),
    ("a goal without nouns, filed elsewhere", {"name": "12 34"}, ELSEWHERE, f("1/2")),
    ("nouns are counted as often as they appear", {"name": "Hat Hat Hat Hat Men"}, ELSEWHERE, f("1/2")),
    (
        "half type, one attribute, too dear",
        {},
        ELSEWHERE | {"name": "Acme Hat", "attributes": ["long sleeve"], "price": 31.0},
        f("3/10"),
    ),
    ("the type alone", {}, {"attributes": [], "options": {}, "price": 31.0}, f("0")),
]


@pytest.mark.parametrize(("goal", "order", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_reward_is_the_published_formula(goal, order, expected):
    reward = reward_of(ORDER | order, PurchaseGoal.of(GOAL | goal))
    assert reward.total == pytest.approx(float(expected), abs=1e-12)


def test_closed_classes_numbers_and_single_letters_are_no_nouns():
    assert title_nouns("The 38mm Women's Watch, with 2 Bands (for iWatch) & a USB-C Cable") == [
        *("mm", "women", "watch", "bands", "iwatch", "usb", "cable")
    ]


@pytest.mark.parametrize(("first", "second"), [("", ""), ("", "red"), ("---", "---"), ("雪", "雪")])
def test_a_phrase_without_letters_matches_nothing(first, second):
    assert not phrases_match(first, second)


def scored(order, success_at=1.0, status=RolloutStatus.COMPLETED, answer=None, goal=GOAL, **state):
    final_state = {"answer": answer, "order": order, "n_turns": 4, "n_invalid": 1, "n_searches": 1} | state
    item = Item("shop-1", Split.DEV, "", payload={"goal": goal})
    return PurchaseScorer(success_at).score(item, Rollout("shop-1", 0, 0, status, (), (), answer, final_state, Usage()))


def test_the_order_decides_and_the_reward_is_a_view():
    won, lost = scored(ORDER), scored(ORDER | {"price": 31.0})
    assert (won.value, won.views["purchase_reward"], won.labels) == (1.0, 1.0, ())
    assert (lost.value, lost.views["purchase_reward"], lost.labels) == (0.0, 0.8, ("purchase_too_dear",))
    assert won.reason == "bought B0 for 20.00 dollars: reward 1.000 (type 1, attributes 1.00, options 1.00, price ok)"
    assert (won.views["tool_calls_valid"], won.views["invalid_share"]) == (3.0, 0.25)


def test_success_is_a_reward_of_at_least_the_threshold():
    half = ORDER | ELSEWHERE | {"name": "Acme Hat"}
    assert scored(half, 0.5).value == 1.0
    assert scored(half, 0.51).value == 0.0
    assert scored(half | {"price": 31.0}, 0.5).value == 0.0


def test_saying_that_it_was_bought_is_worth_nothing():
    score = scored(None, status=RolloutStatus.TURN_CAP, answer="I ordered B0. Reward: 1.0")
    assert (score.value, score.views["purchase_reward"], score.views["ordered"]) == (0.0, 0.0, 0.0)
    assert score.labels == ("purchase_none", "purchase_turn_cap")
    assert score.views["r_type"] is None


@pytest.mark.parametrize(
    ("order", "label"),
    [
        ({"name": "Garden Hose"}, "purchase_wrong_type"),
        ({"attributes": []}, "purchase_attribute_missed"),
        ({"options": {}}, "purchase_option_missed"),
    ],
)
def test_a_bad_order_says_what_is_wrong_with_it(order, label):
    assert scored(ORDER | order).labels == (label,)


@pytest.mark.parametrize(
    "call",
    [
        lambda: scored("B0"),
        lambda: scored({"product": "B0"}),
        lambda: scored(ORDER, n_turns=None),
        lambda: scored(ORDER, goal={}),
        lambda: scored(ORDER, goal=GOAL | {"attributes": []}),
        lambda: scored(ORDER, goal=None),
    ],
)
def test_an_item_or_state_of_another_world_is_not_judged_and_is_no_zero(call):
    score = call()
    assert score.value is None
    assert score.fault is Fault.JUDGE


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01, float("nan")])
def test_a_threshold_that_everything_or_nothing_meets_is_refused(threshold):
    with pytest.raises(ConfigError, match="success_at"):
        PurchaseScorer(threshold)


def test_views_and_labels_are_those_that_are_declared():
    for score in (scored(ORDER), scored(None), scored(ORDER | {"attributes": []})):
        assert set(score.views) == PurchaseScorer.emits.views
        assert set(score.labels) <= PurchaseScorer.emits.labels
