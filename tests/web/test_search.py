"""Search in the rollouts of all cards."""

import json
import re

import pytest

from agent2.records import Split
from agent2.web.catalog import Catalog
from agent2.web.site import Site
from web_builders import (
    HOSTILE,
    html_of,
    id_of,
    status_of,
    write_card,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_card(root / "shown", checkpoint="shown")
    write_card(root / "hidden", split=Split.TEST_PRIVATE, checkpoint="hidden")
    write_card(root / "open", is_open=True)
    return root


def test_a_search_finds_rollouts_on_every_card_and_shows_the_words_around(folder):
    site = Site(Catalog(folder))
    assert "2 finished cards" in html_of(site, "search")
    assert status_of(html_of(site, "search", q="as it should")) == "4 rollouts on 1 card"
    assert status_of(html_of(site, "search", q="item-00")) == "12 rollouts on 2 cards", (
        "ids of hidden items can be seen"
    )
    assert status_of(html_of(site, "search", q="item-00", show="failed")) == "4 rollouts on 2 cards"
    page = html_of(site, "search", q="I look for 4", **{"in": "turns"})
    assert status_of(page) == "1 rollout on 1 card"
    assert f"/rollout/{id_of(site.catalog, 'shown')}/4" in page and "question secret-4" in page, "with the words around"
    assert status_of(html_of(site, "search", q="no such words")) == "0 rollouts on 0 cards"


def test_a_search_never_looks_into_hidden_texts_unless_they_are_shown(folder):
    question = {"q": "secret-1", "in": "turns"}
    assert status_of(html_of(Site(Catalog(folder)), "search", **question)) == "1 rollout on 1 card"
    assert status_of(html_of(Site(Catalog(folder), shows_hidden=True), "search", **question)) == "2 rollouts on 2 cards"
    page = html_of(Site(Catalog(folder)), "search", q="item-001")
    assert "hidden on" in page and page.count("look for 1") <= 1


def test_cards_of_which_only_ids_may_be_searched_come_last(folder):
    write_card(folder / "more", split=Split.TEST_PRIVATE, checkpoint="more", n=30)
    names = re.findall(r">(shown|hidden|more) on ", html_of(Site(Catalog(folder)), "search", q="item-00"))
    assert names[0] == "shown" and set(names) == {"shown", "hidden", "more"}
    names = re.findall(
        r">(shown|hidden|more) on ", html_of(Site(Catalog(folder), shows_hidden=True), "search", q="item-00")
    )
    assert names[0] == "more", "where their texts are searched too, the number of rollouts decides"


def test_a_search_in_every_turn_finds_texts_alone_and_quotes_too(folder):
    site = Site(Catalog(folder))
    assert status_of(html_of(site, "search", q="stop_reason", **{"in": "turns"})) == "0 rollouts on 0 cards"
    assert status_of(html_of(site, "search", q='"arguments": {"value"', **{"in": "turns"})) == "6 rollouts on 1 card"
    page = html_of(site, "search", q="<script>", **{"in": "turns"})
    assert status_of(page) == "6 rollouts on 1 card" and HOSTILE[:8] not in page and "&lt;script&gt;" in page


def test_a_damaged_card_is_named_and_hides_no_other(folder):
    (write_card(folder / "damaged") / "rollouts.parquet").write_bytes(b"PAR1")
    page = html_of(Site(Catalog(folder)), "search", q="item-00")
    assert status_of(page) == "12 rollouts on 2 cards" and "damaged:" in page


def test_a_closed_card_without_a_summary_is_named_and_hides_no_other(folder):
    file = write_card(folder / "damaged") / "card.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"summary": None}))
    page = html_of(Site(Catalog(folder)), "search", q="item-00")
    assert status_of(page) == "12 rollouts on 2 cards" and "damaged: " in page and "has no summary" in page
