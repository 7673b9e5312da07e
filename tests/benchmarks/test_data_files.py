"""Bytes, rows and values of a data file are counted while it is read; documents likewise."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from agent2.benchmarks import data_files
from agent2.benchmarks.data_files import file_digest, read_rows
from agent2.environments.search import corpus
from agent2.environments.search.corpus import documents_digest, read_documents
from agent2.errors import ConfigError

ROWS = [{"question": f"{k} + 1?", "answer": k + 1} for k in range(20)]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(path, rows=ROWS):
    match path.suffix:
        case ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        case ".gz":
            path.write_bytes(gzip.compress(lines(rows).encode()))
        case ".csv":
            path.write_text("question,answer\n" + "".join(f"{row['question']},{row['answer']}\n" for row in rows))
        case ".json":
            path.write_text(json.dumps(rows))
        case _:
            path.write_text(lines(rows))
    return path


FORMATS = ["rows.jsonl", "rows.jsonl.gz", "rows.json", "rows.csv", "rows.parquet"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("limit", "at_most", "message"),
    [
        ("MAX_ROWS", 19, "more than 19 rows, the limit"),
        ("MAX_DATA_BYTES", 100, "of data, the limit"),
        ("MAX_VALUES", 30, "million values, the limit"),
    ],
)
def test_what_is_beyond_a_limit_is_refused_with_the_limit(tmp_path, monkeypatch, name, limit, at_most, message):
    path = write(tmp_path / name)
    assert len(read_rows(path)) == 20
    monkeypatch.setattr(data_files, limit, at_most)
    with pytest.raises(ConfigError, match=message) as caught:
        read_rows(path)
    assert str(caught.value).startswith(str(path))


def test_rows_behind_the_limit_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    path.write_text(lines(ROWS[:5]) + "this is no JSON\n")
    monkeypatch.setattr(data_files, "MAX_ROWS", 4)
    with pytest.raises(ConfigError, match="more than 4 rows"):
        read_rows(path)


def test_values_of_nested_columns_are_counted(tmp_path, monkeypatch):
    nested = {"list": [[1] * 10], "map": [[("a", 1)] * 10], "record": [{"n": [1] * 10}]}
    types = {"map": pyarrow.map_(pyarrow.string(), pyarrow.int8())}
    columns = {name: pyarrow.array(values, types.get(name)) for name, values in nested.items()}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    assert len(read_rows(tmp_path / "rows.parquet")) == 1
    monkeypatch.setattr(data_files, "MAX_VALUES", 40)
    with pytest.raises(ConfigError, match="values, the limit"):
        read_rows(tmp_path / "rows.parquet")


def test_one_long_text_that_is_the_value_of_every_row_is_refused_as_a_bomb(tmp_path):
    """1 kB that were 40 GB: a dictionary of one text."""
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 4000, pyarrow.int32()), ["w" * (10 << 20)])
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"question": text}), path, compression="zstd", dictionary_pagesize_limit=1 << 30
    )
    assert path.stat().st_size < 10_000
    with pytest.raises(ConfigError, match="unpacks to more than"):
        read_rows(path)


def test_texts_that_repeat_are_read_from_a_dictionary(tmp_path):
    column = pyarrow.array(["yes", "no", None] * 50).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"answer": column}), tmp_path / "rows.parquet")
    assert [row.values["answer"] for row in read_rows(tmp_path / "rows.parquet")][:3] == ["yes", "no", None]


def test_a_file_beyond_the_limit_has_no_digest(tmp_path):
    path = write(tmp_path / "rows.jsonl")
    assert len(file_digest(path)) == 64
    with pytest.raises(ConfigError, match="is larger than 100 bytes"):
        file_digest(path, 100)


@pytest.fixture(params=["folder", "dump"])
def documents(request, tmp_path):
    if request.param == "dump":
        path = tmp_path / "pages.jsonl"
        path.write_text(lines({"id": str(k), "text": "word " * 20} for k in range(5)))
        return path
    folder = tmp_path / "pages"
    folder.mkdir()
    for k in range(5):
        (folder / f"{k}.txt").write_text("word " * 20)
    return folder


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_DOCUMENTS", "MAX_DOCUMENT_BYTES"])
def test_documents_beyond_a_limit_are_refused(documents, monkeypatch, limit):
    assert len(list(read_documents(documents))) == 5 and documents_digest(documents)
    monkeypatch.setattr(corpus, limit, {"MAX_DOCUMENTS": 4, "MAX_BYTES": 300}.get(limit, 90))
    with pytest.raises(ConfigError, match="limit"):
        list(read_documents(documents))


def test_a_dump_of_lists_in_lists_is_refused_with_its_line(tmp_path):
    (tmp_path / "pages.jsonl").write_text("[" * 300_000)
    with pytest.raises(ConfigError, match=r"pages.jsonl:1: is not a document"):
        list(read_documents(tmp_path / "pages.jsonl"))
