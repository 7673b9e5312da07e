"""Summaries of results that run, grow or are damaged."""

import fcntl
from pathlib import Path

from agent2.web import catalog as catalog_module
from agent2.web.catalog import Catalog, EntryState, LineCounter
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
