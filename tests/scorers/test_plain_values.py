"""Values of programs, compared and shown without being built."""

import itertools
import json
import time

import pytest

from agent2.scorers.plain_values import MAX_REBUILT, NotPlainData, as_number, equals, shown
from agent2.scorers.program_runner import encode_value

VALUES = (
    *(None, True, False, 0, 1, 1.0, -0.0, 2.5, 10**40, float(10**40), 1e308, float("inf"), 3j, 1 + 0j, "", "1"),
    *("é\ud800", b"", b"x", [], (), {}, set(), [1], (1,), {1}, frozenset({1.0}), {1: 2}, {True: 2.0}, {"1": 2}),
    *({1: 2, 3: 4}, {3: 4, 1: 2}, {1, 2, 3}, {3, 1, 2}, [[1], [2]], [[1, 2]], [[1], 2], ["a,b"], ["a", "b"]),
    *({(1, 2): [3]}, range(0)),
)  # fmt: skip


def written(value):
    return json.dumps(encode_value(value))


def test_values_are_equal_as_python_says():
    for value, expected in itertools.product(VALUES, VALUES):
        if not isinstance(expected, range):
            assert equals(written(value), expected) == (value == expected), (value, expected)
    assert not equals(written(float("nan")), 1.0) and not equals(written(iter([1])), [1])


def test_a_value_that_is_a_burden_to_build_costs_no_more_than_its_text():
    modulus = 2**61 - 1  # the hash of an integer is its rest, so all of these have one hash
    colliding = written({modulus * n for n in range(5_000)})
    giant, endless = written(10**5000), written([range(10**18), range(10**12)])
    deep = '["list", [' * 20_000 + "]]" * 20_000
    started = time.process_time()
    assert not equals(colliding, {1}) and not equals(giant, 3) and not equals(endless, [1])
    with pytest.raises(NotPlainData):
        equals(deep, [1])
    for text in (colliding, giant):
        assert shown(text) == f"a value of kind {json.loads(text)[0]} and {len(text)} bytes"
    assert shown(endless) == "[range(0, 1000000000000000000), range(0, 1000000000000)]"
    assert time.process_time() - started < 1
    with pytest.raises(ValueError, match="4300 digits"):  # the control: what Python itself says of one of them
        repr(10**5000)


@pytest.mark.parametrize(
    "text",
    ["", "{}", '["int", "zz"]', '["int", 3]', '["list"]', '["list", 3]', '["code", []]', '["dict", [[1]]]', "1" * 5000,
     '["bytes", "x"]',
     '["set", [["list", [["x"]]]]]', '["complex", [1]]', "[]", '[["list"], [1]]', '["list", [{"a": 1}]]'],
)  # fmt: skip
def test_what_no_harness_wrote_is_refused_with_one_error(text):
    with pytest.raises(NotPlainData):
        equals(text, [1])


def test_numbers_and_only_numbers_are_near_a_number():
    assert [as_number(written(value)) for value in (1, 2.5, 2**70, True, "1", [1], 1j)] == [1, 2.5, 2**70] + [None] * 4
    with pytest.raises(NotPlainData):
        as_number('["int", "zz"]')


def test_a_value_is_shown_as_python_writes_it_up_to_a_size():
    assert shown(written({"a": (1, None)})) == "{'a': (1, None)}"
    assert len(shown(written("x" * 100))) == 60
    assert shown(written("x" * MAX_REBUILT)) == f"a value of kind str and {MAX_REBUILT + 2} bytes"
    for text in ('["set", [["list", []]]]', '["range", "ab"]', '["set"]', '{"a": 1}'):
        with pytest.raises(NotPlainData):
            shown(text)
