import pytest

from agent2.scorers.web_values import AddressRules, Sites, is_same, plain_text

SHOP = Sites({"__SHOP__": ["http://shop.test:7770"], "__SHOP_ADMIN__": ["http://shop.test:7770/admin"]})


def same(kind, expected, actual, **changes):
    return is_same(expected, actual, {"type": "string", "format": kind}, SHOP, **changes)


@pytest.mark.parametrize(
    ("kind", "expected", "right", "wrong"),
    [
        (
            "string",
            "Café-Bar™ Ö",
            ["cafe bar o", " CAFÉ  BAR Ö. ", '"Cafe-Bar O"'],
            ["cafe", "", "^.*$", ["Cafe bar o"]],
        ),
        ("string", "^order #?\\d+$", ["Order #12", "order 3"], ["order", "my order 3", "^order #?\\d+$"]),
        ("string", ["red", "crimson"], ["RED", "crimson"], ["blue", ["red", "crimson"], ["red"]]),
        ("string", "299", [299, "299"], [298, 299.5]),
        (
            "location-name",
            "Harbour View Hotel",
            ["hotel harbour view", "Harbor View Hotel"],
            ["Sea View Inn", "Hotel", ""],
        ),
        ("number", 1204, ["1,204", 1204.0, "one thousand two hundred and four"], ["1.204", "many", None, "", [1204]]),
        ("number", 0, [0, "0", "zero"], [1, None]),
        ("number", 4, ["four"], ["four 5 6 7", "1" * 100_000 + "x", "hundred " * 100_000]),
        ("boolean", True, ["yes", 1, "True"], ["no", "maybe", False]),
        (
            "currency",
            1204.5,
            ["$1,204.50", "1204.45 USD", "€ 1.204,50", 1204.6],
            ["1,203", "free", "-1204.50", "$1.20", "1204.50 or 99"],
        ),
        ("currency", 1204, ["$1,204"], ["$1.204"]),
        (
            "date",
            "March 5, 2022",
            ["2022-03-05", "3/5/2022", "5 Mar 2022", "Mar 5th, 2022", "03/05/22"],
            ["2022-05-03"],
        ),
        ("date", "March 5, 2022", [], ["March 2022", "5 March", "soon", 5, "2022-03-05 or 2022-03-06"]),
        ("month", "May", [5, "05", "may"], ["June", 13, "Smarch", "maybe", "May or June"]),
        (
            "duration",
            "1h 35min",
            ["95 minutes", "1:35:00", "1:35 hours", "97 min", "1 hour and 35 minutes"],
            ["95", "2h", "9" * 100_000, "95:" * 50_000],
        ),
        ("distance", "2.4km", ["2400 m", "1.49 miles", "2.41 kilometers", "2.4k"], ["2.4", "2.6 km", "2.4 parsecs"]),
        ("coordinates", {"latitude": "40.5", "longitude": "-79.9"}, ["40.5, -79.9", [40.5, -79.9]], ["-79.9, 40.5"]),
        ("coordinates", {"latitude": "40.5", "longitude": "-79.9"}, [{"lat": 40.5, "lng": -79.9}], ["here", [40.5]]),
        ("string_list", "5,278", ["278, 5"], ["5", ""]),
        ("json", '{"a": [1, 2], "b": "X"}', ['{"b":"x","a":[1,2]}'], ['{"a": [2, 1], "b": "x"}', "a"]),
        (
            "markdown",
            "## Two\n- [A b](u)\n",
            ["## Two  \r\n* [A\nb](u)"],
            ["# Two\n- [A b](u)", "## two\n- [A b](u)", "[" * 20_000],
        ),
        ("url", "git@any:Me/App.git", ["ssh://git@h:2222/me/app.git", "GIT@other:me/app.git"], ["git@any:me/app2.git"]),
        (
            "url",
            "__SHOP__/a?x=1&y=2",
            ["http://SHOP.test:7770/a/?y=2&x=1"],
            ["http://shop.test:7770/a?x=1", "/a?x=1&y=2", "^($", "^.*$", "http://[x"],
        ),
    ],
)
def test_a_value_counts_in_every_form_of_its_kind_and_in_no_other(kind, expected, right, wrong):
    assert [actual for actual in right if not same(kind, expected, actual)] == []
    assert [actual for actual in wrong if same(kind, expected, actual)] == []


