"""The home page: a table of results with colours, order and columns."""

import json
import re
from urllib.parse import unquote_plus

import pytest

from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.export import export_site
from agent2.web.home import COLUMNS, HomeFilter
from agent2.web.site import Site
from web_builders import html_of, write_card, write_evaluation, write_monitor, write_trial

IDENTITY = {
    "format": 1, "suite": "s-v1.0", "suite_digest": "d", "role": "dev", "split": "dev", "seed": 0,
    "secret_digest": None,
    "sides": {side: {"name": side, "digest": side, "kind": "hf"} for side in ("baseline", "checkpoint")},
}  # fmt: skip


def write_decision(path, name: str, release: str, improvement: str, change: tuple[float, float, float]) -> None:
    """An evaluation as far as the home page reads it."""
    path.mkdir(parents=True)
    sides = IDENTITY["sides"] | {"checkpoint": {"name": name, "digest": name, "kind": "hf"}}
    (path / "evaluation.json").write_text(json.dumps(IDENTITY | {"sides": sides}))
    (path / "suite.json").write_text(json.dumps({"metrics": [{"name": "accuracy", "role": "primary"}]}))
    value, low, high = change
    estimate = {"value": value, "low": low, "high": high, "n": 50, "n_missing": 0, "method": "m"}
    pair = {"change": estimate, "p_value": 0.5, "over": "items", "n_won": 1, "n_lost": 1, "sd": None}
    report = {
        "release_decision": release,
        "outcome": f"{release}, {improvement}",
        "decision": {"numbers": {"improvement": improvement.replace(" ", "_")}},
        "evidence": {"accuracy": {"unit": "rate", "paired": pair}},
    }
    (path / "report.json").write_text(json.dumps(report))


def gained(value: float, low: float, high: float) -> dict:
    estimate = {"value": value, "low": low, "high": high, "n": 50, "n_missing": 0, "method": "m"}
    gain = {"change": estimate, "p_value": 0.01, "over": "items", "n_won": 9, "n_lost": 1, "sd": None}
    return {"event": "final_scored", "gain": gain}


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_decision(root / "blocked", "worse", "block", "none", (0.1, 0.02, 0.2))
    write_decision(root / "unclear", "maybe", "candidate", "not shown", (0.05, -0.02, 0.1))
    write_decision(root / "good", "better", "candidate", "shown", (0.3, 0.2, 0.4))
    finished = [{"event": "agent_ended", "end": "finished"}, {"event": "finished"}]
    for name, audit in (("audited", [{"event": "audited", "findings": 0}]), ("found", [{"event": "audited",
                         "findings": 2}]), ("unaudited", [])):  # fmt: skip
        write_trial(root / name, gained(0.2, 0.1, 0.3), *audit, *finished)
    write_trial(root / "killed", {"event": "agent_started"})
    write_monitor(root / "training")
    write_card(root / "card")
    return Site(Catalog(root))


def row_of(page: str, site: Site, path: str) -> str:
    entry = next(entry for entry in site.catalog.scan().entries.values() if entry.display_path == path)
    return re.search(rf'<tr data-row-key="{entry.id}">.*?</tr>', page, re.DOTALL)[0]


def order_of(page: str, site: Site) -> list[str]:
    """Folders in the order of the table."""
    paths = {entry.id: entry.display_path for entry in site.catalog.scan().entries.values()}
    return [paths[key] for key in re.findall(r'<tr data-row-key="([^"]+)">', page)]


def test_only_an_improvement_that_is_shown_is_green(site):
    page = html_of(site, "home")
    for path, colour, text in (
        ("blocked", "fail", "block, none"), ("unclear", "unknown", "candidate, not shown"),
        ("good", "pass", "candidate, shown"), ("audited", "pass", "+20.0 points"),
        ("found", "unknown", "+20.0 points, integrity findings"), ("unaudited", "unknown", "+20.0 points, not audited"),
    ):  # fmt: skip
        assert f'<span class="verdict {colour}">{text}</span>' in row_of(page, site, path), path
    assert "+30.0 [+20.0, +40.0]" in row_of(page, site, "good")
    assert 'class="badge stopped"' in row_of(page, site, "killed") and "verdict" not in row_of(page, site, "killed")
    assert "66.7%" in row_of(page, site, "card")


