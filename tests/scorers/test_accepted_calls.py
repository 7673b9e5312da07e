import time

import pytest

from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers.accepted_calls import first_accepted, is_accepted, matched_calls, read_accepted
from agent2.scorers.tool_calls import ChatCallScorer

AREA = {"name": "area", "accepted": {"base": [10], "height": [5, 5.5], "unit": ["square metres", ""], "extra": []}}


def call(name="area", **arguments):
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(
    "arguments",
    [
        {"base": 10, "height": 5},
        {"base": 10.0, "height": 5.5, "unit": "Square-Metres"},
        {"base": 10, "height": 5, "extra": []},
    ],
)
def test_each_accepted_value_is_right_and_optional_arguments_may_be_left_out(arguments):
    assert is_accepted(call(**arguments), AREA)


@pytest.mark.parametrize(
    "made",
    [
        call("volume", base=10, height=5),
        call(base=10),
        call(base=10, height=6),
        call(base="10", height=5),
        call(base=True, height=5),
        call(base=10, height=5, unit="feet"),
        call(base=10, height=5, colour="red"),
        call(base=10, height=5, extra=[1]),
    ],
)
def test_another_name_value_or_argument_is_wrong(made):
    assert not is_accepted(made, AREA)


def test_lists_and_objects_are_compared_part_by_part():
    expected = {"name": "f", "accepted": {"points": [[1, "a b"]], "range": [{"low": [1, 2], "high": ["", 9]}]}}
    assert is_accepted(call("f", points=[1, "AB"], range={"low": 2}), expected)
    assert is_accepted(call("f", points=[1, "ab"], range={"low": 1, "high": 9}), expected)
    for points, span in (([1], {"low": 1}), ([1, "b"], {"low": 1}), ([1, "ab"], {"high": 9}), ([1, "ab"], {"low": 3})):
        assert not is_accepted(call("f", points=points, range=span), expected)


def test_parallel_calls_are_matched_each_by_one_of_its_own():
    expected = [{"name": "f", "accepted": {"x": [1, 2]}}, {"name": "f", "accepted": {"x": [1]}}]
    assert matched_calls([call("f", x=1), call("f", x=2)], expected) == 2  # the first takes 2, though 1 comes first
    assert matched_calls([call("f", x=1)], expected) == 1
    assert matched_calls([call("f", x=2), call("f", x=2)], expected) == 1


def test_the_published_form_is_read_and_nothing_else():
    expected = read_accepted([{"area": {"base": [10], "unit": ["m", ""]}}])
    assert expected == [{"name": "area", "accepted": {"base": [10], "unit": ["m", ""]}}]
    assert first_accepted(expected[0]) == call(base=10)
    for other in (None, [], "area", [{"name": "area", "arguments": {}}], [{"area": {"base": 10}}], [{"area": 1}]):
        assert read_accepted(other) is None


def test_many_calls_do_not_take_long():
    started = time.process_time()
    expected = [{"name": "f", "accepted": {"x": [1]}}] * 1000
    matched_calls([call("f", x=1)] * 1000, expected)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("calls", "value"),
    [
        ([call(base=10, height=5)], 1.0),
        ([call(base=10, height=5)] * 2, 0.0),
        ([call(base=1, height=5)], 0.0),
        ([], 0.0),
    ],
)
def test_accepted_calls_decide_in_place_of_the_reference(calls, value):
    payload = {"reference_calls": [call(base=99)], "accepted_calls": [AREA], "tools": []}
    state = {"tool_calls": [{**made, "error": None, "result": None} for made in calls], "final": {}, "answer": None}
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), "", state, Usage())
    assert ChatCallScorer().score(Item("i", Split.DEV, "?", None, payload), rollout).value == value
