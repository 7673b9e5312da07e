from collections import Counter

import numpy as np
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.instructions import (
    TYPES,
    Instructions,
    are_compatible,
    compose,
    draw_constraint,
    draw_request,
)
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_answers
from agent2.records import Split
from agent2.scorers.constraints import read_instructions

SECRET = b"s" * 32


def follows(request, text):
    names = [constraint.name for constraint in request.constraints]
    kwargs = [dict(constraint.arguments) for constraint in request.constraints]
    return [found.check(text) for found in read_instructions(names, kwargs, "test")]


def test_every_request_can_be_followed_and_its_constraints_do_not_contradict_each_other():
    rng = np.random.default_rng(0)
    drawn = Counter()
    for _ in range(1500):
        request = draw_request(rng)
        text = compose({constraint.name: constraint.arguments for constraint in request.constraints})
        findings = follows(request, text)
        assert all(finding.followed for finding in findings), (request.prompt, text, findings)
        drawn.update(constraint.name for constraint in request.constraints)
        drawn[len(request.constraints)] += 1
    assert set(TYPES) <= set(drawn)
    assert drawn[1] > drawn[3] > 200


@pytest.mark.parametrize("name", TYPES)
def test_a_plain_chatty_answer_follows_no_constraint_but_the_easy_ones(name):
    plain = "Sure, here it is: " + "The dog was lost in the rain, and nobody knew where it went. " * 5
    followed = [draw_constraint(np.random.default_rng(seed), name) for seed in range(5)]
    verdicts = [
        found.check(plain).followed
        for one in followed
        for found in read_instructions([one.name], [dict(one.arguments)], "test")
    ]
    assert not any(verdicts)


def test_splits_are_disjoint_hidden_ones_need_the_secret_and_visible_rows_have_no_answer():
    benchmark = load_benchmark("instructions")
    prompts = {split: {item.prompt for item in benchmark.items(split, 150, SECRET)} for split in (Split.TRAIN, *Split)}
    assert sum(map(len, prompts.values())) == len(set().union(*prompts.values())) == 150 * len(prompts)
    with pytest.raises(ConfigError, match="secret"):
        benchmark.items(Split.TEST_PRIVATE, 1, None)
    assert all(item.reference is None for item in benchmark.items(Split.TRAIN, 20, None))


def test_the_scorer_gives_one_for_all_constraints_and_zero_where_one_is_missed():
    benchmark = Instructions()
    items = benchmark.items(Split.TRAIN, 60, None)
    oracle = benchmark.players().oracle
    right = score_answers(benchmark, [(item, [oracle(item, ())]) for item in items])
    assert [score.value for score in right] == [1.0] * 60
    foreign = benchmark.players().random(items)
    others = score_answers(benchmark, [(item, [foreign(item, ())]) for item in items])
    assert sum(score.value for score in others) / 60 < 0.25
    assert [score.value for score in score_answers(benchmark, [(item, [""]) for item in items])] == [0.0] * 60


def test_compatibility_is_symmetric():
    assert all(are_compatible(a, b) == are_compatible(b, a) for a in TYPES for b in TYPES)
    assert not any(are_compatible(name, name) for name in TYPES)
