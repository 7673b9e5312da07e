"""Calls against lists of accepted values for each argument, as the Berkeley Function-Calling Leaderboard has them.

    {"name": "area", "accepted": {"base": [10], "unit": ["units", ""]}}

An empty text among the accepted values says that the argument may be left out; no accepted value, that it is left out
or empty. Texts are equal without case, spaces and the marks ``, . / - _ * ^``; a whole number is accepted for a number;
lists, and objects with accepted values of their own for each key, are compared part by part. Source: `ast_checker` of
BFCL (Patil et al. 2025), its rules for Python.
Does NOT convert the texts of Java's and JavaScript's values.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent2.records import JsonValue

OPTIONAL = ""
_IGNORED = re.compile(r"[ ,./\-_*^]")
MAX_CALLS = 50
"""More expected calls than any published item has are not matched."""


def matched_calls(calls: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> int:
    """How many of the expected calls are made, each by a call of its own: the largest such number.

    calls: {name, arguments}. expected: {name, accepted}, with lists of accepted values by argument.
    """
    expected = expected[:MAX_CALLS]
    fits = [[index for index, call in enumerate(calls) if is_accepted(call, entry)] for entry in expected]
    call_of: dict[int, int] = {}  # index of a call -> of the expected call that it answers

    def assign(place: int, tried: set[int]) -> bool:
        for index in fits[place]:
            if index not in tried:
                tried.add(index)
                if index not in call_of or assign(call_of[index], tried):
                    call_of[index] = place
                    return True
        return False

    return sum(assign(place, set()) for place in range(len(expected)))


def is_accepted(call: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a call has the expected name, and each argument one of its accepted values."""
    accepted: Mapping[str, Sequence[JsonValue]] = expected["accepted"]
    arguments: Mapping[str, JsonValue] = call["arguments"]
    return (
        call["name"] == expected["name"]
        and all(name in accepted and _is_one_of(value, accepted[name] or [[]]) for name, value in arguments.items())
        and all(name in arguments or OPTIONAL in values or not values for name, values in accepted.items())
    )


def _is_one_of(value: JsonValue, accepted: Sequence[JsonValue]) -> bool:
    return any(_is_same(value, candidate) for candidate in accepted)


def _is_same(value: JsonValue, candidate: JsonValue) -> bool:
    """Whether a value is an accepted one; a candidate that is an object has accepted values for each of its keys."""
    if isinstance(value, bool) or isinstance(candidate, bool):
        return value is candidate
    if isinstance(value, int | float) and isinstance(candidate, int | float):
        return value == candidate
    if isinstance(value, str) and isinstance(candidate, str):
        return _plain(value) == _plain(candidate)
    if isinstance(value, list) and isinstance(candidate, list):
        return len(value) == len(candidate) and all(map(_is_same, value, candidate))
    if isinstance(value, dict) and isinstance(candidate, dict):
        return all(name in candidate and _is_listed(part, candidate[name]) for name, part in value.items()) and all(
            name in value or (isinstance(options, list) and OPTIONAL in options) for name, options in candidate.items()
        )
    return value is None and candidate is None


def _is_listed(value: JsonValue, options: JsonValue) -> bool:
    """Whether a part of an object is one of the values that are listed for its key."""
    return _is_one_of(value, options) if isinstance(options, list) else _is_same(value, options)


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def read_accepted(value: JsonValue) -> list[dict[str, JsonValue]] | None:
    """The expected calls of a list of `{NAME: {ARGUMENT: [accepted values]}}`, BFCL's form; None: it is not."""
    if not isinstance(value, list) or not value:
        return None
    calls: list[dict[str, JsonValue]] = []
    for entry in value:
        if not isinstance(entry, dict) or len(entry) != 1:
            return None
        ((name, accepted),) = entry.items()
        if not isinstance(accepted, dict) or not all(isinstance(values, list) for values in accepted.values()):
            return None
        calls.append({"name": name, "accepted": accepted})
    return calls


def first_accepted(expected: Mapping[str, Any]) -> dict[str, Any]:
    """A call that an expected one accepts: the first value of each argument that may not be left out."""
    arguments = {
        name: _first(values) for name, values in expected["accepted"].items() if values and OPTIONAL not in values
    }
    return {"name": expected["name"], "arguments": arguments}


def _first(values: Sequence[JsonValue]) -> JsonValue:
    """The first accepted value, in objects that of each key."""
    value = values[0]
    if isinstance(value, dict):
        return {
            name: _first(options) if isinstance(options, list) else options
            for name, options in value.items()
            if not (isinstance(options, list) and OPTIONAL in options)
        }
    if isinstance(value, list):
        return [_first([part]) for part in value]
    return value
