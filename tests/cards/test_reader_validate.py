import json
from dataclasses import replace

import pytest

from agent2.cards import folder
from agent2.cards import writer as writer_module
from agent2.cards.folder import load_card
from agent2.cards.reader import find_rollouts, iter_rollouts, read_page, read_summary, read_totals, validate_card
from agent2.cards.regrade import regrade
from agent2.cards.writer import CardWriter
from agent2.errors import CardError, Fault
from card_builders import make_header, make_record, write_old_card

FRAME = 100
N = FRAME + 50


def records():
    return [make_record(f"{i:05d}", None if i == 7 else float(i % 3 == 0)) for i in range(N)]


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "FRAME_ROLLOUTS", FRAME)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for record in records():
            writer.append(record)
        writer.close()
    return tmp_path / "card"


@pytest.fixture
def open_card(tmp_path):
    with CardWriter(tmp_path / "open", make_header()) as writer:
        for i in range(20):
            writer.append(make_record(f"{i:05d}", float(i % 3 == 0)))
    return tmp_path / "open"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_byte_changed_in_the_records_names_frame_and_rollouts(card, share):
    frame = load_card(card).frames[0]
    data = bytearray((card / "rollouts.parquet").read_bytes())
    data[frame.offset + int(frame.n_bytes * share)] ^= 1
    (card / "rollouts.parquet").write_bytes(data)
    (problem,) = validate_card(card)
    assert "frame 0 (" in problem and "(rollouts 1 to 100)" in problem
    with pytest.raises(CardError, match="frame 0"):
        list(iter_rollouts(card))


def test_every_byte_of_the_table_counts(card):
    file = card / "rollouts.parquet"
    whole = file.read_bytes()
    for place in range(0, len(whole), len(whole) // 40):
        data = bytearray(whole)
        data[place] ^= 1
        file.write_bytes(data)
        assert len(validate_card(card)) == 1, place
    file.write_bytes(whole)
    assert validate_card(card) == []


def test_a_changed_line_of_a_released_card_is_named_and_never_taken_over(open_card):
    file = open_card / "rollouts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"value":0.0', b'"value":1.0')
    file.write_bytes(b"".join(lines))
    assert validate_card(open_card) == [f"{file}:5: was changed since it was written; restore the file from a copy"]
    with pytest.raises(CardError, match=r"rollouts\.jsonl:5: was changed since"):
        CardWriter.resume(open_card, make_header())


def test_lines_gone_from_a_released_card_are_counted(open_card):
    file = open_card / "rollouts.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:18]))
    assert "2 lines at the end are gone" in validate_card(open_card)[0]


def test_damaged_checksums_of_an_open_card_are_said(open_card):
    (open_card / "lines.crc32").write_bytes(b"123")
    assert "lines.crc32: cannot be read" in validate_card(open_card)[0]


def test_the_card_itself_stays_small_and_the_lists_come_from_the_rollouts(card):
    assert (card / "card.json").stat().st_size < 4000
    totals, summary = read_totals(card), read_summary(card)
    assert (totals.score.value, totals.item_scores, totals.drops) == (summary.score.value, {}, [])
    assert len(summary.item_scores) == N
    assert summary.items_missing == ["00007"]
    assert [(drop.item_id, drop.fault) for drop in summary.drops] == [("00007", Fault.JUDGE)]


@pytest.mark.parametrize("form", [1, 2])
def test_a_card_of_an_older_format_is_read_checked_regraded_and_searched(card, tmp_path, form):
    old = write_old_card(tmp_path / "old", records()[::-1], form)
    assert validate_card(old) == []
    assert list(iter_rollouts(old)) == records()[::-1]
    assert read_page(old, 20, 3) == records()[::-1][20:23]
    assert find_rollouts(old, "00123") == [(N - 124, records()[123])]
    assert read_summary(old) == read_summary(card)
    assert regrade(old).differs_from_stored == []


@pytest.mark.parametrize("name", ["items.json", "drops.jsonl", "rollouts.jsonl.zst"])
def test_damage_to_a_card_of_an_older_format_is_reported(tmp_path, name):
    old = write_old_card(tmp_path / "old", records())
    data = (old / name).read_bytes()
    (old / name).write_bytes(data[:-2] + b"!\n")
    assert any(f"{name}:" in problem and "does not match its digest" in problem for problem in validate_card(old))
    (old / name).unlink()
    assert any(f"{name}: cannot be read" in problem for problem in validate_card(old))


def test_one_rollout_is_found_by_id_and_reads_only_its_frame(card):
    data = bytearray((card / "rollouts.parquet").read_bytes())
    data[load_card(card).frames[0].offset + 100] ^= 1
    (card / "rollouts.parquet").write_bytes(data)
    ((line, record),) = find_rollouts(card, f"{N - 1:05d}")
    assert (line, record.rollout.item_id) == (N - 1, f"{N - 1:05d}")
    assert find_rollouts(card, "nobody") == []
    with pytest.raises(CardError, match="frame 0"):  # damage never means that there is no such item
        find_rollouts(card, "00003")


def test_attempts_of_an_item_come_in_order_also_from_an_open_card_and_across_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "FRAME_ROLLOUTS", 2)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for item, attempt in (("b", 1), ("a", 0), ("b", 0), ("b", 3), ("b", 2), ("c", 0)):
            writer.append(make_record(item, 1.0, attempt))
        matches = find_rollouts(tmp_path / "card", "b")
        assert [(line, record.rollout.attempt) for line, record in matches] == [(2, 0), (0, 1), (4, 2), (3, 3)]
        writer.close()
    matches = find_rollouts(tmp_path / "card", "b")
    assert [(line, record.rollout.attempt) for line, record in matches] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert [line for line, _ in find_rollouts(tmp_path / "card", "b", attempt=1)] == [2]
    assert [[line for line, _ in find_rollouts(tmp_path / "card", item)] for item in "ac"] == [[0], [5]]


