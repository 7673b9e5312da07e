"""What pages are told while something runs: what is new, and nothing else."""

import asyncio
import fcntl
import json
import time
from pathlib import Path

import pytest

from agent2.web import server
from agent2.web.catalog import Catalog, EntryKind, EntryState, LineCounter
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.site import Site
from agent2.web.trials import log_after, log_tail
from web_builders import write_card, write_trial

STARTED = {"event": "agent_started", "deadline": 2_000_000_000.0}


class Reader:
    """A request that hangs up once something was asked often enough."""

    def __init__(self, n_polls: int) -> None:
        self.left = n_polls

    async def is_disconnected(self) -> bool:
        self.left -= 1
        return self.left < 0


def heard(news, then) -> list[tuple[str, dict]]:
    """Events of a stream. then: called after the first look."""

    async def listen():
        events = []
        asyncio.get_running_loop().call_later(0.05, then)
        async for piece in news:
            name, data = piece.strip().split("\n")
            events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return events

    return asyncio.run(listen())


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A running sweep with one running trial; its lock is held."""
    monkeypatch.setattr(server, "POLL_S", 0.1)
    folder = tmp_path / "sweep"
    write_trial(folder / "trials" / "one", STARTED)
    plan = {"name": "both", "tasks": ["arithmetic"], "agents": ["a", "b"], "modes": ["free"], "seeds": [0, 1]}
    (folder / "sweep.json").write_text(json.dumps(plan))
    with (folder / "trials" / "one" / "harness.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        time.sleep(1.1)  # the list of locks is read once a second
        yield folder


def entry_of(catalog: Catalog, kind: EntryKind):
    return next(entry for entry in catalog.scan().entries.values() if entry.kind is kind)


def test_a_running_sweep_says_so_and_how_far_it_is(sweep, tmp_path):
    site = Site(Catalog(tmp_path))
    summary = site.catalog.summary(entry_of(site.catalog, EntryKind.SWEEP))
    assert summary.state is EntryState.RUNNING and summary.message == "1 of 4 trials started; no report yet"
    route = PageAddress("sweep", summary.entry.id)
    assert f'data-live="/live/sweep/{summary.entry.id}"' in site.html(route, LiveLinks(route))
    home = site.html(PageAddress("home"), LiveLinks())
    running = home[home.index('id="running"') : home.index("All results")]
    assert "sweep both" in running and "left</span>" in running and "no submission yet" in running


def test_readers_of_a_sweep_hear_of_changed_words_and_of_the_end(sweep, tmp_path):
    catalog = Catalog(tmp_path)
    trial, top = entry_of(catalog, EntryKind.TRIAL), entry_of(catalog, EntryKind.SWEEP)
    log = trial.path / "events" / "trial.jsonl"

    def listed():
        return [catalog.summary(top), catalog.summary(trial)]

    def add(event: str):
        with log.open("a") as grows:
            grows.write(json.dumps({"event": event, "t": 1.0}) + "\n")

    events = heard(server._list_news(listed, Reader(3)), lambda: add("agent_ended"))
    assert [(name, data["key"]) for name, data in events] == [("row", trial.id)], "once, and nothing that was known"
    assert events[0][1]["text"].startswith("in its evaluation of its submissions")
    assert heard(server._list_news(listed, Reader(9)), lambda: add("finished")) == [("changed", {})]


def test_a_running_trial_tells_new_lines_of_its_agents_log_alone(sweep, tmp_path):
    site = Site(Catalog(tmp_path))
    trial = entry_of(site.catalog, EntryKind.TRIAL)
    log = trial.path / "agent.log"
    log.write_text("step 1\n")

    def add():
        with log.open("a") as grows:
            grows.write("step 2 <b>\nhalf a li")

    news = server._trial_news(site, trial, 1_000_000, 7, Reader(4))
    assert heard(news, add) == [("text", {"list": "log", "text": "step 2 <b>"})]


def test_of_a_log_that_grows_every_line_is_read_once(tmp_path):
    log = tmp_path / "agent.log"
    assert log_after(log, 0) == ("", 0)
    log.write_bytes(b"one\ntwo\nthr")
    assert log_tail(log, 4) == "one" and log_after(log, 4) == ("two", 8)
    log.write_bytes(b"x" * 100_000 + b"\nend\n")
    text, place = log_after(log, 8)
    assert text.endswith("end") and len(text) < 21_000 and place == 100_005


def test_lines_of_an_open_card_are_counted_as_they_come(tmp_path):
    path = write_card(tmp_path / "card", n=3, is_open=True)
    catalog = Catalog(tmp_path)
    entry = entry_of(catalog, EntryKind.CARD)
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
