import csv
import io
import json

import pytest

from agent2.files import numbered_lines

ODD = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"
"""`str.splitlines` ends a line at each of these; JSON and CSV do not."""


@pytest.mark.parametrize("encode", [str, str.encode])
def test_only_a_line_feed_ends_a_line(encode):
    text = f"one{ODD}\r\n\n  \ntwo"
    assert list(numbered_lines(encode(text))) == [(1, encode(f"one{ODD}\r")), (4, encode("two"))]


def test_a_carriage_return_between_json_tokens_is_white_space():
    assert [json.loads(line) for _, line in numbered_lines(b'{"a":\r1}\n{"a": 2}\r\n')] == [{"a": 1}, {"a": 2}]


def test_rows_that_json_and_csv_writers_wrote_come_back():
    rows = [{"text": f"{mark}x"} for mark in ODD]
    written = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert [json.loads(line) for _, line in numbered_lines(written)] == rows
    table = io.StringIO(newline="")
    csv.writer(table).writerows([[row["text"]] for row in rows])
    assert len(list(numbered_lines(table.getvalue()))) == len(rows)
