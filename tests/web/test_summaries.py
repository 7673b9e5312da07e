"""Summaries of results that grow or are damaged, and of trials with an assignment."""

from pathlib import Path

import pytest

from agent2.web.catalog import Catalog
from agent2.web.entries import EntryState
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.site import Site
from agent2.web.summaries import LineCounter
from web_builders import write_card, write_trial


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
