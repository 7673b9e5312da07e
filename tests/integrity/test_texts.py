import gzip
import io
import json
import os

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
import zstandard

from agent2.integrity.texts import (
    MAX_DEPTH,
    OVERLAP_CHARS,
    ReadLimits,
    TextReading,
    joined,
    raw_files,
    read_units,
    units_of,
)

ROWS = [{"prompt": "how many", "answer": "4"}, {"prompt": "what else", "answer": "none"}]
TABLE = pa.Table.from_pylist(ROWS)


def parquet():
    out = io.BytesIO()
    pyarrow.parquet.write_table(TABLE, out)
    return out.getvalue()


def arrow(stream):
    out = io.BytesIO()
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(out, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return out.getvalue()


LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
FILES = {
    "a.jsonl": LINES,
    "a.json": json.dumps(ROWS).encode(),
    "a.csv": b"how many,4\nwhat else,none\n",
    "a.tsv": b"how many\t4\nwhat else\tnone\n",
    "a.parquet": parquet(),
    "a.arrow": arrow(stream=False),
    "stream.arrow": arrow(stream=True),
    "a.jsonl.gz": gzip.compress(LINES),
    "a.jsonl.zst": zstandard.compress(LINES),
}


def units(name, data, limits=None):
    reading = TextReading()
    return [unit.text for unit in units_of(name, data, limits or ReadLimits(), reading)], reading


@pytest.mark.parametrize("name", FILES)
def test_rows_of_every_kind_of_file_are_read(name):
    rows, reading = units(name, FILES[name])
    assert rows == ["how many\n4", "what else\nnone"]
    assert (reading.n_files, reading.n_units, dict(reading.not_read)) == (1, 2, {})


def test_rows_have_locations():
    assert [u.where for u in units_of("x/a.jsonl", LINES, ReadLimits(), TextReading())] == [
        "x/a.jsonl:1",
        "x/a.jsonl:2",
    ]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_damaged_file_is_counted_as_not_read(name):
    _, reading = units(name, FILES[name][: len(FILES[name]) // 2])
    assert sum(reading.not_read.values()) == 1


def test_a_line_that_is_no_json_is_still_text():
    assert units("a.jsonl", b'{"a": "b"}\nnot json\n')[0] == ["b", "not json"]


def test_a_small_file_that_unpacks_to_much_is_skipped():
    rows, reading = units("bomb.txt.gz", gzip.compress(b"a" * 10_000_000), ReadLimits(file_bytes=1_000_000))
    assert rows == [] and sum(reading.not_read.values()) == 1


def test_deeply_nested_json_does_no_harm():
    rows, _ = units("deep.json", b"[" * 100_000 + b'"x"' + b"]" * 100_000)
    assert len(rows) == 1


def test_a_long_text_is_cut_with_an_overlap():
    text = "".join(f"{i:07d} " for i in range(300_000))
    blocks, _ = units("long.txt", text.encode())
    assert len(blocks) == 3 and blocks[0][-OVERLAP_CHARS:] == blocks[1][:OVERLAP_CHARS]


def test_names_that_are_data_are_strings_too():
    assert joined({"answer": "x", "what is 3 + 4?": 7, "inner": [{"prompt": "y"}]}) == "x\nwhat is 3 + 4?\n7\ny"


def test_links_and_special_files_are_not_opened(tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("not the agent's")
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "own.txt").write_text("its own")
    (folder / "link.txt").symlink_to(outside)
    (folder / "away").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    (folder / "model.safetensors").write_bytes(b"x")
    reading = TextReading()
    assert [unit.text for unit in read_units(folder, ReadLimits(), reading)] == ["its own"]
    assert dict(reading.not_read) == {"no regular file": 2, "not text": 1}
    assert "not read" in reading.summary()


def test_limits_on_files_and_bytes_are_reported(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name * 10)
    for limits in (ReadLimits(files=1), ReadLimits(total_bytes=15), ReadLimits(file_bytes=5)):
        reading = TextReading()
        assert len(list(read_units(tmp_path, limits, reading))) < 3 and reading.not_read


def test_raw_bytes_are_given_unparsed(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no table")
    assert list(raw_files(tmp_path, ReadLimits(), TextReading())) == [("a.parquet", b"no table")]


def test_a_folder_that_is_too_deep_is_reported(tmp_path):
    deep = tmp_path.joinpath(*(["d"] * (MAX_DEPTH + 1)))
    deep.mkdir(parents=True)
    (deep / "hidden.txt").write_text("out of sight")
    reading = TextReading()
    assert list(read_units(tmp_path, ReadLimits(), reading)) == []
    assert dict(reading.not_read) == {"folder too deep": 1} and reading.n_unsearched == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens everything")
def test_files_and_folders_that_are_closed_are_reported(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "shut.txt").touch(mode=0o000)
    reading = TextReading()
    assert list(read_units(tmp_path, ReadLimits(), reading)) == []
    assert dict(reading.not_read) == {"folder cannot be opened": 1, "cannot be opened": 1}
