import json

import pytest

from agent2.cards import reader
from agent2.cards import writer as writer_module
from agent2.cards.folder import is_finished, load_card
from agent2.cards.reader import iter_rollouts, read_page, read_summary, validate_card
from agent2.cards.writer import CardWriter
from agent2.errors import CardError
from card_builders import make_header, make_record

FRAME_ROLLOUTS = 100
N = 2 * FRAME_ROLLOUTS + 50


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "FRAME_ROLLOUTS", FRAME_ROLLOUTS)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for i in range(N):
            writer.append(make_record(f"{i:05d}", float(i % 3 == 0)))
        writer.close()
    return tmp_path / "card"


@pytest.fixture
def open_card(tmp_path):
    with CardWriter(tmp_path / "open", make_header()) as writer:
        for i in range(20):
            writer.append(make_record(f"{i:05d}", float(i % 3 == 0)))
    return tmp_path / "open"


def ids(records):
    return [int(record.rollout.item_id) for record in records]


def flip_byte(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("start", "n"), [(0, 5), (FRAME_ROLLOUTS - 2, 4), (FRAME_ROLLOUTS, 1), (N - 3, 10), (N, 5), (7, 0), (5, N)]
)
def test_a_page_holds_the_rollouts_asked_for(card, start, n):
    assert ids(read_page(card, start, n)) == list(range(N))[start : start + n]


def test_a_page_reads_only_its_own_frames(card, monkeypatch):
    opened = []
    frame_lines = reader.frame_lines
    monkeypatch.setattr(reader, "frame_lines", lambda *args: opened.append(args[2]) or frame_lines(*args))
    read_page(card, FRAME_ROLLOUTS + 5, 3)
    assert opened == [1]


def test_a_page_opens_though_another_frame_is_damaged(card):
    flip_byte(card / "rollouts.parquet", load_card(card).frames[0].offset + 20)
    assert ids(read_page(card, FRAME_ROLLOUTS, 2)) == [FRAME_ROLLOUTS, FRAME_ROLLOUTS + 1]


def test_pages_of_an_open_card_leave_out_the_torn_line(open_card):
    with (open_card / "rollouts.jsonl").open("ab") as stream:
        stream.write(b"{torn")
    assert ids(read_page(open_card, 18, 10)) == [18, 19]
    assert len(list(iter_rollouts(open_card))) == 20


def test_negative_pages_are_refused(card):
    with pytest.raises(ValueError, match="start=-1"):
        read_page(card, -1, 5)


def test_an_open_card_has_no_summary_yet(open_card):
    assert not is_finished(open_card)
    with pytest.raises(CardError, match="not finished"):
        read_summary(open_card)


def test_a_folder_without_a_card_is_said_so(tmp_path):
    assert not is_finished(tmp_path)
    with pytest.raises(CardError, match=r"is .* the folder of a card"):
        read_summary(tmp_path)
    assert "cannot be read" in validate_card(tmp_path)[0]


def test_good_cards_have_no_problems(card, open_card):
    assert validate_card(card) == []
    assert validate_card(open_card) == []


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_a_changed_byte_names_its_frame(card, frame):
    place = load_card(card).frames[frame]
    flip_byte(card / "rollouts.parquet", place.offset + place.n_bytes // 2)
    problems = validate_card(card)
    assert len(problems) == 1
    assert f"frame {frame} (" in problems[0]
    assert "does not match its digest" in problems[0]
    with pytest.raises(CardError, match=f"frame {frame}"):
        list(iter_rollouts(card))


def test_a_changed_line_of_an_open_card_names_its_line(open_card):
    file = open_card / "rollouts.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:4], lines[4].replace(b'"score":{', b'"score":[', 1), *lines[5:]]))
    assert [p for p in validate_card(open_card) if "rollouts.jsonl:5:" in p]


def test_a_torn_tail_is_reported(open_card):
    with (open_card / "rollouts.jsonl").open("ab") as stream:
        stream.write(b"{torn")
    assert "last line is torn (5 bytes)" in validate_card(open_card)[0]


def test_a_doubled_line_is_reported(open_card):
    file = open_card / "rollouts.jsonl"
    file.write_bytes(file.read_bytes() + file.read_bytes().splitlines(keepends=True)[0])
    assert "item '00000' attempt 0 is in the card already" in validate_card(open_card)[0]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"temperature": 0.0', '"temperature": 1.0', "protocol was changed"),
        ('"checkpoint_name": "base"', '"checkpoint_name": "best"', "header was changed"),
        ('"n_missing": 0', '"n_missing": 1', "summary.score.n_missing is not what the rollouts give"),
        ('"n_turns": ', '"n_turns": 9', "summary.n_turns is not what the rollouts give"),
        (f'"n_rollouts": {FRAME_ROLLOUTS}', f'"n_rollouts": {FRAME_ROLLOUTS + 1}', "frame 0 (101 rollouts"),
    ],
)
def test_a_changed_number_in_card_json_is_reported(card, old, new, problem):
    file = card / "card.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    assert any(problem in line for line in validate_card(card))


def test_a_raised_score_is_reported(card):
    file = card / "card.json"
    value = read_summary(card).score.value
    file.write_text(file.read_text().replace(f'"value": {value},', '"value": 0.99,'))
    assert any("summary.score.value" in problem for problem in validate_card(card))


def test_a_truncated_file_and_bytes_at_the_end_are_reported(card):
    file = card / "rollouts.parquet"
    data = file.read_bytes()
    file.write_bytes(data[:-10])
    assert validate_card(card) == [f"{file}: does not match its digest in card.json; restore it from a copy"]
    file.write_bytes(data[: load_card(card).frames[2].offset + 10])
    assert "frame 2" in validate_card(card)[0]
    file.write_bytes(data + b"more")
    assert "does not match its digest" in validate_card(card)[0]
    file.unlink()
    assert "lost its rollouts" in validate_card(card)[0]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"format": 1}'])
def test_a_damaged_card_json_is_one_clear_sentence(card, content):
    (card / "card.json").write_bytes(content)
    assert "card.json: is not a card" in validate_card(card)[0]


def test_a_card_of_a_later_format_is_refused(card):
    file = card / "card.json"
    file.write_text(file.read_text().replace('"format": 4', '"format": 5', 1))
    assert "format 5, this version reads 1, 2, 3, 4" in validate_card(card)[0]


@pytest.mark.parametrize("field", ["offset", "n_bytes"])
@pytest.mark.parametrize("value", [-1, 2**40, 2**63])
def test_an_index_that_points_outside_the_file_is_reported(card, field, value):
    file = card / "card.json"
    content = json.loads(file.read_text())
    content["frames"][1][field] = value
    file.write_text(json.dumps(content))
    assert "frame 1" in validate_card(card)[0]
    with pytest.raises(CardError, match="frame 1"):
        list(iter_rollouts(card))


def test_a_reporting_rule_changed_to_nonsense_is_reported(card):
    file = card / "card.json"
    text = file.read_text()
    assert '"confidence": 0.95' in text
    file.write_text(text.replace('"confidence": 0.95', '"confidence": -1.0', 1))
    assert any("header was changed" in problem for problem in validate_card(card))
