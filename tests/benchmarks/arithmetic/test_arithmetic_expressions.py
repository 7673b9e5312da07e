from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.benchmarks.arithmetic import (
    MAX_OPERAND,
    MAX_OPERATIONS,
    ExpressionDifficulty,
    Operation,
    canonical,
    generate,
    read_expression,
    text_of,
    value_of,
)
from agent2.errors import ConfigError
from agent2.scorers.answers import MAX_ANSWER_CHARACTERS, format_rational


def operations_in(expression):
    if isinstance(expression, int):
        return 0
    return 1 + operations_in(expression.left) + operations_in(expression.right)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**64),
    difficulty=st.builds(
        ExpressionDifficulty,
        n_operations=st.integers(1, 20),
        max_operand=st.integers(1, 999),
        operators=st.sampled_from(["+", "-", "*", "/", "+-", "+-*/"]),
    ),
)
def test_an_expression_has_the_size_asked_for_a_defined_value_and_a_text_that_reads_back(seed, difficulty):
    expression = generate(seed, difficulty)
    assert operations_in(expression) == difficulty.n_operations
    assert isinstance(value_of(expression), Fraction)
    assert read_expression(text_of(expression)) == expression


def test_the_same_seed_gives_the_same_expression_and_another_seed_another_one():
    difficulty = ExpressionDifficulty(n_operations=5)
    assert generate(7, difficulty) == generate(7, difficulty)
    assert len({text_of(generate(seed, difficulty)) for seed in range(50)}) == 50


def test_values_are_exact():
    assert value_of(read_expression("(1 / 3) + (1 / 6)")) == Fraction(1, 2)
    assert value_of(read_expression("3 - (10 / 4)")) == Fraction(1, 2)


@pytest.mark.parametrize(
    ("text", "same"), [("3 + 5", "5 + 3"), ("(1 + 2) + 3", "3 + (2 + 1)"), ("2 * (3 + 4)", "(4 + 3) * 2")]
)
def test_orders_and_groupings_of_sums_and_products_are_one_canonical_expression(text, same):
    assert canonical(read_expression(text)) == canonical(read_expression(same))


@pytest.mark.parametrize(
    ("text", "different"), [("3 - 5", "5 - 3"), ("6 / 2", "2 / 6"), ("3 + 5", "3 * 5"), ("(5 - 3) - 1", "5 - (3 - 1)")]
)
def test_different_expressions_stay_apart(text, different):
    assert canonical(read_expression(text)) != canonical(read_expression(different))


def test_no_expression_divides_by_zero_even_where_every_second_draw_does():
    for n_operations in (2, 13, 20):
        for seed in range(200):
            value_of(generate(seed, ExpressionDifficulty(n_operations, max_operand=1, operators="/")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_operations": 0}, "n_operations is 0"),
        ({"n_operations": 21}, "1 to 20"),
        ({"max_operand": 0}, "max_operand is 0"),
        ({"max_operand": 10**9 + 1}, "at most 1000000000"),
        ({"operators": "+^"}, "operators"),
        ({"operators": ""}, "operators"),
    ],
)
def test_a_difficulty_out_of_range_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        ExpressionDifficulty(**changes)


@pytest.mark.parametrize("text", ["2 ** 3", "__import__('os')", "1 +", "-3 + 1", "1.5 + 2", "True + 1"])
def test_only_arithmetic_is_read(text):
    with pytest.raises(ConfigError, match="not an arithmetic expression"):
        read_expression(text)


def test_an_operation_is_written_with_its_operands_in_parentheses():
    assert text_of(Operation("*", Operation("+", 1, 2), 3)) == "(1 + 2) * 3"


def test_the_value_of_the_longest_expression_can_be_given_as_an_answer():
    difficulty = ExpressionDifficulty(n_operations=MAX_OPERATIONS, max_operand=MAX_OPERAND, operators="+-*/")
    longest = max(len(format_rational(value_of(generate(seed, difficulty)))) for seed in range(300))
    assert 150 < longest <= MAX_ANSWER_CHARACTERS
