import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent2.cards import writer as writer_module
from agent2.cards.card import CountAs
from agent2.cards.folder import file_digest, load_card, store_card
from agent2.cards.query import table_of
from agent2.cards.reader import iter_rollouts, read_summary, validate_card
from agent2.cards.regrade import regrade
from agent2.cards.tables import COLUMNS
from agent2.cards.writer import CardWriter
from agent2.errors import CardError, Fault
from agent2.records import RolloutStatus
from card_builders import make_header, make_record, write_old_card
from contract_card_builders import make_lost, make_scored, write_card

N = 250
TESTS = str(Path(__file__).parent.parent)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(writer_module, "FRAME_ROLLOUTS", 100)
    return tmp_path / "home"


@pytest.fixture
def card(tmp_path):
    return write_card(tmp_path / "card", [make_record(f"{i:05d}", float(i % 2)) for i in range(N)])


def test_rows_say_what_the_records_say(tmp_path):
    scored = make_scored("a", 0.5, {"parsed": 1.0, "unknown": None}, ["wrong_format"], tokens=9)
    capped = make_record("b", 0.0, status=RolloutStatus.TURN_CAP)
    rows = pq.read_table(table_of(write_card(tmp_path / "card", [scored, capped, make_lost("c")]))).to_pylist()
    assert (rows[0]["value"], rows[0]["counted"], rows[0]["completion_tokens"]) == (0.5, 0.5, 9)
    assert (dict(rows[0]["views"]), rows[0]["labels"]) == ({"parsed": 1.0, "unknown": None}, ["wrong_format"])
    assert (rows[1]["kinds"], rows[1]["status"], rows[1]["stop_reason"]) == (["turn_cap"], "turn_cap", "end")
    assert (rows[2]["value"], rows[2]["counted"], rows[2]["fault"]) == (None, None, Fault.INFRASTRUCTURE.value)


def test_the_order_in_which_rollouts_finished_is_kept(tmp_path):
    table = pq.read_table(table_of(write_card(tmp_path / "card", [make_record(item) for item in "cab"])))
    assert table.select(["item_id", "finished"]).to_pydict() == {"item_id": ["a", "b", "c"], "finished": [1, 2, 0]}


def test_pandas_and_duckdb_read_a_closed_card_without_us(card):
    file = card / "rollouts.parquet"
    frame = pd.read_parquet(file)
    assert (len(frame), frame["counted"].mean(), frame["item_id"].is_monotonic_increasing) == (N, 0.5, True)
    sql = f"select record->>'$.rollout.turns[0].action' from '{file}' where item_id = '00007'"
    assert duckdb.sql(sql).fetchall() == [("an answer",)]
    prompts = [record.rollout.prompt[0].content for record in iter_rollouts(card)]
    assert [json.loads(text)["rollout"]["prompt"][0]["content"] for text in frame["record"]] == prompts


def test_closing_loads_pyarrow_alone_and_reading_not_even_that(tmp_path):
    program = """
import sys
from pathlib import Path
from agent2.cards.reader import find_rollouts, iter_rollouts, read_page, read_summary
card = Path(sys.argv[1])
if sys.argv[2] == "close":
    from card_builders import make_header, make_record
    from agent2.cards.writer import CardWriter
    with CardWriter(card, make_header()) as writer:
        writer.append(make_record("a"))
        writer.close()
else:
    print(len(list(iter_rollouts(card))), len(find_rollouts(card, "a")), len(read_page(card, 0, 9)))
    print(read_summary(card).score.value)
print(sorted({"pandas", "pyarrow", "duckdb", "scipy"} & sys.modules.keys()))
"""
    messages = []
    for step in ("close", "read"):
        command = [sys.executable, "-c", program, str(tmp_path / "card"), step]
        ended = subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": TESTS}
        )
        messages += ended.stdout.splitlines()
    assert messages == ["['pyarrow']", "1 1 1", "1.0", "[]"]


def test_a_card_of_an_older_format_has_its_table_made_once_and_kept_outside(tmp_path, home):
    old = write_old_card(tmp_path / "old", [make_record("b"), make_record("a")])
    file = table_of(old)
    assert file.parent == home / "facts"
    made_at = file.stat().st_mtime_ns
    assert table_of(old).stat().st_mtime_ns == made_at
    assert [path.name for path in (home / "facts").iterdir()] == [file.name]
    assert pq.read_table(file)["item_id"].to_pylist() == ["b", "a"]
    assert not (old / "rollouts.parquet").exists()


def test_a_table_that_was_changed_is_not_queried(card):
    data = bytearray((card / "rollouts.parquet").read_bytes())
    data[100] ^= 1
    (card / "rollouts.parquet").write_bytes(data)
    with pytest.raises(CardError, match=r"rollouts\.parquet: does not match its digest"):
        table_of(card)


