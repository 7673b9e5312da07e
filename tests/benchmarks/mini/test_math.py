import re

import numpy as np
import pytest

from agent2.benchmarks.mini.math import (
    KINDS,
    MiniMath,
    WordProblem,
    canonical,
    draw_problem,
    pretraining_examples,
    worked_answer,
)
from agent2.records import Rollout, RolloutStatus, Split, Usage
from agent2.scorers.answers import flexible_answer, strict_answer


def problems(n=400):
    rng = np.random.default_rng(0)
    return [draw_problem(rng) for _ in range(n)]


def test_a_worked_answer_shows_every_step_and_ends_with_the_final_line():
    problem = WordProblem("multiply_subtract", (3, 4, 5), "")
    assert worked_answer(problem.steps) == "3 * 4 = 12\n12 - 5 = 7\n#### 7"
    assert problem.answer == 7


def test_every_kind_is_drawn_the_story_names_its_numbers_in_order_and_nothing_is_negative():
    sample = problems()
    assert {problem.kind for problem in sample} == set(KINDS)
    for problem in sample:
        assert [int(number) for number in re.findall(r"\d+", problem.text)] == list(problem.numbers)
        assert min(step[-1] for step in problem.steps) >= 0


def test_the_same_sum_in_another_order_or_story_is_the_same_problem():
    assert canonical(WordProblem("add", (3, 5), "pens")) == canonical(WordProblem("add", (5, 3), "cups"))
    assert canonical(WordProblem("subtract", (5, 3), "")) != canonical(WordProblem("subtract", (3, 5), ""))
    assert canonical(WordProblem("multiply", (2, 6), "")) != canonical(WordProblem("add", (2, 6), ""))
    assert canonical(WordProblem("multiply_add", (2, 3, 4), "")) == canonical(
        WordProblem("multiply_add", (3, 2, 4), "")
    )


def test_wrong_answers_of_the_corpus_are_slips_and_lost_final_lines():
    answers = [chat[1].content for chat in pretraining_examples(np.random.default_rng(1), 400, 0.0, 0.0)]
    lost = [answer for answer in answers if strict_answer(answer).value is None]
    assert 0.2 < len(lost) / len(answers) < 0.4
    assert all(flexible_answer(answer).value is not None for answer in lost)


@pytest.mark.parametrize("kind", ["right number", "wrong number"])
def test_a_right_number_without_its_line_earns_nothing_but_shows_in_the_views(kind):
    item = MiniMath().items(Split.DEV, 1, None)[0]
    number = strict_answer(item.reference).value + (kind == "wrong number")
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), f"It is {number}.", {"answer": ""}, Usage())
    score = MiniMath().scorer().score(item, rollout)
    assert score.value == 0.0
    assert score.labels == ("gsm8k_final_answer_format_error",)
    assert score.views == {"answer_parsed": 0.0, "flexible_match": float(kind == "right number")}
