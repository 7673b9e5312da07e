"""Which requests the server answers, and live updates: what is new, and nothing else."""

import asyncio
import fcntl
import json
import socket
import time
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from agent2.errors import ConfigError
from agent2.web import server
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind, EntryState
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.server import ReaderGuard, make_view_app, view_folder
from agent2.web.site import Site
from agent2.web.summaries import sweep_grid
from web_builders import (
    write_trial,
)

STARTED = {"event": "agent_started", "deadline": 2_000_000_000.0}


class Reader:
    """A request that hangs up once something was asked often enough. then: called when something was looked at."""

    def __init__(self, n_polls: int, then: Callable[[], None]) -> None:
        self.n_asked, self.n_polls, self.then = 0, n_polls, then

    async def is_disconnected(self) -> bool:
        self.n_asked += 1
        if self.n_asked == 2:
            self.then()
        return self.n_asked > self.n_polls


def heard(news) -> list[tuple[str, dict]]:
    """Events of a stream."""

    async def listen():
        events = []
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


def test_only_its_own_address_is_answered(tmp_path):
    client = TestClient(
        make_view_app(Site(Catalog(tmp_path)), ReaderGuard("127.0.0.1", None)), base_url="http://evil.example"
    )
    assert client.get("/").status_code == 421


def test_another_host_needs_the_token(tmp_path):
    app = make_view_app(Site(Catalog(tmp_path)), ReaderGuard("0.0.0.0", "correct-horse-battery"))
    client = TestClient(app, base_url="http://10.0.0.1")
    for link in ("/", "/?token=wrong", "/static/app.js", "/?token=%ff"):
        assert client.get(link).status_code == 403, link
    assert client.get("/?token=correct-horse-battery").status_code == 200
    assert client.get("/").status_code == 200, "the cookie is kept"


def test_a_taken_port_and_a_missing_folder_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        view_folder(tmp_path / "no", "127.0.0.1", 0, shows_hidden=False, ready=print)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}"):
            view_folder(tmp_path, "127.0.0.1", port, shows_hidden=False, ready=print)


def test_a_running_sweep_says_so_and_how_far_it_is(sweep, tmp_path):
    site = Site(Catalog(tmp_path))
    summary = site.catalog.summary(entry_of(site.catalog, EntryKind.SWEEP))
    assert summary.state is EntryState.RUNNING and summary.message == "1 of 4 trials started; no report yet"
    route = PageAddress("sweep", summary.entry.id)
    assert f'data-live="/live/sweep/{summary.entry.id}"' in site.html(route, LiveLinks(route))
    home = site.html(PageAddress("home"), LiveLinks())
    running = home[home.index('id="running"') : home.index("All results")]
    assert "sweep both" in running and "left</span>" in running and "no submission yet" in running


def test_the_page_of_a_running_sweep_has_a_grid_with_the_trials_to_come(sweep, tmp_path):
    site = Site(Catalog(tmp_path))
    entry = entry_of(site.catalog, EntryKind.SWEEP)
    grid = sweep_grid(entry, [site.catalog.summary(trial) for trial in site.catalog.children(entry, EntryKind.TRIAL)])
    started = next(agent for agent, cells in grid.rows if "running" in cells[0])
    assert grid.tasks == ("arithmetic",) and dict(grid.rows)["b"] == ("2 to come",)
    assert [agent for agent, _ in grid.rows][:2] == ["a", "b"] and started not in ("b",)
    page = site.html(PageAddress("sweep", entry.id), LiveLinks())
    assert "Agents and tasks" in page and "2 to come" in page
    plan = json.loads((entry.path / "sweep.json").read_text())
    (entry.path / "sweep.json").write_text(json.dumps({**plan, "agents": ["./a-folder", "b"]}))
    grid = sweep_grid(entry, [site.catalog.summary(trial) for trial in site.catalog.children(entry, EntryKind.TRIAL)])
    assert [agent for agent, _ in grid.rows] == [started], "an agent in a folder may bear another name"


def test_readers_of_a_sweep_hear_of_changed_words_and_of_the_end(sweep, tmp_path):
    catalog = Catalog(tmp_path)
    trial, top = entry_of(catalog, EntryKind.TRIAL), entry_of(catalog, EntryKind.SWEEP)
    log = trial.path / "events" / "trial.jsonl"

    def listed():
        return [catalog.summary(top), catalog.summary(trial)]

    def add(event: str):
        with log.open("a") as grows:
            grows.write(json.dumps({"event": event, "t": 1.0}) + "\n")

    events = heard(server._list_news(listed, Reader(3, lambda: add("agent_ended"))))
    assert [(name, data["key"]) for name, data in events] == [("row", trial.id)], "once, and nothing that was known"
    assert events[0][1]["text"].startswith("in its evaluation of its submissions")
    assert heard(server._list_news(listed, Reader(9, lambda: add("finished")))) == [("changed", {})]


def test_a_running_trial_tells_new_lines_of_its_agents_log_alone(sweep, tmp_path):
    site = Site(Catalog(tmp_path))
    trial = entry_of(site.catalog, EntryKind.TRIAL)
    log = trial.path / "agent.log"
    log.write_text("step 1\n")

    def add():
        with log.open("a") as grows:
            grows.write("step 2 <b>\nhalf a li")

    news = server._trial_news(site, trial, 1_000_000, 7, Reader(4, add))
    assert heard(news) == [("text", {"list": "log", "text": "step 2 <b>"})]
