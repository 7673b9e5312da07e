"""Answers that a source draws at most: bounded where its text says so, unbounded in every other case."""

import ast

import pytest

from agent2.arena.analysis.drawn_answers import most_drawn

ANSWERS = "def answers(model, rows, n):\n    return model.generate(rows, num_return_sequences=n, max_new_tokens=16)\n"
EVALUATE = "def evaluate(rows):\n    return answers(model, rows, 1)\n"


@pytest.mark.parametrize(
    ("source", "at_most"),
    [
        ("loss.backward()", 0),
        (ANSWERS, 0),
        ("def evaluate(rows):\n    return sum(model.generate(row) for row in rows)\n", 0),
        (ANSWERS + EVALUATE + "answers(model, rows_of('train')[:8], 4)", 32),
        (ANSWERS + "answers(model, random.sample(rows, 8), 4)", 32),
        ("@torch.no_grad()\n" + ANSWERS + "answers(model, rows[:8], 4)", 32),
        ("model.generate(rows[:10], num_return_sequences=8, max_new_tokens=512)", 80),
        (ANSWERS + "def main():\n    answers(m, rows[:8], 4)\n    answers(m, rows[:2], 4)\nmain()\nmain()", 80),
    ],
)
def test_a_number_in_the_text_is_a_bound(source, at_most):
    assert most_drawn(ast.parse(source)) == at_most


@pytest.mark.parametrize(
    "source",
    [
        "for step in range(40):\n    model.generate(rows[:8])",
        ANSWERS + "for step in range(40):\n    answers(model, rows[:8], 4)",
        ANSWERS + "texts = [answers(model, [row][:1], 4) for row in rows]",
        ANSWERS + "answers(model, rows, 8)",
        "llm = LLM(base)\noutputs = llm.generate(prompts, SamplingParams(n=8))",
        ANSWERS + "def main():\n    answers(model, rows[:8], 4)\nwhile True:\n    main()",
        ANSWERS + "def draw():\n    return answers(model, rows[:8], 4)\ntrain(draw)",
        "def play(n):\n    model.generate(rows[:8])\n    play(n - 1)\nplay(40)",
        "@worker\ndef draw():\n    model.generate(rows[:8])\n",
    ],
    ids=["loop", "called in a loop", "comprehension", "all rows", "one large batch", "outer loop", "passed on",
         "recursive", "decorated"],
)  # fmt: skip
def test_everything_else_is_unbounded(source):
    assert most_drawn(ast.parse(source)) is None
