"""The site as files: every link leads to a file, nothing hidden is in one, a broken result hides no other."""

import json
import os
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent2.cli import app
from agent2.records import Split
from agent2.reports.masthead import Masthead
from agent2.web.catalog import Catalog
from agent2.web.export import MOST_ROLLOUTS, FileLinks, export_site
from agent2.web.page import LiveLinks, PageAddress
from agent2.web.site import Site, without_dead_links
from web_builders import HOSTILE, digest_of_tree, write_card, write_evaluation, write_trial

STORED = Path(__file__).parent.parent / "stored"


def write_processes(trial, *command):
    sample = {"pid": 3, "command": command, "first_seen": 1000.0, "last_seen": 1900.0, "cpu_s": 9.0, "max_rss_bytes": 9}
    (trial / "events" / "processes.jsonl").write_text(json.dumps({"t": 1900.0, "event": "process", **sample}) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("export")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT2_HOME", str(top / "home"))
        write_evaluation(top / "players", top / "results" / "evaluation")
    write_card(top / "results" / "cards" / "shown", n=60)
    write_card(top / "results" / "cards" / "hidden", split=Split.TEST_PRIVATE)
    write_trial(top / "results" / "trials" / "killed", {"event": "agent_started"})
    write_processes(top / "results" / "trials" / "killed", f"{sys.prefix}/bin/python", f"{top}/results/x/train.py")
    write_trial(top / "results" / "trials" / "broken").joinpath("trial.json").write_text("{")
    return top / "results"


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "new"
    before = digest_of_tree(folder)
    report = export_site(Site(Catalog(folder), shows_hidden=True), out)
    assert digest_of_tree(folder) == before
    return out, report


def test_every_link_of_an_exported_site_leads_to_a_file(exported):
    out, report = exported
    pages = sorted(out.rglob("*.html"))
    assert len(pages) == report.n_pages and report.index in pages
    assert {"evaluation", "card", "rollout", "trial"} <= {page.parent.name for page in pages}
    for page in pages:
        text = page.read_text()
        for link in re.findall(r'(?:href|src)="([^"#][^"]*)"', text):
            if not link.startswith("data:"):
                assert (page.parent / unescape(link).partition("#")[0]).is_file(), (page, link)
        assert "<form" not in text and 'href=""' not in text and "<img src=x" not in text
    assert len(list((out / "rollout").glob("shown-*.html"))) >= 60, "the second page of a list is exported too"


def test_a_site_never_contains_hidden_texts(exported):
    out, _ = exported
    for page in out.rglob("*hidden*.html"):
        assert "secret-1" not in page.read_text(), page


def test_what_quotes_a_request_that_the_agent_was_shown_is_not_exported(tmp_path):
    request, began = "Build the login page number 1234.", {"event": "agent_started"}
    for name, kind in (("page", "page"), ("debug", "debug")):
        trial = write_trial(tmp_path / "results" / name, began)
        config = json.loads((trial / "trial.json").read_text())
        config["task"]["assignment"] = {"kind": kind}
        (trial / "trial.json").write_text(json.dumps(config))
        (trial / "agent.log").write_text(f"$ cat REQUEST.md\n{request}\n")
        write_processes(trial, "echo", request)
    site = Site(Catalog(tmp_path / "results"), shows_hidden=True)
    export_site(site, tmp_path / "out")
    quoting = [page.name for page in (tmp_path / "out").rglob("*.html") if "number 1234" in page.read_text()]
    assert quoting and all(name.startswith("debug") for name in quoting), quoting
    assert any("shown a hidden item" in page.read_text() for page in (tmp_path / "out" / "trial").glob("page*.html"))
    (page,) = [entry for entry in site.catalog.scan().entries.values() if entry.path.name == "page"]
    assert "number 1234" in site.html(PageAddress("trial", page.id, "transcript"), LiveLinks())
    hiding = Site(Catalog(tmp_path / "results"))
    assert "number 1234" not in hiding.standalone(PageAddress("trial", page.id, "transcript"))
    assert "number 1234" in site.standalone(PageAddress("trial", page.id, "transcript"))


def test_the_overview_of_a_trial_that_was_shown_a_request_has_its_numbers_and_none_of_its_agents_texts(tmp_path):
    for kind in ("page", "debug"):
        trial = tmp_path / "results" / kind
        shutil.copytree(STORED / "trial", trial)
        with closing(sqlite3.connect(trial / "grader.db")) as database:
            database.executescript((STORED / "trial" / "grader.sql").read_text())
            database.execute("UPDATE submissions SET note = 'Build the login page number 1234.'")
            database.execute("PRAGMA user_version = 1")
            database.commit()
        config = json.loads((trial / "trial.json").read_text())
        config["task"]["assignment"] = {"kind": kind}
        (trial / "trial.json").write_text(json.dumps(config))
        write_processes(trial, "echo", "Build the login page number 1234.")
    site = Site(Catalog(tmp_path / "results"))
    export_site(site, tmp_path / "out")
    pages = {page.name: page.read_text().replace("<wbr>", "") for page in (tmp_path / "out" / "trial").glob("*.html")}
    overviews = {name: text for name, text in pages.items() if "Five success criteria" in text}
    assert len(overviews) == 2 and all("88.5%" in text for text in overviews.values())
    (quoting,) = [name for name, text in overviews.items() if "number 1234" in text]
    assert quoting.startswith("debug") and "was shown a hidden item" not in overviews[quoting]
    (page,) = [entry for entry in site.catalog.scan().entries.values() if entry.path.name == "page"]
    assert "number 1234" in site.html(PageAddress("trial", page.id), LiveLinks()).replace("<wbr>", "")
    assert "number 1234" not in site.standalone(PageAddress("trial", page.id)).replace("<wbr>", "")


def test_no_exported_page_names_a_folder_of_this_machine(exported, folder):
    out, _ = exported
    texts = {page: page.read_text().replace("<wbr>", "") for page in out.rglob("*.html")}
    for place in (folder.parent, out, Path(sys.prefix), Path.home()):
        assert [page for page, text in texts.items() if f"{place}/" in text] == []
    live = Site(Catalog(folder), shows_hidden=True)
    (killed,) = [entry for entry in live.catalog.scan().entries.values() if entry.path.name == "killed"]
    shown = live.html(PageAddress("trial", killed.id, "timeline"), LiveLinks()).replace("<wbr>", "")
    assert f"{sys.prefix}/bin/python" in shown, "the control: a server shows them to its own user"
    assert any("&lt;python&gt;/bin/python" in text for text in texts.values())


def test_a_result_that_cannot_be_shown_is_said(exported):
    _, report = exported
    assert any("trial/broken" in problem for problem in report.problems)


def test_of_a_large_card_the_first_rollouts_are_exported():
    needed = []
    links = FileLinks(needed.append, "../")
    assert links.to("rollout", "card-1", MOST_ROLLOUTS) == "" and links.to("card", "card-1", page=999) == ""
    assert links.to("rollout", "card-1", MOST_ROLLOUTS - 1, q="words") == f"../rollout/card-1-{MOST_ROLLOUTS - 1}.html"
    assert links.to("rollout", "card-1", "item", id=HOSTILE).startswith("../rollout/card-1-item-")
    assert links.to("download", "card", "card-1") == "" and len(needed) == 2
    assert without_dead_links('<p><a href="" data-key="k">no</a> <a href="x">yes</a>') == (
        '<p><span>no</span> <a href="x">yes</a>'
    )


def test_the_command_says_what_it_wrote_and_refuses_a_full_folder(folder, tmp_path):
    out = tmp_path / "site"
    done = CliRunner().invoke(app, ["view", str(folder), "--export", str(out)])
    assert done.exit_code == 0 and (out / "index.html").is_file()
    assert re.search(r"\d+ pages", done.output) and "cannot be shown: trial/broken" in done.output
    for options, message in (
        ([str(folder), "--export", str(out)], "not an empty folder"),
        ([str(folder), "--export", str(tmp_path / "other"), "--show-hidden"], "never contains texts of hidden items"),
        ([str(tmp_path / "none"), "--export", str(tmp_path / "other")], "no such folder"),
        ([str(folder), "--export", str(out / "index.html")], "not an empty folder"),
    ):
        done = CliRunner().invoke(app, ["view", *options])
        assert done.exit_code != 0 and message in str(done.exception) + done.output, options
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        done = CliRunner().invoke(app, ["view", str(folder), "--export", str(Path(locked) / "site")])
        assert done.exit_code != 0


def test_a_published_site_has_its_own_title_text_and_logo_and_loads_nothing_from_elsewhere(folder, tmp_path):
    logo = "data:image/png;base64,AAAA"
    masthead = Masthead("The club's board", "Season 2, see the [rules](https://club.example/rules).", logo, "a heron")
    out = tmp_path / "site"
    export_site(Site(Catalog(folder), masthead=masthead), out)
    for name in ("index.html", "leaderboard.html"):
        page = (out / name).read_text()
        assert f'<img src="{logo}" alt="a heron">' in page and 'href="https://club.example/rules"' in page
        assert "The club&#39;s board" in page and page.count("<h1") == 1
        assert "img-src 'self' data:" in page and not re.search(r"(?:src|srcset)=\"(?!data:|static/)", page)
    assert "<title>agent2: The club&#39;s board" in (out / "index.html").read_text()
    cards = [page.read_text() for page in (out / "card").glob("*.html")]
    assert cards and all("The club&#39;s board" in page and logo not in page for page in cards)