def rewritten(card, change, schema=COLUMNS):
    """The table after a change to its rows, with its digest and places in `card.json`: what a forger would leave."""
    file = card / "rollouts.parquet"
    rows = pq.read_table(file).to_pylist()
    change(rows)
    stored = load_card(card)
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False, data_page_size=1 << 30) as out:
        start = 0
        for frame in stored.frames:
            out.write_table(pa.Table.from_pylist(rows[start : start + frame.n_rollouts], schema=schema))
            start += frame.n_rollouts
    content = json.loads((card / "card.json").read_text())
    metadata = pq.read_metadata(file)
    data = file.read_bytes()
    for number, frame in enumerate(content["frames"]):
        chunk = metadata.row_group(number).column(metadata.num_columns - 1)
        place = data.index(b"\x28\xb5\x2f\xfd", chunk.data_page_offset)
        n_bytes = chunk.total_compressed_size - (place - chunk.data_page_offset)
        sha256 = hashlib.sha256(data[place : place + n_bytes]).hexdigest()
        frame |= {"offset": place, "n_bytes": n_bytes, "sha256": sha256}
    content["parts"]["rollouts.parquet"] = file_digest(file)
    (card / "card.json").write_text(json.dumps(content))


def test_a_table_written_otherwise_holds_the_same_records_and_is_sound(card):
    before = list(iter_rollouts(card))
    rewritten(card, lambda rows: None)
    assert validate_card(card) == []
    assert list(iter_rollouts(card)) == before


def test_a_row_rewritten_with_its_digest_is_found_by_its_record(card):
    rewritten(card, lambda rows: rows[170].update(value=0.75))
    assert [
        problem for problem in validate_card(card) if "the row of rollout 171 is not what its record gives" in problem
    ]


def test_a_record_rewritten_with_the_digest_of_the_file_is_found_by_the_digest_of_the_content(card):
    rewritten(card, lambda rows: rows[170].update(record=rows[170]["record"].replace("an answer", "an Answer")))
    (problem,) = validate_card(card)
    assert "frame 1 (" in problem and "does not match the digest of its content" in problem


def test_columns_are_counted_as_the_records_are(tmp_path, monkeypatch):
    records = [make_record(f"{i:03d}", float(i % 2), attempt) for i in range(120) for attempt in (0, 1)]
    records += [make_record(f"cap{i}", 1.0, status=RolloutStatus.TURN_CAP) for i in range(3)]
    records += [
        make_lost("lost"),
        make_lost("crash", Fault.ENVIRONMENT),
        make_record("judge", None),
        make_record("x", 0.3),
    ]
    card = write_card(tmp_path / "card", records)
    rule = replace(load_card(card).header.reporting, turn_cap=CountAs.ZERO, environment_fault=CountAs.ZERO)
    by_records = regrade(card, rule, max_changes=None), read_summary(card)
    monkeypatch.setattr("agent2.cards.reader.COLUMNS_FROM", 1)
    by_columns = regrade(card, rule, max_changes=None), read_summary(card)
    assert by_columns == by_records
    assert by_columns[0].differs_from_stored == [] and by_columns[0].n_changed == {
        "environment_fault": 1,
        "turn_cap": 3,
    }
    data = bytearray((card / "rollouts.parquet").read_bytes())
    data[50] ^= 1
    (card / "rollouts.parquet").write_bytes(data)
    with pytest.raises(CardError, match="does not match its digest"):
        regrade(card)


def hostile(card, data):
    (card / "rollouts.parquet").write_bytes(data)
    parts = {"rollouts.parquet": file_digest(card / "rollouts.parquet")}
    store_card(card, replace(load_card(card), parts=parts))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(500) + b"PAR1", b"{}" * 9000])
def test_a_file_that_is_no_table_is_one_clear_error(card, data):
    hostile(card, data)
    problems = validate_card(card)
    assert problems and all(str(card / "rollouts.parquet") in problem and "\n" not in problem for problem in problems)
    with pytest.raises(CardError, match="frame 0"):
        list(iter_rollouts(card))


def test_a_table_of_other_columns_is_one_clear_error(card):
    schema = COLUMNS.set(COLUMNS.get_field_index("value"), pa.field("value", pa.string()))
    rewritten(card, lambda rows: [row.update(value="high") for row in rows], schema)
    assert any("has other columns than this version writes" in problem for problem in validate_card(card))


def test_an_unfinished_card_has_no_table(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as card:
        card.append(make_record("a"))
    with pytest.raises(CardError, match="not finished"):
        table_of(tmp_path / "card")


def test_a_table_that_cannot_be_written_leaves_the_card_open(tmp_path):
    (tmp_path / "card" / "rollouts.parquet.tmp").mkdir(parents=True)
    with CardWriter(tmp_path / "card", make_header()) as card:
        card.append(make_record("a"))
        with pytest.raises(CardError, match="could not be written"):
            card.close()
        (tmp_path / "card" / "rollouts.parquet.tmp").rmdir()
        assert card.close().n_rollouts == 1
    assert validate_card(tmp_path / "card") == []
