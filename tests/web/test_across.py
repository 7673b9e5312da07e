"""Pages over several cards: a search in the rollouts of all, and two cards item by item."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent2.cards.writer import CardWriter
from agent2.records import Split
from agent2.web.catalog import Catalog, EntryKind
from agent2.web.page import LiveLinks, NoSuchPageError, PageAddress
from agent2.web.site import Site
from card_builders import make_header, make_record, write_old_card
from web_builders import HOSTILE, write_card


def write_scores(path: Path, scores: dict[str, float | None], checkpoint: str, seed: int = 0) -> Path:
    """A finished card with one rollout for each item."""
    with CardWriter(path, make_header(checkpoint_name=checkpoint, seed=seed)) as writer:
        for item, value in scores.items():
            record = make_record(item, value)
            writer.append(replace(record, rollout=replace(record.rollout, answer=f"{checkpoint} says {item}")))
        writer.close()
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_card(root / "shown", checkpoint="shown")
    write_card(root / "hidden", split=Split.TEST_PRIVATE, checkpoint="hidden")
    write_card(root / "open", is_open=True)
    return root


def asked(site: Site, kind: str, entry: str = "", part: str = "", /, **query: str) -> str:
    route = PageAddress(kind, entry, part, query)
    return site.html(route, LiveLinks(route))


def found(page: str) -> str:
    return re.search(r'role="status">([^<]*)', page)[1]


def id_of(site: Site, name: str) -> str:
    return next(entry.id for entry in site.catalog.scan().entries.values() if entry.path.name == name)


def test_a_search_finds_rollouts_on_every_card_and_shows_the_words_around(folder):
    site = Site(Catalog(folder))
    assert "2 finished cards" in asked(site, "search")
    assert found(asked(site, "search", q="as it should")) == "4 rollouts on 1 card"
    assert found(asked(site, "search", q="item-00")) == "12 rollouts on 2 cards", "ids of hidden items can be seen"
    assert found(asked(site, "search", q="item-00", show="failed")) == "4 rollouts on 2 cards"
    page = asked(site, "search", q="I look for 4", **{"in": "turns"})
    assert found(page) == "1 rollout on 1 card"
    assert f"/rollout/{id_of(site, 'shown')}/4" in page and "question secret-4" in page, "with the words around"
    assert found(asked(site, "search", q="no such words")) == "0 rollouts on 0 cards"


def test_a_search_never_looks_into_hidden_texts_unless_they_are_shown(folder):
    question = {"q": "secret-1", "in": "turns"}
    assert found(asked(Site(Catalog(folder)), "search", **question)) == "1 rollout on 1 card"
    assert found(asked(Site(Catalog(folder), shows_hidden=True), "search", **question)) == "2 rollouts on 2 cards"
    page = asked(Site(Catalog(folder)), "search", q="item-001")
    assert "hidden on" in page and page.count("look for 1") <= 1


def test_a_search_in_every_turn_finds_texts_alone_and_quotes_too(folder):
    site = Site(Catalog(folder))
    assert found(asked(site, "search", q="stop_reason", **{"in": "turns"})) == "0 rollouts on 0 cards"
    assert found(asked(site, "search", q='"arguments": {"value"', **{"in": "turns"})) == "6 rollouts on 1 card"
    page = asked(site, "search", q="<script>", **{"in": "turns"})
    assert found(page) == "6 rollouts on 1 card" and HOSTILE[:8] not in page and "&lt;script&gt;" in page


@pytest.mark.parametrize("form", [1, 2])
def test_cards_of_older_formats_are_listed_filtered_compared_and_found(tmp_path, monkeypatch, form):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    records = [make_record(f"item-{number}", float(number % 2), text=f"answer {number}") for number in range(6)]
    for name in ("old", "older"):
        write_old_card(tmp_path / "results" / name, records, form, make_header(checkpoint_name=name))
    site = Site(Catalog(tmp_path / "results"))
    card = id_of(site, "old")
    assert found(asked(site, "card", card, show="failed")) == "3 rollouts"
    assert "answer 3" in asked(site, "rollout", card, "3")
    assert found(asked(site, "search", q="answer 3")) == "2 rollouts on 2 cards"
    pair = asked(site, "compare", card, **{"with": id_of(site, "older")})
    assert ">both passed 3</a>" in pair and ">lost 0</a>" in pair


def test_a_damaged_card_is_named_and_hides_no_other(folder):
    (write_card(folder / "damaged") / "rollouts.parquet").write_bytes(b"PAR1")
    page = asked(Site(Catalog(folder)), "search", q="item-00")
    assert found(page) == "12 rollouts on 2 cards" and "damaged:" in page


def test_a_closed_card_without_a_summary_is_named_and_hides_no_other(folder):
    file = write_card(folder / "damaged") / "card.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"summary": None}))
    page = asked(Site(Catalog(folder)), "search", q="item-00")
    assert found(page) == "12 rollouts on 2 cards" and "damaged: " in page and "has no summary" in page


def test_two_cards_are_compared_item_by_item_with_filters_in_the_address(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_scores(root / "old", {"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}, "old")
    write_scores(root / "new", {"a": 0.0, "b": 1.0, "c": 1.0, "e": 1.0}, "new")
    site = Site(Catalog(root))
    new, old = id_of(site, "new"), id_of(site, "old")
    page = asked(site, "compare", new, **{"with": old})
    kinds = ("all", "lost", "won", "both failed", "no score")
    assert [re.search(rf">{kind} (\d+)</a>", page)[1] for kind in kinds] == ["5", "1", "1", "0", "2"]
    assert f"/rollout/{new}/0?beside={old}" in page and "old says d" in page
    lost = asked(site, "compare", new, **{"with": old, "kind": "lost"})
    assert found(lost) == "1 rollout" and "new says a" in lost and "new says b" not in lost
    assert f"with={old}&amp;kind=won" in lost, "the pair and the filter are in the address"
    assert "with=" + new in lost, "the other way round"
    searched = asked(site, "compare", new, **{"with": old, "q": "old says"})
    assert found(searched) == "4 rollouts"
    assert f'<option value="{old}">' in asked(site, "card", new), "a card leads there"


def test_a_comparison_tells_the_claim_or_why_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    items = [f"item-{number:03}" for number in range(60)]
    write_scores(root / "old", dict.fromkeys(items, 0.0), "old")
    write_scores(root / "new", dict.fromkeys(items, 1.0), "new")
    write_scores(root / "other", {"z": 1.0}, "other", seed=9)
    site = Site(Catalog(root))
    page = asked(site, "compare", id_of(site, "new"), **{"with": id_of(site, "old")})
    assert ">better</span>: +100.0" in page
    apart = asked(site, "compare", id_of(site, "new"), **{"with": id_of(site, "other")})
    assert ">no data</span>" in apart


def test_hidden_answers_are_never_compared_and_other_questions_are_refused(folder):
    write_card(folder / "hidden-2", split=Split.TEST_PRIVATE, checkpoint="other")
    site = Site(Catalog(folder))
    page = asked(site, "compare", id_of(site, "hidden"), **{"with": id_of(site, "hidden-2")})
    assert "Items are hidden" in page and "its answer" not in page
    for other_card in (id_of(site, "shown"), id_of(site, "open"), "no-such-card"):
        with pytest.raises(NoSuchPageError):
            asked(site, "compare", id_of(site, "hidden"), **{"with": other_card})
    assert all(entry.kind is EntryKind.CARD for entry in site.catalog.scan().entries.values())
