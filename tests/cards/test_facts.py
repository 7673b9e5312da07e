import json

import pyarrow.parquet as pq
import pytest

from agent2.cards import facts, writer
from agent2.cards.folder import facts_of, file_digest
from agent2.cards.reader import validate_card
from agent2.cards.writer import FRAME_ROLLOUTS, CardWriter
from agent2.errors import CardError, Fault
from agent2.records import RolloutStatus
from card_builders import make_header, make_record
from contract_card_builders import make_lost, make_scored

N = 2 * FRAME_ROLLOUTS + 10


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(path, records):
    with CardWriter(path, make_header()) as card:
        for record in records:
            card.append(record)
        card.close()
    return path


@pytest.fixture
def large(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "FACTS_FROM", 100)
    monkeypatch.setattr(facts, "BATCH_ROWS", 600)  # of 1034 rollouts: two batches
    return write(tmp_path / "large", [make_record(f"{i:05d}", float(i % 2)) for i in range(N)])


def test_a_small_card_has_its_table_made_once_and_kept_outside(tmp_path, home):
    card = write(tmp_path / "card", [make_record("a")])
    file = facts_of(card)
    assert file.parent == home / "facts"
    made_at = file.stat().st_mtime_ns
    assert facts_of(card).stat().st_mtime_ns == made_at
    assert sorted(p.name for p in home.joinpath("facts").iterdir()) == [file.name]
    assert not (card / "facts.parquet").exists()


def test_a_large_card_brings_its_table(large, home):
    assert facts_of(large) == large / "facts.parquet"
    rows = pq.read_table(large / "facts.parquet").to_pylist()
    assert [row["line"] for row in rows] == list(range(N))
    assert not (home / "facts").exists()
    assert validate_card(large) == []


def test_rows_say_what_the_lines_say(tmp_path):
    scored = make_scored("a", 0.5, {"parsed": 1.0, "unknown": None}, ["wrong_format"], tokens=9)
    capped = make_record("b", 0.0, status=RolloutStatus.TURN_CAP)
    rows = pq.read_table(facts_of(write(tmp_path / "card", [scored, capped, make_lost("c")]))).to_pylist()
    assert (rows[0]["value"], rows[0]["counted"], rows[0]["completion_tokens"]) == (0.5, 0.5, 9)
    assert (dict(rows[0]["views"]), rows[0]["labels"]) == ({"parsed": 1.0, "unknown": None}, ["wrong_format"])
    assert (rows[1]["kinds"], rows[1]["status"], rows[1]["stop_reason"]) == (["turn_cap"], "turn_cap", "end")
    assert (rows[2]["value"], rows[2]["counted"], rows[2]["fault"]) == (None, None, Fault.INFRASTRUCTURE.value)


def test_a_table_that_was_changed_is_refused_and_reported(large):
    data = bytearray((large / "facts.parquet").read_bytes())
    data[100] ^= 1
    (large / "facts.parquet").write_bytes(data)
    with pytest.raises(CardError, match=r"facts\.parquet: is not the table"):
        facts_of(large)
    assert any("facts.parquet: does not match its digest" in problem for problem in validate_card(large))


def test_a_row_rewritten_with_its_digest_is_found_by_the_lines(large):
    file = large / "facts.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    rows[700]["value"] = 0.75
    with pq.ParquetWriter(file, facts.COLUMNS) as out:
        for start in (0, 600):
            out.write_table(table.from_pylist(rows[start : start + 600], schema=facts.COLUMNS))
    content = json.loads((large / "card.json").read_text())
    content["parts"]["facts.parquet"] = file_digest(file)
    (large / "card.json").write_text(json.dumps(content))
    assert [problem for problem in validate_card(large) if "the row of line 701 is not what the line gives" in problem]


def test_an_unfinished_card_has_no_table(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as card:
        card.append(make_record("a"))
    with pytest.raises(CardError, match="not finished"):
        facts_of(tmp_path / "card")


def test_a_full_disk_while_the_table_is_written_leaves_the_card_open(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "FACTS_FROM", 1)
    (tmp_path / "card" / "facts.parquet.tmp").mkdir(parents=True)
    with CardWriter(tmp_path / "card", make_header()) as card:
        card.append(make_record("a"))
        with pytest.raises(CardError, match="could not be written"):
            card.close()
        (tmp_path / "card" / "facts.parquet.tmp").rmdir()
        assert card.close().n_rollouts == 1
    assert validate_card(tmp_path / "card") == []
