import numpy as np
import pytest

from agent2.benchmarks.home import Pool, Source
from agent2.errors import ConfigError
from agent2.records import Split

SECRET = b"s" * 32
SOURCE = Source(
    "numbers",
    lambda rng: (int(rng.integers(2000)), int(rng.integers(3))),
    lambda candidate: str(candidate[0]),
    lambda candidate: f"{candidate[0]} in wording {candidate[1]}",
)


def test_a_split_is_the_same_every_time_and_starts_the_same_whatever_its_size():
    for split in Split:
        assert SOURCE.first(split, 50, SECRET)[:20] == SOURCE.first(split, 20, SECRET)


def test_splits_share_no_content_in_whatever_wording():
    numbers = {split: {number for number, _ in SOURCE.first(split, 150, SECRET)} for split in Split}
    for split, mine in numbers.items():
        for other_split, theirs in numbers.items():
            assert split is other_split or not mine & theirs
    texts = [SOURCE.text(candidate) for split in Split for candidate in SOURCE.first(split, 150, SECRET)]
    assert len(set(texts)) == len(texts)


def test_another_secret_asks_other_hidden_items_with_other_ids():
    other_secret = b"t" * 32
    for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE):
        mine, theirs = SOURCE.first(split, 100, SECRET), SOURCE.first(split, 100, other_secret)
        assert len(set(mine) & set(theirs)) < 50
        assert SOURCE.item_id(mine[0], split, SECRET) != SOURCE.item_id(mine[0], split, other_secret)
    assert SOURCE.first(Split.DEV, 50, SECRET) == SOURCE.first(Split.DEV, 50, other_secret)


def test_corpora_draw_from_the_train_pool_only():
    draws = SOURCE.train_draws(np.random.default_rng(0))
    assert {SOURCE.pool_of(next(draws)) for _ in range(300)} == {Pool.TRAIN}


def test_pools_have_the_sizes_that_the_module_says():
    pools = [SOURCE.pool_of((number, 0)) for number in range(2000)]
    for pool, share in ((Pool.HIDDEN, 4 / 12), (Pool.DEV, 1 / 12), (Pool.TRAIN, 7 / 12)):
        assert abs(pools.count(pool) / 2000 - share) < 0.04


def test_hidden_splits_need_the_secret_and_a_used_up_split_says_how_many_there_are():
    with pytest.raises(ConfigError, match="installation secret"):
        SOURCE.first(Split.TEST_PUBLIC, 1, None)
    few = Source("few", lambda rng: int(rng.integers(60)), str, str)
    with pytest.raises(ConfigError, match=r"100 items of split 'dev' were asked for, there are \d"):
        few.first(Split.DEV, 100, None)
