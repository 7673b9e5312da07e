import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from agent2.environments.shop import (
    MAX_RESULTS,
    ProductFile,
    build_store,
    index_products,
    open_store,
    require_store_name,
    tokenize,
)
from agent2.errors import ConfigError, EnvironmentFailed
from shop_builders import make_product, make_store

WORDS = ["warm", "red", "large", "lined", "blue", "slim"]


def drawn_products(n=300):
    rng = np.random.default_rng(0)
    return [
        make_product(i, title=" ".join(WORDS[int(w)] for w in rng.integers(len(WORDS), size=rng.integers(1, 5))))
        for i in range(n)
    ]


def test_results_are_the_best_by_bm25_and_ties_go_by_number():
    products = drawn_products()
    store = index_products("drawn", products)
    results = store.search("slim lined warm")
    scores = bm25_by_hand([tokenize(product.text) for product in products], ["slim", "lined", "warm"])
    expected = sorted((-round(score, 4), number) for number, score in enumerate(scores) if score > 0)
    assert results == [number for _, number in expected[:MAX_RESULTS]]


def bm25_by_hand(texts, query, k1=0.9, b=0.4):
    """Lucene's form: the idf is ln(1 + (N - n + 0.5) / (n + 0.5)); the constant factor k1 + 1 is left out."""
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        total = 0.0
        for word in query:
            n = sum(word in words for words in texts)
            idf = np.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            count = text.count(word)
            total += idf * count / (count + k1 * (1 - b + b * len(text) / mean))
        scores.append(total)
    return scores


@pytest.mark.parametrize("query", ["", "zebra", "[]", "\x00", "ß 雪"])
def test_a_query_without_a_known_word_finds_nothing(query):
    assert make_store().search(query) == []


def test_no_more_than_fifty_are_found_and_a_megabyte_of_words_is_cut_off():
    store = index_products("drawn", drawn_products())
    assert len(store.search("shirt")) == MAX_RESULTS
    assert store.search("slim " * 200_000) == store.search("slim " * 50)


def test_a_store_on_disk_gives_the_same_results_and_products_as_one_in_memory(tmp_path):
    products = drawn_products()
    build_store(tmp_path / "drawn", products, keeps_products=True)
    again, memory = open_store(tmp_path / "drawn"), index_products("drawn", products)
    for query in ("slim", "slim lined", "large red shirt", "blue"):
        assert again.search(query) == memory.search(query)
    assert [again.product(number) for number in (0, 7, 299)] == [memory.product(number) for number in (0, 7, 299)]
    assert len(ProductFile(tmp_path / "drawn")) == 300


def test_what_a_killed_build_left_goes_at_the_next_start_and_a_build_in_progress_stays(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from agent2.environments.shop import _open_draft\n"
        "draft, _ = _open_draft(Path(sys.argv[1])); (draft / 'lines').write_text('x'); print(draft, flush=True); "
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        draft = Path(builder.stdout.readline().strip())
        build_store(tmp_path / "s", drawn_products(10))
        assert draft.is_dir() and (tmp_path / "s").is_dir()
        builder.kill()
    assert draft.is_dir()
    build_store(tmp_path / "s", drawn_products(10))
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_of_two_builders_at_once_one_wins_and_nothing_is_left_over(tmp_path):
    threads = [threading.Thread(target=build_store, args=(tmp_path / "s", drawn_products(40))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert open_store(tmp_path / "s", drawn_products(40)).size == 40


def test_a_folder_that_is_cut_off_or_of_another_catalogue_is_refused(tmp_path):
    build_store(tmp_path / "s", drawn_products(10), keeps_products=True)
    with pytest.raises(EnvironmentFailed, match="is a store of 10 products"):
        open_store(tmp_path / "s", drawn_products(11))
    next((tmp_path / "s" / "index").glob("vocab*")).write_text("{")
    with pytest.raises(EnvironmentFailed, match="contains no store"):
        open_store(tmp_path / "s")
    with pytest.raises(EnvironmentFailed, match="contains no store"):
        open_store(tmp_path / "nowhere")


def test_an_empty_catalogue_and_two_products_with_one_id_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no products"):
        index_products("none", [])
    with pytest.raises(ConfigError, match="two products have the id 'p0'"):
        build_store(tmp_path / "twice", [make_product(0), make_product(0)], keeps_products=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../secret", "", "a/b", ".hidden", None, 3])
def test_a_name_that_leaves_the_folder_of_stores_is_refused(name):
    with pytest.raises(EnvironmentFailed, match="not the name of a store"):
        require_store_name(name)