def test_lists_are_compared_member_by_member_and_in_order_only_where_that_counts():
    schema = {"type": "array", "items": {"type": "string"}}
    assert is_same(["a", "b", "b"], ["B", "a", "b"], schema, SHOP)
    assert not is_same(["a", "b"], ["b", "a"], schema, SHOP, is_ordered=True)
    for wrong in (["a", "b", "b", "c"], ["a", "a", "b"], ["a", "b"], "a", [["a", "b", "b"]]):
        assert not is_same(["a", "b", "b"], wrong, schema, SHOP)
    assert is_same([["a", "x"], "b"], ["b", "x"], schema, SHOP), "a list inside names alternatives"
    assert not is_same([["a", "x"], "b"], [["a", "x"], "b"], schema, SHOP), "an answer has none"


def test_objects_have_the_expected_members_and_no_other():
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "who": {"type": "string"}}}
    expected = {"n": 3, "who": "Ann", "note": None}
    assert is_same(expected, {"who": "ann", "n": "three", "note": None}, schema, SHOP)
    assert is_same(expected, '{"who": "ann", "n": 3, "note": null}', schema, SHOP)
    for wrong in (
        {"who": "ann", "n": 3},
        expected | {"more": 1},
        expected | {"note": "x"},
        expected | {"n": 4},
        "x",
        3,
    ):
        assert not is_same(expected, wrong, schema, SHOP)


def test_an_expected_value_that_is_not_of_its_kind_is_no_verdict():
    with pytest.raises(ValueError, match="'soon' is no date"):
        same("date", "soon", "2022-03-05")
    with pytest.raises(ValueError, match="the kind 'colour' are not compared"):
        same("colour", "red", "red")


def test_the_address_of_a_site_is_replaced_where_it_ends_and_the_longest_first():
    assert SHOP.named("http://shop.test:7770/admin/x") == "__SHOP_ADMIN__/x"
    assert SHOP.named("see http://shop.test:7770/a") == "see __SHOP__/a"
    assert SHOP.named("http://shop.test:77701/a") == "http://shop.test:77701/a"
    assert SHOP.named("http://shop.test:7770/administer") == "__SHOP__/administer"


def test_parameters_may_be_ignored_empty_patterns_dates_or_in_the_path_as_base64():
    rules = AddressRules(frozenset({"page"}), ("^sort",), decodes_base64=True)

    def met(expected, actual, query=None, schema=None):
        return rules.read(expected, SHOP, query, is_expected=True).is_met_by(rules.read(actual, SHOP), schema or {})

    assert met("__SHOP__/a?x=1", "http://shop.test:7770/a?x=1&page=2&sorted=up&empty=")
    assert not met("__SHOP__/a?x=1", "http://shop.test:7770/a?x=1&y=2")
    assert not met("__SHOP__/a?x[]=1", "http://shop.test:7770/a?x[]=1&x[]=2"), "all values count, not the first"
    assert met("__SHOP__/a", "http://shop.test:7770/a?state=", {"state": ["^(open|)$"]})
    assert not met("__SHOP__/a", "http://shop.test:7770/a?state=closed", {"state": ["^(open|)$"]})
    dates = {"properties": {"from": {"type": "array", "items": {"type": "string", "format": "date"}}}}
    packed = "http://shop.test:7770/report/ZnJvbT0wMiUyRjAxJTJGMjAyMw/"  # from=02%2F01%2F2023
    assert met("__SHOP__/report", packed, {"from": ["02/1/2023"]}, dates)
    assert not met("__SHOP__/report", packed, {"from": ["02/2/2023"]}, dates)
    assert met("^__SHOP__/\\d+/edit$", "http://shop.test:7770/12/edit/")
    assert not met("^__SHOP__/\\d+/edit$", "http://elsewhere.test/12/edit")


def test_texts_lose_marks_accents_and_white_space_and_keep_hyphens_between_digits():
    assert plain_text("  Ünter-\u200bwegs\t“A—B”  555-1234 ") == 'unter wegs "a b" 555-1234'
    assert [plain_text(value) for value in (3, True, 0, "")] == ["3", "true", "", ""]
