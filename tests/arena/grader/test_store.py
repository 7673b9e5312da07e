import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from agent2.arena.evidence import SubmissionState
from agent2.arena.grader.store import Arrival, GraderStore, StoreError, read_submissions
from agent2.errors import ConfigError, Fault
from agent2.stats.estimates import Estimate


@pytest.fixture
def path(tmp_path):
    return tmp_path / "grader.db"


def arrive(store: GraderStore, **changes: object) -> int:
    number = store.next_number()
    store.add(
        Arrival(**{"number": number, "received_at": 5.0, "model_path": "m", "note": "", "revision": None} | changes)
    )
    return number


def score(value: float) -> Estimate:
    return Estimate(value, 0.0, 1.0, 10, 1, "Wilson")


def give(store: GraderStore, number: int, value: float) -> None:
    store.set_scored(number, score(value), 9.0, card="submissions/1/card", weights_digest="w", is_base_copy=False)


def test_numbers_count_from_one_and_survive_a_restart(path):
    store = GraderStore(path)
    assert [arrive(store), arrive(store)] == [1, 2]
    store.close()
    again = GraderStore(path)
    assert again.next_number() == 3
    assert [record.number for record in again.all()] == [1, 2]


def test_an_accepted_submission_is_recorded_in_full(path):
    store = GraderStore(path)
    number = arrive(store, note="first", revision="abc", weights_digest="w0", remarks=("a", "b"), is_base_copy=True)
    record = store.get(number)
    assert record is not None
    assert (record.state, record.note, record.revision, record.weights_digest) == (
        SubmissionState.ACCEPTED, "first", "abc", "w0"
    )  # fmt: skip
    assert record.is_base_copy and record.score is None and record.finished_at is None
    assert store.remarks(number) == ["a", "b"]


def test_a_rejected_attempt_is_recorded_with_its_reason_and_is_not_queued(path):
    store = GraderStore(path)
    record = store.get(arrive(store, fault=Fault.SUBMITTER, reason="no such folder"))
    assert record is not None
    assert (record.state, record.fault, record.reason) == (
        SubmissionState.REJECTED, Fault.SUBMITTER, "no such folder"
    )  # fmt: skip
    assert store.next_accepted() is None


def test_a_submission_gets_one_score_only(path):
    store = GraderStore(path)
    number = arrive(store)
    give(store, number, 0.25)
    for again in (lambda: give(store, number, 0.75), lambda: store.set_failed(number, Fault.MODEL, "x", 9.0)):
        with pytest.raises(StoreError, match="it must not get two"):
            again()
    record = store.get(number)
    assert record is not None and record.score == score(0.25) and record.state is SubmissionState.SCORED


def test_the_file_itself_refuses_a_second_score(path):
    store = GraderStore(path)
    number = arrive(store)
    give(store, number, 0.25)
    with pytest.raises(StoreError, match="one number and one score"), store._transaction() as db:
        db.execute("INSERT INTO scores SELECT * FROM scores")
    with pytest.raises(StoreError, match="one number and one score"):
        store.add(Arrival(number, 1.0, "m", "", None))


def test_a_failed_submission_has_a_fault_and_no_score(path):
    store = GraderStore(path)
    number = arrive(store)
    store.set_failed(number, Fault.INFRASTRUCTURE, "out of memory", 9.0)
    record = store.get(number)
    assert record is not None and record.score is None
    assert (record.state, record.fault, record.reason) == (
        SubmissionState.FAILED, Fault.INFRASTRUCTURE, "out of memory"
    )  # fmt: skip


def test_the_best_is_the_highest_and_of_equal_ones_the_earliest(path):
    store = GraderStore(path)
    assert store.best() is None
    for value in (0.2, 0.6, 0.6, 0.1):
        give(store, arrive(store), value)
    best = store.best()
    assert best is not None and best.number == 2


def test_a_zero_score_is_a_score(path):
    store = GraderStore(path)
    give(store, arrive(store), 0.0)
    best = store.best()
    assert best is not None and best.score is not None and best.score.value == 0.0


def test_the_queue_is_in_order_of_arrival(path):
    store = GraderStore(path)
    first, second = arrive(store), arrive(store)
    assert store.next_accepted() == first
    give(store, first, 0.5)
    assert store.next_accepted() == second


def test_every_accepted_submission_counts_against_the_budget_and_refused_ones_do_not(path):
    store = GraderStore(path)
    arrive(store)
    arrive(store, fault=Fault.SUBMITTER, reason="refused")
    store.set_failed(arrive(store), Fault.INFRASTRUCTURE, "crash", 9.0)
    store.set_failed(arrive(store), Fault.SUBMITTER, "not finite", 9.0)
    give(store, arrive(store), 0.5)
    assert store.count() == 5
    assert store.n_charged() == 4


def test_threads_may_write_at_once(path):
    store = GraderStore(path)
    numbers = [arrive(store) for _ in range(24)]
    threads = [threading.Thread(target=give, args=(store, number, number / 100)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.score.value for record in store.all() if record.score] == [number / 100 for number in numbers]


def test_a_finished_trial_is_read_without_a_grader(path):
    store = GraderStore(path)
    give(store, arrive(store), 0.5)
    store.close()
    assert [record.score for record in read_submissions(path)] == [score(0.5)]
    with pytest.raises(StoreError, match="no such file"):
        read_submissions(path.with_name("missing.db"))


def test_a_record_is_read_by_who_may_not_write_there(path):
    store = GraderStore(path)
    give(store, arrive(store), 0.5)
    store.close()
    with tempfile.TemporaryDirectory() as top:
        copy = Path(shutil.copy(path, top))
        copy.chmod(0o444)
        Path(top).chmod(0o555)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)
            assert [record.score for record in read_submissions(copy)] == [score(0.5)]
        finally:
            os.seteuid(user)
            Path(top).chmod(0o755)


def test_reading_the_record_of_a_killed_grader_changes_no_file(path, tmp_path):
    store = GraderStore(path)
    give(store, arrive(store), 0.5)
    killed = tmp_path / "killed"
    shutil.copytree(path.parent, killed, ignore=lambda folder, names: ["killed"])
    store.close()
    before = {file.name: file.read_bytes() for file in killed.iterdir() if not file.name.endswith("-shm")}
    assert [record.score for record in read_submissions(killed / path.name)] == [score(0.5)]
    assert {name: (killed / name).read_bytes() for name in before} == before and f"{path.name}-wal" in before


def test_a_damaged_record_is_told_in_one_line(path):
    path.write_bytes(b"garbage" * 100)
    with pytest.raises(ConfigError, match=r"grader\.db: cannot be read \(file is not a database\); restore it"):
        read_submissions(path)


def test_a_file_of_another_format_is_refused(path):
    store = GraderStore(path)
    store._db.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(StoreError, match="has format 99"):
        GraderStore(path)
