import hashlib
import json
from dataclasses import replace

import msgspec
import pytest
import zstandard

from agent2.cards import folder
from agent2.cards.folder import load_card
from agent2.cards.frames import lines_with_id, read_sums
from agent2.cards.reader import find_rollouts, iter_rollouts, read_summary, read_totals, validate_card
from agent2.cards.writer import FRAME_ROLLOUTS, CardWriter
from agent2.errors import CardError, Fault
from card_builders import make_header, make_record

N = FRAME_ROLLOUTS + 50


@pytest.fixture
def card(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for i in range(N):
            writer.append(make_record(f"{i:05d}", None if i == 7 else float(i % 3 == 0)))
        writer.close()
    return tmp_path / "card"


@pytest.fixture
def open_card(tmp_path):
    with CardWriter(tmp_path / "open", make_header()) as writer:
        for i in range(20):
            writer.append(make_record(f"{i:05d}", float(i % 3 == 0)))
    return tmp_path / "open"


def unpacked(card):
    stream = zstandard.ZstdDecompressor().stream_reader(
        (card / "rollouts.jsonl.zst").open("rb"), read_across_frames=True
    )
    return stream.read().splitlines(keepends=True)


def pack(card, lines, *, with_digests):
    """Compress changed lines again into the same frames, as someone with zstd would."""
    frames, data, offset = [], b"", 0
    for start in range(0, len(lines), FRAME_ROLLOUTS):
        piece = lines[start : start + FRAME_ROLLOUTS]
        packed = zstandard.ZstdCompressor().compress(b"".join(piece))
        frames.append((offset, len(packed), len(piece), hashlib.sha256(packed).hexdigest()))
        data, offset = data + packed, offset + len(packed)
    (card / "rollouts.jsonl.zst").write_bytes(data)
    content = json.loads((card / "card.json").read_text())
    for stored, (offset, n_bytes, n_rollouts, sha256) in zip(content["frames"], frames, strict=True):
        stored |= {"offset": offset, "n_bytes": n_bytes, "n_rollouts": n_rollouts}
        if with_digests:
            stored["sha256"] = sha256
    (card / "card.json").write_text(json.dumps(content))


@pytest.mark.parametrize("with_digests", [False, True])
def test_a_byte_changed_in_one_line_and_packed_again_names_the_line(card, with_digests):
    lines = unpacked(card)
    lines[530] = lines[530].replace(b"an answer", b"an Answer", 1)
    pack(card, lines, with_digests=with_digests)
    problems = validate_card(card)
    assert len(problems) == 1
    assert "line 531" in problems[0] if with_digests else "changed: line 531)" in problems[0]


def test_lines_packed_otherwise_are_said_to_be_as_written(card):
    data = zstandard.ZstdCompressor(level=19).compress(b"".join(unpacked(card)[:FRAME_ROLLOUTS]))
    content = json.loads((card / "card.json").read_text())
    rest = (card / "rollouts.jsonl.zst").read_bytes()[content["frames"][0]["n_bytes"] :]
    (card / "rollouts.jsonl.zst").write_bytes(data + rest)
    content["frames"][0]["n_bytes"] = content["frames"][1]["offset"] = len(data)
    (card / "card.json").write_text(json.dumps(content))
    (problem,) = validate_card(card)
    assert "lines 1 to 512 are as they were written" in problem


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_byte_changed_in_the_compressed_file_names_frame_and_lines(card, share):
    frame = load_card(card).frames[0]
    file = card / "rollouts.jsonl.zst"
    data = bytearray(file.read_bytes())
    data[int(frame.n_bytes * share)] ^= 1
    file.write_bytes(data)
    (problem,) = validate_card(card)
    assert "frame 0 (" in problem
    assert "changed: line " in problem


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


@pytest.mark.parametrize("name", ["items.json", "drops.jsonl", "lines.idx"])
def test_a_changed_or_missing_file_beside_the_card_is_reported(card, name):
    data = (card / name).read_bytes()
    (card / name).write_bytes(data[:-2] + b"!\n")
    assert any(f"{name}: does not match its digest" in problem for problem in validate_card(card))
    (card / name).unlink()
    assert any(f"{name}: cannot be read" in problem for problem in validate_card(card))


def test_item_scores_rewritten_with_their_digest_are_found_by_the_rollouts(card):
    file = card / "items.json"
    scores = json.loads(file.read_text()) | {"00001": 1.0}
    data = json.dumps(scores).encode()
    file.write_bytes(data)
    content = json.loads((card / "card.json").read_text())
    content["parts"]["items.json"] = hashlib.sha256(data).hexdigest()
    (card / "card.json").write_text(json.dumps(content))
    assert [p for p in validate_card(card) if "summary.item_scores is not what the rollouts give" in p]


def test_the_card_itself_stays_small_and_the_lists_are_joined_by_the_reader(card):
    assert (card / "card.json").stat().st_size < 4000
    totals, summary = read_totals(card), read_summary(card)
    assert (totals.value, totals.item_scores, totals.drops) == (summary.value, {}, [])
    assert len(summary.item_scores) == N
    assert summary.items_missing == ["00007"]
    assert [(drop.item_id, drop.fault) for drop in summary.drops] == [("00007", Fault.JUDGE)]
    assert (card / "drops.jsonl").read_bytes().count(b"\n") == 1


def as_first_version(card):
    """The card as format 1 had it: the whole summary in card.json, no files beside it, fewer fields in the rule."""
    content = json.loads((card / "card.json").read_text())
    del content["parts"]
    content["format"] = 1
    content["summary"] = msgspec.to_builtins(read_summary(card))
    for name in ("time_cap", "empty", "truncated", "environment_fault"):
        del content["header"]["reporting"][name]
    content["header_digest"] = hashlib.sha256(msgspec.json.encode(content["header"])).hexdigest()
    (card / "card.json").write_text(json.dumps(content))
    for name in ("items.json", "drops.jsonl", "lines.idx"):
        (card / name).unlink()


def test_a_card_of_the_first_format_is_read_checked_and_searched(card):
    whole, records = read_summary(card), list(iter_rollouts(card))
    as_first_version(card)
    assert read_summary(card) == whole
    assert validate_card(card) == []
    assert find_rollouts(card, "00123") == [(123, records[123])]


def test_one_rollout_is_found_by_id_and_reads_only_its_frame(card):
    data = bytearray((card / "rollouts.jsonl.zst").read_bytes())
    data[load_card(card).frames[0].n_bytes // 2] ^= 1
    (card / "rollouts.jsonl.zst").write_bytes(data)
    ((line, record),) = find_rollouts(card, f"{N - 1:05d}")
    assert (line, record.rollout.item_id) == (N - 1, f"{N - 1:05d}")
    assert find_rollouts(card, "nobody") == []


def test_a_damaged_index_is_said_and_never_means_that_there_is_no_such_item(card):
    (card / "lines.idx").write_bytes(bytes(8 * N))
    with pytest.raises(CardError, match=r"lines\.idx: does not match its digest"):
        find_rollouts(card, "00003")


def test_attempts_of_an_item_come_in_order_also_from_an_open_card(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for item, attempt in (("b", 1), ("a", 0), ("b", 0)):
            writer.append(make_record(item, 1.0, attempt))
    found = find_rollouts(tmp_path / "card", "b")
    assert [(line, record.rollout.attempt) for line, record in found] == [(2, 0), (0, 1)]
    assert [line for line, _ in find_rollouts(tmp_path / "card", "b", attempt=1)] == [0]


def test_ids_with_equal_checksums_are_not_confused(card, monkeypatch):
    wanted = read_sums(card)[3, 1]
    sums = read_sums(card).copy()
    sums[10, 1] = wanted
    monkeypatch.setattr("agent2.cards.reader.sums_in", lambda data, file: sums)
    assert lines_with_id(sums, "00003") == [3, 10]
    assert [line for line, _ in find_rollouts(card, "00003")] == [3]


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
