import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from agent2.cards import writer as writer_module
from agent2.cards.aggregate import summarize
from agent2.cards.folder import load_card
from agent2.cards.reader import iter_rollouts, read_header, read_summary, validate_card
from agent2.cards.writer import FRAME_BYTES, FRAME_ROLLOUTS, CardWriter
from agent2.errors import CardError
from agent2.records import SamplingSettings, ScoredRollout
from card_builders import make_header, make_record

TESTS = Path(__file__).parent.parent


def write(path, records, header=None):
    with CardWriter(path, header or make_header()) as writer:
        for record in records:
            writer.append(record)
        return writer.close()


def test_a_closed_card_gives_back_what_was_written(tmp_path):
    records = [make_record(f"{i:05d}", float(i % 2), text=f"é {i} \r\n \u2028") for i in range(FRAME_ROLLOUTS + 3)]
    header = make_header()
    summary = write(tmp_path / "card", records, header)
    assert list(iter_rollouts(tmp_path / "card")) == records
    assert summary == summarize(records, header.reporting) == read_summary(tmp_path / "card")
    assert read_header(tmp_path / "card") == header
    assert [frame.n_rollouts for frame in load_card(tmp_path / "card").frames] == [FRAME_ROLLOUTS, 3]
    assert sorted(p.name for p in (tmp_path / "card").iterdir()) == ["card.json", "rollouts.parquet"]
    assert validate_card(tmp_path / "card") == []


def test_a_closed_card_is_sorted_by_item_and_attempt_whatever_finished_first(tmp_path):
    records = [make_record(item, attempt=attempt) for item in ("é", "b", "a") for attempt in (1, 0)]
    write(tmp_path / "one", records)
    write(tmp_path / "other", records[::-1])
    attempts = [(record.rollout.item_id, record.rollout.attempt) for record in iter_rollouts(tmp_path / "one")]
    assert attempts == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("é", 0), ("é", 1)]
    card, other_card = load_card(tmp_path / "one"), load_card(tmp_path / "other")
    assert [frame.content for frame in card.frames] == [frame.content for frame in other_card.frames]


