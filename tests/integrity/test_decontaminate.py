import json

import pytest

from agent2.errors import ConfigError
from agent2.integrity.decontaminate import find_contamination, items_from, write_clean

QUESTION = "Tom has two red apples and buys two more green apples at the market today so how many"
SUM = "What is 3 + 4"


@pytest.fixture
def data(tmp_path):
    rows = [{"text": f"Q: {QUESTION}?"}, {"text": "clean"}, {"messages": [{"role": "user", "content": SUM}]}]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def items(tmp_path):
    path = tmp_path / "items.jsonl"
    rows = [{"question": QUESTION, "answer": "4"}, {"question": SUM, "answer": "7"}, {"question": "Who sang?"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return items_from(path)


def test_the_question_of_a_row_is_what_counts(items):
    assert [item.prompt for item in items] == [QUESTION, SUM, "Who sang?"]
    assert [item.id for item in items] == ["items.jsonl:1", "items.jsonl:2", "items.jsonl:3"]


def test_rows_that_share_text_are_listed_with_item_and_kind(data, items):
    contamination = find_contamination(data, items)
    assert [(row.row, row.item, row.how) for row in contamination.rows] == [
        ("train.jsonl:1", "items.jsonl:1", "run"),
        ("train.jsonl:3", "items.jsonl:2", "whole"),
    ]
    assert (
        contamination.n_items,
        contamination.n_short,
        len(contamination.contaminated_items),
        len(contamination.contaminated_rows),
    ) == (3, 2, 2, 2)


def test_reworded_rows_are_suspects_only_when_asked_for(data, items):
    near = QUESTION.replace("red", "ripe").replace("market", "fair")
    data.write_text(json.dumps({"text": near}) + "\n")
    assert find_contamination(data, items).suspects == ()
    (suspect,) = find_contamination(data, items, with_retrieval=True).suspects
    assert suspect.item == "items.jsonl:1" and 0.5 <= suspect.share < 1


def test_contaminated_rows_are_removed_and_all_others_kept_byte_by_byte(data, items, tmp_path):
    out = tmp_path / "clean.jsonl"
    assert write_clean(data, find_contamination(data, items).contaminated_rows, out) == 2
    assert out.read_text() == '{"text": "clean"}\n'


def test_nothing_to_search_is_an_error(tmp_path, items):
    for path, message in ((tmp_path / "gone", "no such file"), (tmp_path / "empty", "nothing to search")):
        if path.name == "empty":
            path.mkdir()
        with pytest.raises(ConfigError, match=message):
            find_contamination(path, items)
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(ConfigError, match="contains no items"):
        items_from(tmp_path / "none.jsonl")


def test_only_one_lines_file_can_be_cleaned_and_never_in_place(data, tmp_path):
    with pytest.raises(ConfigError, match="is the data itself"):
        write_clean(data, frozenset(), data)
    with pytest.raises(ConfigError, match="only a single"):
        write_clean(tmp_path, frozenset(), tmp_path / "out")
