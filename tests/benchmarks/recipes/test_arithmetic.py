import numpy as np

from agent2.benchmarks.arithmetic import canonical, pool_of, read_expression, value_of, verify
from agent2.benchmarks.home import Pool
from agent2.benchmarks.recipes.arithmetic import CorpusSettings, plausible_mistake, pretraining_corpus
from agent2.scorers.answers import format_rational

SMALL = CorpusSettings(n_examples=2000)


def expression_of(prompt):
    return read_expression(prompt.removeprefix("Calculate "))


def test_only_expressions_of_the_train_pool_are_read():
    pools = {pool_of(canonical(expression_of(prompt))) for prompt, _ in pretraining_corpus(SMALL)}
    assert pools == {Pool.TRAIN}


def test_the_share_of_right_answers_is_the_one_asked_for():
    corpus = pretraining_corpus(SMALL)
    right = [verify(answer, format_rational(value_of(expression_of(prompt)))) for prompt, answer in corpus]
    assert abs(sum(right) / len(right) - SMALL.right_share) < 0.04


def test_one_seed_is_one_corpus():
    assert pretraining_corpus(SMALL) == pretraining_corpus(SMALL)
    assert pretraining_corpus(SMALL) != pretraining_corpus(CorpusSettings(n_examples=2000, seed=1))


def test_a_mistake_is_never_the_right_answer():
    rng = np.random.default_rng(0)
    for text in ("5 + 0", "5 - 0", "12 + 30", "0 - 0", "4 * 4"):
        expression = read_expression(text)
        assert value_of(expression) not in {plausible_mistake(expression, rng) for _ in range(30)}
