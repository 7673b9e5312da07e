import random

import pytest

from agent2.integrity.leaks import Hit, NgramIndex
from agent2.integrity.plain_text import normalized_words

WORDS = [f"w{i}" for i in range(1000)]


def text(n, seed):
    return " ".join(random.Random(seed).choices(WORDS, k=n))


def naive(items, document, n):
    """What the definition says: items with any n words in a row in common."""
    words = normalized_words(document)
    held = {tuple(words[at : at + n]) for at in range(len(words) - n + 1)}
    counts = []
    for item in items:
        item_words = normalized_words(item)
        counts.append(len({tuple(item_words[at : at + n]) for at in range(len(item_words) - n + 1)} & held))
    return [Hit(index, n_runs) for index, n_runs in enumerate(counts) if n_runs]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_what_a_naive_search_finds_wherever_the_run_begins(seed):
    rng = random.Random(seed)
    n = rng.choice([5, 8, 13, 20])
    items = [text(rng.randrange(5, 60), 100 + seed * 10 + i) for i in range(6)]
    words = text(200, seed).split()
    for item in items:
        item_words = item.split()
        start, length = rng.randrange(len(item_words)), rng.randrange(1, 30)
        at = rng.randrange(len(words))
        words[at:at] = item_words[start : start + length]
    document = " ".join(words)
    assert NgramIndex(items, n=n).search(document) == naive(items, document, n)


def test_case_punctuation_and_blanks_do_not_hide_a_run():
    item = "Tom has two red apples and buys two more green apples at the market, today."
    hidden = item.upper().replace(" ", " \n ").replace(",", " - ")
    assert NgramIndex([item]).search(hidden)


def test_text_without_blanks_between_words_is_read_by_character():
    item = "小明有五个红苹果又买了三个绿苹果他现在一共有多少个苹果"
    assert NgramIndex([item]).search(f"问题:{item}?")
    assert not NgramIndex([item]).search("小红有七本书又买了三本书她现在一共有多少本书呢请问")


def test_runs_of_visible_data_prove_nothing():
    shared = text(30, 1)
    items = [f"{shared} {text(30, 2 + i)}" for i in range(3)]
    index = NgramIndex(items, familiar=[shared])
    assert not index.search(shared) and len(index.search(items[1])) == 1


def test_a_template_of_many_items_proves_nothing():
    template = text(20, 1)
    index = NgramIndex([f"{template} {text(20, 5 + i)}" for i in range(10)])
    assert not index.search(template)


def test_items_shorter_than_a_run_are_listed():
    index = NgramIndex(["too short", text(12, 1), text(13, 2)])
    assert index.items_without_runs == [0, 1] and index.n_runs == (0, 0, 1)


def test_no_items_and_no_words_find_nothing():
    assert NgramIndex([]).search(text(50, 1)) == [] == NgramIndex([text(20, 1)]).search("")
