from itertools import islice

import pytest

from agent2.benchmarks.arithmetic import (
    TASK_DIFFICULTY,
    ExpressionDifficulty,
    canonical,
    pool_of,
    source_of,
    text_of,
)
from agent2.benchmarks.home import Pool
from agent2.errors import ConfigError
from agent2.records import Split

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32


def canonicals(split, n, secret=SECRET, difficulty=TASK_DIFFICULTY):
    return [canonical(expression) for expression in islice(source_of(difficulty).distinct(split, secret), n)]


def test_the_four_splits_share_no_canonical_expression():
    sizes = {Split.TRAIN: 3000, Split.DEV: 1200, Split.TEST_PUBLIC: 2000, Split.TEST_PRIVATE: 2000}
    splits = {split: set(canonicals(split, n)) for split, n in sizes.items()}
    assert {split: len(expressions) for split, expressions in splits.items()} == sizes
    assert sum(sizes.values()) == len(set().union(*splits.values()))


def test_the_splits_stay_apart_under_different_secrets_as_far_as_visible_and_hidden_go():
    visible = set(canonicals(Split.TRAIN, 5000)) | set(canonicals(Split.DEV, 1000))
    hidden = set(canonicals(Split.TEST_PUBLIC, 400, OTHER_SECRET)) | set(canonicals(Split.TEST_PRIVATE, 600))
    assert not visible & hidden


def test_without_the_secret_the_hidden_items_are_a_small_part_of_what_could_be_asked():
    n_used = 400 + 600
    sums = {tuple(sorted((a, b))) for a in range(100) for b in range(100)}
    texts = [f"(+ {' '.join(sorted((str(a), str(b))))})" for a, b in sums]
    texts += [f"(- {a} {b})" for a in range(100) for b in range(100)]
    assert set(canonicals(Split.TEST_PUBLIC, 100)) < set(texts)
    assert sum(pool_of(text) is Pool.HIDDEN for text in texts) > 4.5 * n_used


def test_another_secret_asks_other_hidden_items_about_as_often_as_chance_would():
    ours, theirs = set(canonicals(Split.TEST_PRIVATE, 600)), set(canonicals(Split.TEST_PRIVATE, 600, OTHER_SECRET))
    assert len(ours & theirs) < 0.25 * 600


def test_the_visible_splits_do_not_depend_on_the_secret():
    assert canonicals(Split.TRAIN, 50) == canonicals(Split.TRAIN, 50, None)


def test_more_items_begin_with_the_same_items():
    assert canonicals(Split.TEST_PRIVATE, 300)[:100] == canonicals(Split.TEST_PRIVATE, 100)


def test_hidden_splits_need_the_secret():
    with pytest.raises(ConfigError, match="needs the installation secret"):
        next(source_of(TASK_DIFFICULTY).distinct(Split.TEST_PRIVATE, None))


def test_a_space_too_large_to_list_is_split_as_well():
    hard = ExpressionDifficulty(n_operations=12, max_operand=999, operators="+-*/")
    assert len(set(canonicals(Split.TEST_PUBLIC, 50, difficulty=hard))) == 50


def test_the_ids_of_hidden_items_cannot_be_computed_from_their_expressions():
    source = source_of(TASK_DIFFICULTY)
    expression = next(source.distinct(Split.TEST_PUBLIC, SECRET))
    ids = {source.item_id(expression, Split.TEST_PUBLIC, secret) for secret in (SECRET, OTHER_SECRET)}
    assert len(ids | {source.item_id(expression, Split.TRAIN, None)}) == 3


def test_a_third_of_the_expressions_is_kept_hidden():
    texts = [f"(+ {a} {b})" for a in range(100) for b in range(100)]
    share = sum(pool_of(text) is Pool.HIDDEN for text in texts) / len(texts)
    assert 0.31 < share < 0.36


def test_expressions_are_shown_in_any_order_of_their_operands():
    texts = [text_of(expression) for expression in islice(source_of(TASK_DIFFICULTY).distinct(Split.TRAIN, None), 300)]
    sums = [tuple(map(int, text.split(" + "))) for text in texts if "+" in text]
    assert {a > b for a, b in sums} == {True, False}
