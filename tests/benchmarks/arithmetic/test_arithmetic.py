import numpy as np
import pytest

from agent2.benchmarks.arithmetic import Arithmetic, ExpressionDifficulty
from agent2.benchmarks.home import foreign_answers, reference_answer
from agent2.errors import ConfigError
from agent2.records import Rollout, RolloutStatus, Split, Usage

SECRET = b"s" * 32


def play(benchmark, item, answer):
    world = benchmark.environment()
    prompt = world.reset(item, seed=0)
    assert world.act(answer).done
    state = world.state()
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, prompt, (), state["answer"], state, Usage())
    return benchmark.scorer().score(item, rollout).value


@pytest.mark.parametrize("split", list(Split))
def test_the_oracle_scores_one_on_every_item_and_the_random_player_next_to_nothing(split):
    benchmark = Arithmetic()
    items = benchmark.items(split, 300, SECRET)
    assert {play(benchmark, item, reference_answer(item, [])) for item in items} == {1.0}
    at_random = foreign_answers(items)
    assert np.mean([play(benchmark, item, at_random(item, [])) for item in items]) < 0.05


def test_items_are_stable_have_unique_ids_and_do_not_carry_the_answer_twice():
    items = Arithmetic().items(Split.TRAIN, 500, None)
    assert items == Arithmetic().items(Split.TRAIN, 500, None)
    assert len({item.id for item in items}) == 500
    assert {tuple(item.payload) for item in items} == {("n_operations",)}


def test_rational_answers_are_right_at_a_harder_difficulty():
    benchmark = Arithmetic(ExpressionDifficulty(n_operations=6, max_operand=20, operators="+-*/"))
    items = benchmark.items(Split.DEV, 40, None)
    assert any("/" in item.reference for item in items)
    assert {play(benchmark, item, reference_answer(item, [])) for item in items} == {1.0}


def test_more_items_than_there_are_is_an_error_that_says_how_many_there_are():
    with pytest.raises(ConfigError, match=r"30 items of split 'dev' were asked for, there are at most \d+ at"):
        Arithmetic(ExpressionDifficulty(max_operand=3)).items(Split.DEV, 30, None)


def test_hidden_items_need_the_secret():
    with pytest.raises(ConfigError, match="installation secret"):
        Arithmetic().items(Split.TEST_PUBLIC, 1, None)


def test_completions_are_drawn_and_not_greedy():
    assert Arithmetic.sampling.temperature == 0.6
    assert Arithmetic.attempts == 1
