"""Rollouts on the page of a card: stored numbers that are wrong are named."""

import json
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from agent2.cards.card import ReportingRule
from agent2.cards.query import CardQueries
from agent2.cards.writer import CardWriter
from agent2.web import rollouts
from agent2.web.catalog import Catalog
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from card_builders import make_header, make_record
from web_builders import (
    html_of,
    id_of,
    write_card,
    write_scores,
)


def edited(folder, change):
    """The text of the page of a card whose `card.json` was changed."""
    card = json.loads((folder / "card.json").read_text())
    change(card)
    (folder / "card.json").write_text(json.dumps(card))
    (entry,) = Catalog(folder).scan().entries
    app = make_view_app(Site(Catalog(folder)), ReaderGuard("127.0.0.1", None))
    return TestClient(app, base_url="http://127.0.0.1").get(f"/card/{entry}").text


@pytest.mark.parametrize("max_regraded", [0, 10_000])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("score.value", 1.0),
        ("score.low", 0.6),
        ("score.high", 0.97),
        ("score.n", 60),
        ("score.n_missing", 1),
        ("n_missing", 1),
    ],
)
def test_a_card_with_an_edited_summary_says_so(tmp_path, monkeypatch, name, value, max_regraded):
    monkeypatch.setattr(rollouts, "MOST_REGRADED", max_regraded)  # as for a small and for a large card
    assert "not what the rollouts give" not in edited(write_card(tmp_path / "honest"), lambda card: None)

    def change(card):
        part = card["summary"]["score"] if name.startswith("score.") else card["summary"]
        part[name.removeprefix("score.")] = value

    text = edited(write_card(tmp_path / "card"), change)
    assert f"Stored numbers are not what the rollouts give: {name}." in text


@pytest.mark.parametrize("over_attempts", ["mean", "any"])
def test_of_a_large_card_with_several_attempts_the_mean_is_checked_over_items(tmp_path, monkeypatch, over_attempts):
    monkeypatch.setattr(rollouts, "MOST_REGRADED", 0)
    header = replace(make_header(), reporting=ReportingRule(over_attempts=over_attempts))
    with CardWriter(tmp_path, header) as writer:
        for item, values in {"a": (1.0, 0.0), "b": (1.0, None), "c": (None, None)}.items():
            for attempt, value in enumerate(values):
                writer.append(make_record(item, value, attempt=attempt))
        writer.close()
    assert "not what the rollouts give" not in edited(tmp_path, lambda card: None)

    def change(card):
        card["summary"]["n_missing"] = 0
        card["summary"]["score"]["value"] = 0.9

    text = edited(tmp_path, change)
    assert f"rollouts give: n_missing{', score.value' if over_attempts == 'mean' else ''}." in text


def test_of_a_large_card_without_any_score_only_an_edited_value_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts, "MOST_REGRADED", 0)
    with CardWriter(tmp_path, replace(make_header(), reporting=ReportingRule(over_attempts="mean"))) as writer:
        for attempt in range(2):
            writer.append(make_record("a", None, attempt=attempt))
        writer.close()
    assert "not what the rollouts give" not in edited(tmp_path, lambda card: None)
    invented = {"value": 0.9, "low": None, "high": None, "n": 0}
    text = edited(tmp_path, lambda card: card["summary"].update(score=invented))
    assert "rollouts give: score.n, score.value." in text


def test_a_card_with_an_edited_header_says_so(tmp_path):
    text = edited(write_card(tmp_path / "card"), lambda card: card["header"].update(checkpoint_name="another"))
    assert "was changed after the card was written" in text


def test_lines_of_a_query_are_the_lines_of_the_card(tmp_path):
    with CardQueries([write_card(tmp_path / "card")]) as queries:
        page = queries.page("select line, item_id from rollouts where item_id = ?", parameters=["item-004"])
    assert page.rows == ((4, "item-004"),)


def test_attempts_are_counted_from_one(tmp_path):
    write_scores(tmp_path / "two", {("q", 0): 1.0, ("q", 1): 0.0})
    write_scores(tmp_path / "one", {("q", 0): 1.0})
    site = Site(Catalog(tmp_path))
    two, one = (id_of(site.catalog, name) for name in ("two", "one"))
    page = html_of(site, "rollout", two, "1")
    assert "attempt 2 of 2" in page and "attempt 1: 1" in page and "attempt 0" not in page
    assert "#2</span>" in html_of(site, "card", two)
    assert "attempt 1" not in html_of(site, "rollout", one, "0"), "a single one has no number"
