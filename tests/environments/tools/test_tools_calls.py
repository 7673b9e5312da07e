import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.environments.tools import MAX_CALLS, ToolCall, parse_message, write_calls
from agent2.records import canonical_json


@given(
    st.lists(
        st.builds(
            ToolCall,
            st.text(max_size=20),
            st.dictionaries(st.text(max_size=8), st.integers(-(10**9), 10**9) | st.text(max_size=8), max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_written_is_read_back(calls):
    assert list(parse_message(write_calls(calls)).calls) == calls


@given(st.text(max_size=200))
def test_any_text_is_calls_or_an_answer_or_a_problem_and_never_two(text):
    parsed = parse_message(text)
    assert [bool(parsed.calls), parsed.answer is not None, parsed.problem is not None].count(True) == 1


def test_words_are_the_answer_and_white_space_around_is_not():
    assert parse_message("  42\n").answer == "42"
    assert parse_message("").answer == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"name": "a"', "no JSON at character"),
        ('{"name": "a", "arguments": {}} thanks', "no JSON at character"),
        ('{"name": "a"}', "exactly the keys"),
        ('{"name": "a", "arguments": {}, "id": 1}', "exactly the keys"),
        ('{"name": 1, "arguments": {}}', "'name' is a string"),
        ('{"name": "a", "arguments": []}', "'arguments' an object"),
        ('{"name": "a", "name": "b", "arguments": {}}', "twice"),
        ('{"name": "a", "arguments": {"x": NaN}}', "no JSON value"),
        ("[]", "0 calls"),
        ("[1]", "exactly the keys"),
        ("[" * 3000, "no JSON"),
        ('{"name": "a", "arguments": {"x": 1e999}}', "too large"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 3900 + "}}", "too large"),
        ('{"name": "a", "arguments": {"x": "\\ud800"}}', "half a character"),
        ('{"name": "a", "arguments": {"\\udfff": 1}}', "half a character"),
        ('{"name": "a", "arguments": {"x": ' + "[" * 200 + "]" * 200 + "}}", "nested deeper"),
        ("{" + "1" * 5000, "5001 characters"),
    ],
)
def test_a_malformed_call_says_why(text, why):
    assert why in parse_message(text).problem


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_whatever_is_read_can_be_kept_on_a_card(value):
    text = json.dumps({"name": "a", "arguments": {"x": value}})
    for call in parse_message(text).calls:
        assert canonical_json(call)


def test_more_calls_than_the_limit_are_malformed():
    call = ToolCall("a", {})
    assert parse_message(write_calls([call] * MAX_CALLS)).calls
    assert f"1 to {MAX_CALLS}" in parse_message(write_calls([call] * (MAX_CALLS + 1))).problem
