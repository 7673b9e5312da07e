import csv
import json

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from agent2.cards import export
from agent2.cards.export import export_rollouts
from agent2.cards.reader import iter_rollouts, read_header
from agent2.errors import ConfigError
from agent2.records import ScoredRollout, StopReason, Thought, Turn
from contract_card_builders import make_lost, make_scored, write_card


def several_turns(item):
    record = make_scored(item, 1.0, {"parsed": 1.0}, ["label"])
    thought = Thought("a house", "<think>", "</think>")
    turns = [
        Turn("look", "a door", StopReason.END, 5, 2, thought=thought),
        Turn("öffne", None, StopReason.LENGTH, 9, 3),
    ]
    state = {"door": {"open": True}, "answer": None}
    return ScoredRollout(structs.replace(record.rollout, turns=turns, state=state, seed=2**63 - 1), record.score)


def test_nothing_of_a_rollout_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "BATCH_ROWS", 2)
    records = [several_turns("a"), make_scored("b", 0.0), make_lost("c")]
    card = write_card(tmp_path / "card", records)
    assert export_rollouts(card, tmp_path / "new" / "out.parquet") == 3
    table = pq.read_table(tmp_path / "new" / "out.parquet")
    rows = table.to_pylist()
    for row, record in zip(rows, iter_rollouts(card), strict=True):
        plain, score = msgspec.to_builtins(record.rollout), record.score
        for name in ("item_id", "attempt", "seed", "status", "prompt", "answer", "retries", "fault"):
            assert row[name] == plain[name]
        thoughts = [turn.pop("thought", {"text": None})["text"] for turn in plain["turns"]]
        assert [turn.pop("thought") for turn in row["turns"]] == thoughts
        assert row["turns"] == plain["turns"]
        assert json.loads(row["state"]) == plain["state"]
        assert {name: row[name] for name in plain["usage"]} == plain["usage"]
        assert (row["fault_reason"], row["score"], row["score_reason"]) == (plain["reason"], score.value, score.reason)
        assert (dict(row["views"]), row["labels"]) == (dict(score.views), list(score.labels))
    assert rows[2]["score_fault"] == "infrastructure"
    header = json.loads(table.schema.metadata[b"agent2.header"])
    assert header["checkpoint_digest"] == read_header(card).checkpoint_digest
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.parquet"]


def test_an_existing_file_is_not_overwritten(tmp_path):
    card = write_card(tmp_path / "card", [make_scored("a")])
    (tmp_path / "out.parquet").write_text("mine")
    with pytest.raises(ConfigError, match="already exists"):
        export_rollouts(card, tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").read_text() == "mine"


def test_a_damaged_card_leaves_no_file(tmp_path):
    card = write_card(tmp_path / "card", [make_scored("a")])
    (card / "rollouts.parquet").write_bytes(b"nothing")
    with pytest.raises(Exception, match="frame 0"):
        export_rollouts(card, tmp_path / "out.parquet")
    assert not list(tmp_path.glob("*out.parquet*"))


def test_the_suffix_says_the_format_and_every_format_holds_the_same(tmp_path):
    records = [several_turns("a"), make_scored("b", 0.0), make_lost("c")]
    card = write_card(tmp_path / "card", records)
    for suffix in ("parquet", "jsonl", "csv"):
        assert export_rollouts(card, tmp_path / f"out.{suffix}") == 3
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines == [row | {"views": dict(row["views"])} for row in rows]
    with (tmp_path / "out.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [row["item_id"] for row in cells] == ["a", "b", "c"]
    assert [row["score"] for row in cells] == ["1.0", "0.0", ""]  # a missing score is not a zero
    assert json.loads(cells[0]["turns"]) == rows[0]["turns"]
    assert json.loads(cells[0]["views"]) == {"parsed": 1.0}


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.csv.gz"])
def test_another_suffix_is_refused_and_nothing_is_written(tmp_path, name):
    card = write_card(tmp_path / "card", [make_scored("a")])
    with pytest.raises(ConfigError, match=r"write to a \.parquet, \.jsonl or \.csv file"):
        export_rollouts(card, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["card"]


def test_an_answer_that_is_a_formula_is_none_in_a_spreadsheet(tmp_path):
    texts = ["=cmd|' /C calc'!A0", "-12", "plain"]
    records = [
        structs.replace(record, rollout=structs.replace(record.rollout, answer=text))
        for record, text in zip((make_scored("a"), make_scored("b"), make_scored("c")), texts, strict=True)
    ]
    card = write_card(tmp_path / "card", records)
    export_rollouts(card, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["answer"] for row in csv.DictReader(file)] == [f"'{texts[0]}", "-12", "plain"]
    export_rollouts(card, tmp_path / "out.jsonl")
    rows = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert [row["answer"] for row in rows] == texts
