import json

import pytest

from agent2.environments.tools import Parameter, Permission, ToolRules, ToolSpec

SPEC = ToolSpec("weather", (Parameter("city", "string"), Parameter("hours", "integer", default=3)))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"city": "Oslo"}, None),
        ({"city": "Oslo", "hours": 5}, None),
        ({}, "city is missing"),
        ({"city": 3}, "city must be a string"),
        ({"city": "Oslo", "hours": "5"}, "hours must be an integer"),
        ({"city": "Oslo", "hours": True}, "hours must be an integer"),
        ({"city": "Oslo", "hours": 10**10}, "hours is too large"),
        ({"city": "O" * 300}, "city is too long"),
        ({"city": "Oslo", "town": "Oslo"}, "no parameter 'town'"),
    ],
)
def test_arguments_are_held_against_the_schema(arguments, problem):
    assert SPEC.problem_with(arguments) == problem


def test_defaults_are_filled_in_and_the_signature_is_what_a_prompt_shows():
    assert SPEC.with_defaults({"city": "Oslo"}) == {"city": "Oslo", "hours": 3}
    assert SPEC.signature == "weather(city,hours)"


def test_the_rules_are_plain_data_for_the_protocol():
    rules = ToolRules(frozenset(Permission), max_tool_calls=3).as_protocol()
    assert json.loads(json.dumps(rules)) == rules
    assert rules["max_tool_calls"] == 3
    assert rules["permissions"] == sorted(str(permission) for permission in Permission)
    assert ToolRules().as_protocol()["permissions"] == ["reading"]