def test_frames_are_cut_by_bytes_too(tmp_path):
    write(tmp_path / "card", [make_record(str(i), text="x" * (FRAME_BYTES // 4)) for i in range(5)])
    assert [frame.n_rollouts for frame in load_card(tmp_path / "card").frames] == [1] * 5  # text and answer: half each
    assert validate_card(tmp_path / "card") == []


def test_a_rollout_larger_than_a_frame_may_be_is_refused_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "MOST_BYTES", 10_000)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        with pytest.raises(CardError, match=r"item 'a' attempt 0 has .* bytes, a rollout may have 10000"):
            writer.append(make_record("a", text="x" * 10_000))
        assert writer.close().n_rollouts == 0


def test_a_record_is_in_the_file_when_append_returns(tmp_path):
    writer = CardWriter(tmp_path / "card", make_header())
    writer.append(make_record("a"))
    assert (tmp_path / "card" / "rollouts.jsonl").read_bytes().count(b"\n") == 1
    writer.release()


def test_kill_minus_9_loses_no_acknowledged_record(tmp_path):
    program = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from card_builders import make_header, make_record
from agent2.cards.writer import CardWriter
writer = CardWriter(Path(sys.argv[1]), make_header())
for i in range(10**9):
    writer.append(make_record(str(i)))
    print(i, flush=True)
"""
    card = tmp_path / "card"
    process = subprocess.Popen([sys.executable, "-c", program, card, TESTS], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged >= 200:
            process.send_signal(signal.SIGKILL)
            break
    acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
    process.wait()
    writer, done = CardWriter.resume(card, make_header())
    assert {(str(i), 0) for i in range(acknowledged + 1)} <= done
    writer.append(make_record("after"))
    assert writer.close().n_rollouts == len(done) + 1
    assert validate_card(card) == []


def test_a_torn_tail_is_cut_on_resume_and_said_so(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(make_record("a"))
    rollouts = tmp_path / "card" / "rollouts.jsonl"
    with rollouts.open("ab") as stream:
        stream.write(b'{"rollout": {"item_id": "b"')
    writer, done = CardWriter.resume(tmp_path / "card", make_header())
    assert done == {("a", 0)}
    writer.append(make_record("b"))
    assert writer.close().n_rollouts == 2
    assert "torn last line of 27 bytes after 1 rollouts" in load_card(tmp_path / "card").notes[0]
    assert validate_card(tmp_path / "card") == []


def test_a_damaged_line_in_the_middle_is_named_and_not_cut(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for name in "abc":
            writer.append(make_record(name))
    rollouts = tmp_path / "card" / "rollouts.jsonl"
    lines = rollouts.read_bytes().splitlines(keepends=True)
    rollouts.write_bytes(lines[0] + b"garbage\n" + lines[2])
    with pytest.raises(CardError, match=r"rollouts\.jsonl:2: is not a rollout"):
        CardWriter.resume(tmp_path / "card", make_header())
    assert rollouts.read_bytes().count(b"\n") == 3
    assert any("rollouts.jsonl:2" in problem for problem in validate_card(tmp_path / "card"))


def test_an_interrupted_card_has_the_numbers_of_an_uninterrupted_one(tmp_path):
    records = [make_record(str(i), (i % 5) / 4) for i in range(30)]
    whole = write(tmp_path / "whole", records)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        for record in records[:11]:
            writer.append(record)
    writer, done = CardWriter.resume(tmp_path / "card", make_header(created_at=99.0))
    for record in reversed(records):
        if (record.rollout.item_id, 0) not in done:
            writer.append(record)
    assert writer.close() == whole


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"checkpoint_digest": "d" * 64}, "checkpoint_digest"),
        ({"seed": 1}, "seed"),
        ({"protocol": replace(make_header().protocol, sampling=SamplingSettings(temperature=1.0))}, "protocol"),
    ],
)
def test_a_card_of_another_evaluation_is_refused(tmp_path, changes, named):
    CardWriter(tmp_path / "card", make_header()).release()
    with pytest.raises(CardError, match=f"another evaluation \\({named} differ"):
        CardWriter.resume(tmp_path / "card", make_header(**changes))


def test_resuming_under_other_libraries_is_noted(tmp_path):
    CardWriter(tmp_path / "card", make_header()).release()
    writer, _ = CardWriter.resume(tmp_path / "card", make_header(lock={"numpy": "3"}))
    writer.release()
    assert load_card(tmp_path / "card").notes == ['resumed under another lock: {"numpy":"3"}']


def test_a_card_is_never_overwritten(tmp_path):
    CardWriter(tmp_path / "card", make_header()).release()
    with pytest.raises(CardError, match="contains a card already"):
        CardWriter(tmp_path / "card", make_header())


def test_rollouts_without_a_card_are_never_overwritten(tmp_path):
    (tmp_path / "rollouts.jsonl").write_text("something\n")
    with pytest.raises(CardError, match=r"no card\.json"):
        CardWriter(tmp_path, make_header())


def test_two_writers_of_one_card_are_refused(tmp_path):
    with (
        CardWriter(tmp_path / "card", make_header()),
        pytest.raises(CardError, match="another process writes this card"),
    ):
        CardWriter.resume(tmp_path / "card", make_header())


def test_a_closed_card_cannot_be_resumed(tmp_path):
    write(tmp_path / "card", [make_record()])
    with pytest.raises(CardError, match="is closed"):
        CardWriter.resume(tmp_path / "card", make_header())


def test_an_attempt_is_on_the_card_once(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(make_record("a"))
        with pytest.raises(CardError, match="item 'a' attempt 0 already exists"):
            writer.append(make_record("a", 0.0))
        assert writer.close().score.value == 1.0


def test_closing_before_the_plan_is_played_is_refused_and_loses_nothing(tmp_path):
    header = make_header(planned_rollouts=2)
    with CardWriter(tmp_path / "card", header) as writer:
        writer.append(make_record("a"))
        with pytest.raises(CardError, match="1 of 2 planned"):
            writer.close()
    writer, done = CardWriter.resume(tmp_path / "card", header)
    writer.append(make_record("b"))
    assert done == {("a", 0)}
    assert writer.close().n_rollouts == 2


def test_half_a_character_of_a_world_is_replaced_and_costs_no_evaluation(tmp_path):
    record = make_record("a")
    odd = ScoredRollout(structs.replace(record.rollout, state={"answer": "a\ud800"}), record.score)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(odd)
        writer.close()
    (stored,) = iter_rollouts(tmp_path / "card")
    assert stored.rollout.state == {"answer": "a\ufffd"}
    assert validate_card(tmp_path / "card") == []


def test_a_value_that_json_cannot_hold_is_refused_and_named(tmp_path):
    record = make_record("a")
    broken = ScoredRollout(structs.replace(record.rollout, state={"answer": object()}), record.score)
    with CardWriter(tmp_path / "card", make_header()) as writer:
        with pytest.raises(CardError, match="item 'a' attempt 0 cannot be written as JSON"):
            writer.append(broken)
        writer.append(record)
        assert writer.close().n_rollouts == 1


def test_leaving_the_block_by_an_error_keeps_the_card_resumable(tmp_path):
    with (
        pytest.raises(RuntimeError, match="the test stops here"),
        CardWriter(tmp_path / "card", make_header()) as writer,
    ):
        writer.append(make_record("a"))
        raise RuntimeError("the test stops here")
    writer, done = CardWriter.resume(tmp_path / "card", make_header())
    writer.release()
    assert done == {("a", 0)}


def test_a_kill_while_closing_leaves_a_card_that_is_open_or_closed_and_never_half(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*args):
        raise Killed

    card = tmp_path / "card"
    writer = CardWriter(card, make_header())
    writer.append(make_record("a"))
    with monkeypatch.context() as patch:
        patch.setattr("agent2.cards.folder.store_card", die)
        with pytest.raises(Killed):  # compressed file in place, card.json not replaced yet
            writer.close()
    assert validate_card(card) == []
    assert len(list(iter_rollouts(card))) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", die)
        with pytest.raises(Killed):  # card.json replaced, open file not removed yet
            writer.close()
    assert validate_card(card) == []
    assert read_summary(card).n_rollouts == 1


KILLED_WHILE_CLOSING = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import agent2.cards.tables
from card_builders import make_header, make_record
from agent2.cards.writer import CardWriter
events = 0

def count(event, arguments):
    global events
    if event in ("open", "os.rename", "os.remove", "os.truncate"):
        events += 1
        if events == last:
            os.kill(os.getpid(), signal.SIGKILL)

for last in range(1, 100):
    card = Path(sys.argv[1]) / f"{last:02d}"
    writer = CardWriter(card, make_header())
    for i in range(20):
        writer.append(make_record(str(i), float(i % 2)))
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os.close(writer._descriptor)
        if not os.WIFSIGNALED(status):
            break
    else:
        sys.addaudithook(count)
        writer.close()
        os._exit(0)
print(last)
"""


def test_kill_minus_9_at_any_moment_of_closing_loses_nothing(tmp_path):
    command = [sys.executable, "-c", KILLED_WHILE_CLOSING, str(tmp_path), str(TESTS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    cards = sorted(tmp_path.iterdir())
    assert len(cards) == int(ended.stdout) > 4  # the last one was not killed: every event of closing had its turn
    states = [load_card(card).state for card in cards]
    assert states == sorted(states, reverse=True) and set(states) == {"open", "closed"}
    for card, state in zip(cards, states, strict=True):
        if state == "open":
            writer, done = CardWriter.resume(card, make_header())
            assert len(done) == 20
            writer.close()
        assert validate_card(card) == []
        assert read_summary(card) == read_summary(cards[-1])


FULL_DISK_PROGRAM = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from card_builders import make_header, make_record
from agent2.cards.writer import CardWriter
from agent2.errors import CardError
limit = int(sys.argv[3])
writer = CardWriter(Path(sys.argv[1]), make_header())
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    for i in range(100_000):
        writer.append(make_record(str(i), text="x" * 50))
except CardError as error:
    print(i, writer.n_rollouts, error, sep="|")
else:
    print("the disk never filled up")
"""


def run_until_full(card, prefix=(), limit=0):
    command = [*prefix, sys.executable, "-c", FULL_DISK_PROGRAM, str(card), str(TESTS), str(limit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_full_disk_is_said_and_leaves_the_last_whole_line(tmp_path):
    # A limit on the size of files makes the kernel take half a line and refuse the rest, as a full disk does.
    card = tmp_path / "card"
    result = run_until_full(card, limit=10_000)
    failed_at, counted, message = result.stdout.strip().split("|")
    assert failed_at == counted  # the record that did not fit is not counted
    assert "rollouts.jsonl" in message
    assert "could not be written" in message
    data = (card / "rollouts.jsonl").read_bytes()
    assert data.endswith(b"\n")
    assert data.count(b"\n") == int(counted)
    writer, done = CardWriter.resume(card, make_header())
    assert len(done) == int(counted)
    writer.close()
    assert not load_card(card).notes
    assert validate_card(card) == []


def test_a_really_full_disk_is_said_too(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=256k none {disk} && exec "$@"'
    prefix = ["unshare", "--mount", "--map-root-user", "--user", "sh", "-c", script, "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host lets nobody mount a small disk; the test above covers the same code")
    result = run_until_full(disk / "card", prefix)
    failed_at, counted, message = result.stdout.strip().split("|")
    assert failed_at == counted
    assert "No space left on device" in message


def test_a_full_disk_while_closing_keeps_the_card_open(tmp_path, monkeypatch):
    card = tmp_path / "card"
    writer = CardWriter(card, make_header())
    for i in range(50):
        writer.append(make_record(str(i), text=os.urandom(200).hex()))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(CardError, match=r"rollouts\.parquet: .* could not be written"):
            writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert load_card(card).state == "open"
    assert writer.close().n_rollouts == 50
    assert validate_card(card) == []


def test_records_are_synced_at_most_a_second_after_the_first_unsynced_one(tmp_path, monkeypatch):
    synced = []
    now = [100.0]
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    writer = CardWriter(tmp_path / "card", make_header())
    synced.clear()
    for i, moment in enumerate([100.0, 100.5, 100.9, 101.1, 101.2]):
        now[0] = moment
        writer.append(make_record(str(i)))
    assert len(synced) == 1  # at 101.1
    writer.release()
    assert len(synced) > 1


def test_a_card_that_could_not_be_begun_can_be_begun_again(tmp_path):
    card = tmp_path / "card"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # the header cannot be written
    try:
        with pytest.raises(CardError, match="could not be written"):
            CardWriter(card, make_header())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(card.glob(".*")) == []
    CardWriter(card, make_header()).release()
    assert validate_card(card) == []


def test_a_state_nested_beyond_all_bounds_is_refused_and_named(tmp_path):
    state: dict[str, object] = {}
    for _ in range(100_000):
        state = {"inner": state}
    record = make_record("deep")
    deep = structs.replace(record, rollout=structs.replace(record.rollout, state=state))
    with CardWriter(tmp_path / "card", make_header()) as writer:
        with pytest.raises(CardError, match="'deep' attempt 0 cannot be written as JSON"):
            writer.append(deep)
        assert writer.close().n_rollouts == 0