def test_the_table_is_sorted_as_the_address_says_and_what_has_no_number_comes_last(site):
    by_result = order_of(html_of(site, "home", kind="evaluation", sort="result"), site)
    assert by_result == ["good", "blocked", "unclear"]
    turned = order_of(html_of(site, "home", kind="evaluation", sort="result", order="reversed"), site)
    assert turned == ["unclear", "blocked", "good"]
    everything = order_of(html_of(site, "home", sort="result"), site)
    assert set(everything[-2:]) == {"killed", "training"} and len(everything) == 9
    assert order_of(html_of(site, "home", kind="evaluation", sort="agent or model"), site) == [
        "good",
        "unclear",
        "blocked",
    ]
    page = html_of(site, "home", sort="result")
    assert 'aria-sort="descending"' in page and "sort=result&amp;order=reversed" in page
    assert order_of(html_of(site, "home", sort="no such column"), site)


def test_columns_are_chosen_in_the_address_and_stay_with_the_other_choices(site):
    page = html_of(site, "home", columns="folder,result", kind="trial")
    assert re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?([a-z ]+)', page) == ["run", "result", "folder"]
    assert "columns=result%2Cfolder" in page and "kind=trial" in page
    assert HomeFilter.of({"columns": "x,y"}).columns == HomeFilter().columns
    assert HomeFilter.of({"columns": "kind"}).toggled("folder") == "kind,folder"
    assert HomeFilter.of({"columns": "kind,folder"}).toggled("kind") == "folder"
    assert HomeFilter.of(HomeFilter(columns=("kind", "folder"), sort="time", is_reversed=True).query()).sort == "time"
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)


def test_what_stopped_or_failed_is_listed_by_itself(site):
    page = html_of(site, "home")
    assert "stopped or failed 1</a>" in page and order_of(page, site).count("killed") == 1
    assert order_of(html_of(site, "home", state="troubled"), site) == ["killed"]


def test_a_search_finds_results_by_their_words(site):
    assert order_of(html_of(site, "home", q="block"), site) == ["blocked"]
    assert "Nothing matches “zzz”" in html_of(site, "home", q="zzz")


def test_every_page_has_one_menu(site, tmp_path):
    card = next(entry for entry in site.catalog.scan().entries.values() if entry.kind is EntryKind.CARD)
    for page in (html_of(site, "home"), html_of(site, "card", card.id), html_of(site, "search")):
        menu = re.search(r'<nav class="menu".*?</nav>', page)[0]
        assert 'href="/"' in menu and 'href="/leaderboard"' in menu and 'href="/search"' in menu
    export_site(site, tmp_path / "out")
    exported = (tmp_path / "out" / "index.html").read_text()
    assert 'href="leaderboard.html"' in exported
    assert "sort=" not in exported and "search" not in exported.partition("<main")[0]


def test_cards_that_the_grader_keeps_are_no_results(tmp_path):
    home = tmp_path / "results" / "agent2-home"
    write_card(home / "baselines" / ("a" * 40))
    (home / "secret").write_text("s")
    write_card(tmp_path / "results" / "baselines" / "mine")
    entries = Catalog(tmp_path / "results").scan().entries.values()
    assert [entry.display_path for entry in entries] == ["baselines/mine"], "another folder of that name is entered"


def columns_of(page: str) -> list[str]:
    return re.findall(r"<th scope=\"col\"[^>]*><a [^>]*>([^<]+?)(?: [↓↑])?</a>", page)


def test_trend_cost_and_time_are_columns_where_a_result_has_them_or_the_address_names_them(tmp_path):
    write_evaluation(tmp_path / "players", tmp_path / "results" / "evaluation")
    site = Site(Catalog(tmp_path / "results"))
    page = html_of(site, "home", kind="evaluation")
    assert {"trend", "LLM cost"}.isdisjoint(columns_of(page)), "no evaluation has any"
    assert "time" in columns_of(page), "how long its cards were played"
    href = next(link for link in re.findall(r'href="([^"]+columns=[^"]+)"', page) if "trend" in link)
    asked_for = html_of(site, "home", kind="evaluation", columns=unquote_plus(href.partition("columns=")[2]))
    assert "trend" in columns_of(asked_for) and "LLM cost" not in columns_of(asked_for)
    card = next(tmp_path.glob("results/evaluation/cards/checkpoint/*/card.json"))
    card.write_text(re.sub(r'"wall_clock_s": ?[\d.e+-]+', '"wall_clock_s": null', card.read_text()))
    assert "time" not in columns_of(html_of(Site(Catalog(tmp_path / "results")), "home", kind="evaluation"))
