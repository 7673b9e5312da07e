"""Summaries of results that run, grow or are damaged."""

import fcntl
import os
from pathlib import Path

import pytest

from agent2.web import catalog as catalog_module
from agent2.web.catalog import Catalog, EntryState, LineCounter, entry_id
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.site import Site
from web_builders import (
    write_card,
    write_trial,
)

STARTED = ({"event": "base_scored", "split": "test_public", "score": {"value": 0.5}}, {"event": "agent_started"})


def test_a_running_trial_is_known_by_the_lock_of_its_harness(tmp_path):

    path = write_trial(tmp_path / "trial", *STARTED)
    catalog = Catalog(tmp_path)
    (entry,) = catalog.scan().entries.values()
    assert catalog.summary(entry).state is EntryState.STOPPED
    with (path / "harness.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        catalog_module._locks_read = (0.0, frozenset())
        assert catalog.summary(entry).state is EntryState.RUNNING
    catalog_module._locks_read = (0.0, frozenset())
    assert catalog.summary(entry).state is EntryState.STOPPED


def test_lines_of_an_open_card_are_counted_as_they_come(tmp_path):
    path = write_card(tmp_path / "card", n=3, is_open=True)
    catalog = Catalog(tmp_path)
    (entry,) = catalog.scan().entries.values()
    assert catalog.summary(entry).message.startswith("open: 3 ")
    with (path / "rollouts.jsonl").open("ab") as grows:
        grows.write(b"{}\n{")
    assert catalog.summary(entry).message.startswith("open: 4 ")


def test_a_file_that_was_replaced_is_counted_from_its_beginning(tmp_path):
    file: Path = tmp_path / "lines"
    counter = LineCounter()
    assert counter.count(file) == 0
    file.write_bytes(b"1\n2\n3")
    assert counter.count(file) == 2
    file.write_bytes(b"1\n")
    assert counter.count(file) == 1


def test_a_trial_with_a_damaged_database_is_named_on_the_home_page_and_hides_no_other(tmp_path):
    write_trial(tmp_path / "trial", {"event": "agent_started"})
    broken = write_trial(tmp_path / "broken", {"event": "agent_ended"}, {"event": "finished"})
    (broken / "grader.db").write_bytes(b"garbage" * 100)
    page = Site(Catalog(tmp_path)).html(PageAddress("home"), LiveLinks())
    assert "file is not a database" in page and "killed in its" in page


def test_ids_are_of_the_path_below_the_folder_however_it_is_named(tmp_path, monkeypatch):
    for name in ("sweeps/many/trials/Übung 1", "b"):
        write_trial(tmp_path / name, *STARTED)
    write_card(tmp_path / "b" / "cards" / "base-test_public", n=2)
    monkeypatch.chdir(tmp_path)
    relative_to = {}
    for root in (tmp_path, Path(), Path("../") / tmp_path.name):
        scan = Catalog(root).scan()
        relative_to[str(root)] = {(entry.id, entry.display_path, entry.kind) for entry in scan.entries.values()}
        for entry in scan.entries.values():
            below = os.path.relpath(entry.path, root)
            assert entry.id == entry_id(os.fsencode(below), entry.path.name) and entry.display_path == below
    assert len({frozenset(entries) for entries in relative_to.values()}) == 1 and len(relative_to[str(tmp_path)]) == 3


def test_the_root_itself_is_a_result_under_its_own_name(tmp_path):
    trial = write_trial(tmp_path / "mine", *STARTED)
    (entry,) = Catalog(trial).scan().entries.values()
    assert entry.display_path == "mine" and Catalog(trial).at(trial) == entry


def test_logs_and_report_of_a_trial_are_not_entered_and_other_folders_of_these_names_are(tmp_path):
    trial = write_trial(tmp_path / "trial", *STARTED)
    for folder in (trial / "events", trial / "report", trial / "cards", tmp_path / "events", tmp_path / "report"):
        write_card(folder / "card", n=1)
    shown = {entry.display_path for entry in Catalog(tmp_path).scan().entries.values()}
    assert shown == {"trial", "trial/cards/card", "events/card", "report/card"}


def test_a_change_of_what_grows_is_a_change_of_the_result(tmp_path):
    trial = write_trial(tmp_path / "trial", *STARTED)
    write_card(trial / "cards" / "open", n=1, is_open=True)
    for growing in (trial / "events" / "trial.jsonl", trial / "cards" / "open" / "rollouts.jsonl"):
        os.utime(growing, (4e9, 4e9))
    assert {entry.changed for entry in Catalog(tmp_path).scan().entries.values()} == {4e9}


@pytest.mark.parametrize(
    ("credit", "is_passed", "words"),
    [(1.0, True, "passed, credit 1.00"), (0.25, False, "not passed, credit 0.25"), (None, False, "no credit given")],
)
def test_a_trial_without_a_submission_is_no_failure_where_its_assignment_was_judged(tmp_path, credit, is_passed, words):
    verdict = {"kind": "implement", "passed": is_passed, "credit": credit, "parts": [], "figures": {}}
    ended = {"event": "agent_ended", "end": "exited"}
    events = (ended, {"event": "final_scored", "gain": None}, {"event": "finished"})
    write_trial(tmp_path / "plain", *events)
    write_trial(tmp_path / "assigned", {"event": "assignment_judged", "verdict": verdict}, *events)
    catalog = Catalog(tmp_path)
    summaries = {entry.path.name: catalog.summary(entry) for entry in catalog.scan().entries.values()}
    summary = summaries["assigned"]
    assert summary.state is EntryState.FINISHED and summary.value == credit
    assert words in summary.message and words in summary.result
    assert summary.verdict == ("pass" if is_passed else "fail")
    assert summaries["plain"].state is EntryState.FAILED
