"""Calls that no program would write: a wrong call is a zero, never a missing score."""

import pytest

from agent2.records import Item, Rollout, RolloutStatus, Split, Usage
from agent2.scorers import load_scorer

HUGE = [
    "0x" + "f" * 5000,
    "9" * 5000,
    "9" * 400,
    "1e999",
    "{'a': 0x" + "f" * 5000 + "}",
    "[0x" + "f" * 5000 + "]",
    "'" + "0x" + "f" * 5000 + "'",
    "[" * 3000 + "]" * 3000,
    "-" * 3000 + "1",
    "1j",
    "'\ud800'",
]
TYPES = {
    "python": ["string", "any", "integer", "float", "boolean", "array", "tuple", "dict"],
    "java": ["byte", "long", "float", "double", "boolean", "char", "String", "any", "HashMap", "Array", "ArrayList"],
    "javascript": ["String", "integer", "Bigint", "float", "Boolean", "dict", "array"],
}


def value_of(scorer, payload, answer):
    item = Item("i", Split.DEV, "?", None, payload)
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, (), (), answer, {"answer": answer}, Usage())
    return load_scorer(scorer).score(item, rollout).value


@pytest.mark.parametrize("number", range(len(HUGE)))
@pytest.mark.parametrize(("language", "kind"), [(name, kind) for name, kinds in TYPES.items() for kind in kinds])
def test_typed_calls_with_values_that_cannot_be_shown_are_wrong(language, kind, number):
    parts = {"items": {"type": "integer"}} if kind in ("array", "tuple", "Array", "ArrayList") else {}
    parameters = {"properties": {"x": {"type": kind, **parts}}, "required": ["x"]}
    payload = {
        "functions": [{"name": "f", "parameters": parameters}],
        "language": language,
        "rule": "one",
        "possible_answer": [{"f": {"x": [5]}}],
    }
    for answer in (f"f(x={HUGE[number]})", f"[f(x={HUGE[number]})]"):
        assert value_of("typed_calls", payload, answer) == 0.0


@pytest.mark.parametrize("number", range(len(HUGE)))
@pytest.mark.parametrize("expected", [5, "5", [5], {"a": 5}, 5.0, True, None])
def test_matching_calls_with_values_that_cannot_be_shown_are_wrong(expected, number):
    payload = {"expected_calls": [{"name": "f", "arguments": {"x": expected}}]}
    assert value_of("matching_calls", payload, f"[f(x={HUGE[number]})]") == 0.0
