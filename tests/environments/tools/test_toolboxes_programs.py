import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent2.environments.tools.toolboxes import (
    ProgramCheck,
    ProgramError,
    failures,
    read_checks,
    read_program,
    value_of,
)


@pytest.mark.parametrize(
    ("line", "arguments", "value"),
    [
        ("f(a,b)=a+b", (2, 3), 5),
        ("f(a,b)=a-b*2", (10, 3), 4),
        ("f(a,b)=(a-b)*2", (10, 3), 14),
        ("f(a)=-a+7", (3,), 4),
        ("f(a,b,c,d)=a*b+c*d", (1, 2, 3, 4), 14),
    ],
)
def test_a_function_has_the_value_of_its_expression(line, arguments, value):
    assert value_of(read_program(line), "f", arguments) == value


@pytest.mark.parametrize(
    "body",
    [
        "__import__('os').system('true')",
        "open('x')",
        "a.real",
        "a[0]",
        "[a for a in b]",
        "lambda: 1",
        "a if b else a",
        "a**b",
        "a/b",
        "a//b",
        "a<<b",
        "a<b",
        "'text'",
        "1.5",
        "True",
        "c",
        "f(a,b)",
        "10000000",
        "a+",
        "(" * 60 + "a",
        "(a:=b)",
    ],
)
def test_anything_but_sums_and_products_of_the_parameters_is_refused(body):
    with pytest.raises(ProgramError, match="line 1 is no"):
        read_program(f"f(a,b)={body}")


@given(st.text(max_size=200))
def test_no_text_does_more_than_be_read_or_refused(text):
    try:
        read_program(text)
    except ProgramError as error:
        assert str(error)


def test_the_longest_line_is_worked_out_in_the_blink_of_an_eye():
    line = "f(a)=" + "*".join(["999999"] * 16)
    assert value_of(read_program(line), "f", (1,)) == 999999**16
    with pytest.raises(ProgramError):
        read_program("f(a)=" + "*".join(["999999"] * 17))
    with pytest.raises(ProgramError, match="at most 40"):
        read_program("f(a)=a\n" * 41)


def test_depth_within_a_line_is_no_danger_to_the_stack():
    line = "f(a)=" + "-" * 110 + "a"
    assert value_of(read_program(line), "f", (3,)) == 3
    assert len(line) < sys.getrecursionlimit()


def test_tests_are_read_and_their_failures_say_what_came_out():
    checks = read_checks("f(2,3)=5\ng(1)=2")
    assert checks == [ProgramCheck("f", (2, 3), 5), ProgramCheck("g", (1,), 2)]
    assert failures("f(a,b)=a-b", checks) == ["f(2,3) is -1, not 5", "no g with 1 parameters"]
    assert failures("f(a,b)=a+b\ng(a)=a+1", checks) == []
    with pytest.raises(ProgramError, match="line 1 is no test"):
        read_checks("skip")


def test_one_unreadable_line_fails_every_test():
    checks = read_checks("f(2,3)=5\ng(1)=2")
    assert failures("f(a,b)=a+b\noops", checks) == ["line 2 is no function"] * 2