def test_frames_named_under_another_item_are_reported(card):
    content = json.loads((card / "card.json").read_text())
    content["frames"][1]["first"] = "00000"
    (card / "card.json").write_text(json.dumps(content))
    assert "rollout 101: is not in the order of items" in validate_card(card)[0]


def test_a_frame_that_would_unpack_to_more_than_memory_is_not_unpacked(card, monkeypatch):
    monkeypatch.setattr("agent2.cards.folder.MOST_BYTES", 1000)
    with pytest.raises(CardError, match=r"frame 0 .* would unpack to .* bytes, more than 1000"):
        list(iter_rollouts(card))


@pytest.mark.parametrize("name", ["/dev/zero", "../card/card.json", "sub/file"])
def test_files_elsewhere_are_never_parts_of_a_card(card, name):
    content = json.loads((card / "card.json").read_text())
    content["parts"][name] = "0" * 64
    (card / "card.json").write_text(json.dumps(content))
    assert any(f"names {name!r} as a file of the card" in problem for problem in validate_card(card))


def test_a_header_field_that_nobody_knows_is_reported(card):
    content = json.loads((card / "card.json").read_text())
    content["header"]["secret"] = 1
    (card / "card.json").write_text(json.dumps(content))
    assert any("header was changed" in problem for problem in validate_card(card))


def test_digests_do_not_depend_on_the_order_in_which_a_lock_was_written(tmp_path):
    header = make_header(lock={"b": {"d": 1, "c": 2.5}, "a": [1, {"z": None, "y": 1}]})
    with CardWriter(tmp_path / "card", header) as writer:
        writer.append(make_record("a"))
        writer.close()
    assert validate_card(tmp_path / "card") == []
    stored = load_card(tmp_path / "card")
    folder.store_card(tmp_path / "card", replace(stored, header=replace(header, lock={"a": 1})))
    assert any("header was changed" in problem for problem in validate_card(tmp_path / "card"))
