import numpy as np
import pytest

from agent2.benchmarks.home import Pool
from agent2.benchmarks.mini.math import KINDS, SOURCE, WordProblem, apply_operator
from agent2.benchmarks.recipes.mini import DRILLS, LOST_KINDS, N_SUMS, letters, lost_lines, sums
from agent2.scorers.answers import flexible_answer, strict_answer


def test_every_sum_is_right():
    for chat in sums(np.random.default_rng(0), 50):
        lines = chat[1].content.split("\n")
        assert len(lines) == N_SUMS
        for line in lines:
            left, symbol, right, _, result = line.split()
            assert apply_operator(symbol, int(left), int(right)) == int(result)


def test_sums_are_steps_of_problems_that_may_be_read():
    problems = SOURCE.train_draws(np.random.default_rng(0))
    first = next(problems)
    assert isinstance(first, WordProblem) and SOURCE.pool_of(first) is Pool.TRAIN
    left, symbol, right, result = first.steps[0]
    assert sums(np.random.default_rng(0), 1)[0][1].content.startswith(f"{left} {symbol} {right} = {result}")


def test_every_letter_is_the_one_before_the_value_that_is_asked_for():
    for chat in letters(np.random.default_rng(0), 50):
        listed = dict(reversed(line.split()) for line in chat[0].content.split("\n")[1:])
        assert len(listed) == 4
        for question, answer in zip(chat[::2], chat[1::2], strict=True):
            value = question.content.split("\n")[0].removeprefix("Which is ").removesuffix("?")
            assert listed[value] == answer.content


def test_a_lost_line_is_a_right_working_of_some_kinds_that_cannot_be_read_strictly():
    assert 0 < len(LOST_KINDS) < len(KINDS)
    problems = (problem for problem in SOURCE.train_draws(np.random.default_rng(0)) if problem.kind in LOST_KINDS)
    for chat, problem in zip(lost_lines(np.random.default_rng(0), 50), problems, strict=False):
        assert strict_answer(chat[1].content).value is None
        assert flexible_answer(chat[1].content).value == problem.answer


@pytest.mark.parametrize("name", sorted(DRILLS))
def test_one_seed_is_one_drill(name):
    first, again, other_seed = (DRILLS[name](np.random.default_rng(seed), 20) for seed in (0, 0, 1))
    assert first == again != other_seed
