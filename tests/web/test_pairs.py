"""Two cards compared item by item."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from agent2.cards.writer import CardWriter
from agent2.records import Split
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.page import NoSuchPageError
from agent2.web.site import Site
from card_builders import make_header, make_record
from web_builders import (
    html_of,
    id_of,
    status_of,
    write_card,
)


def write_answers(path: Path, scores: dict[str, float | None], checkpoint: str, seed: int = 0) -> Path:
    """A finished card with one rollout for each item."""
    with CardWriter(path, make_header(checkpoint_name=checkpoint, seed=seed)) as writer:
        for item, value in scores.items():
            record = make_record(item, value)
            writer.append(
                structs.replace(record, rollout=structs.replace(record.rollout, answer=f"{checkpoint} says {item}"))
            )
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


def test_an_episode_without_an_answer_shows_the_reason_and_columns_without_any_text_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    for name, reason in (("old", "nothing was ordered"), ("new", "bought p7"), ("bare", ""), ("other", "")):
        with CardWriter(tmp_path / "results" / name, make_header(checkpoint_name=name)) as writer:
            record = make_record("a", 1.0)
            score = structs.replace(record.score, reason=reason)
            writer.append(structs.replace(record, rollout=structs.replace(record.rollout, answer=""), score=score))
            writer.close()
    site = Site(Catalog(tmp_path / "results"))
    ids = {name: id_of(site.catalog, name) for name in ("old", "new", "bare", "other")}
    page = html_of(site, "compare", ids["new"], **{"with": ids["old"]})
    assert "nothing was ordered" in page and "bought p7" in page and ">its answer</th>" in page
    assert ">its answer</th>" not in html_of(site, "compare", ids["bare"], **{"with": ids["other"]})


def test_two_cards_are_compared_item_by_item_with_filters_in_the_address(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_answers(root / "old", {"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}, "old")
    write_answers(root / "new", {"a": 0.0, "b": 1.0, "c": 1.0, "e": 1.0}, "new")
    site = Site(Catalog(root))
    new, old = id_of(site.catalog, "new"), id_of(site.catalog, "old")
    page = html_of(site, "compare", new, **{"with": old})
    kinds = ("all", "lost", "won", "both failed", "no score")
    assert [re.search(rf">{kind} (\d+)</a>", page)[1] for kind in kinds] == ["5", "1", "1", "0", "2"]
    assert f"/rollout/{new}/0?beside={old}" in page and "old says d" in page
    lost = html_of(site, "compare", new, **{"with": old, "kind": "lost"})
    assert status_of(lost) == "1 rollout" and "new says a" in lost and "new says b" not in lost
    assert f"with={old}&amp;kind=won" in lost, "the pair and the filter are in the address"
    assert "with=" + new in lost, "the other way round"
    searched = html_of(site, "compare", new, **{"with": old, "q": "old says"})
    assert status_of(searched) == "4 rollouts with “old says” in item ids, questions, answers of both"
    assert f'<option value="{old}">' in html_of(site, "card", new), "a card leads there"


def test_a_comparison_tells_the_claim_or_why_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    items = [f"item-{number:03}" for number in range(60)]
    write_answers(root / "old", dict.fromkeys(items, 0.0), "old")
    write_answers(root / "new", dict.fromkeys(items, 1.0), "new")
    write_answers(root / "other", {"z": 1.0}, "other", seed=9)
    site = Site(Catalog(root))
    page = html_of(site, "compare", id_of(site.catalog, "new"), **{"with": id_of(site.catalog, "old")})
    assert ">better</span>: +100.0" in page
    apart = html_of(site, "compare", id_of(site.catalog, "new"), **{"with": id_of(site.catalog, "other")})
    assert ">no data</span>" in apart
    write_answers(root / "close", dict.fromkeys(items, 0.0) | {items[0]: 1.0}, "close")
    site = Site(Catalog(root))
    close = html_of(site, "compare", id_of(site.catalog, "close"), **{"with": id_of(site.catalog, "old")})
    assert re.search(r">unclear</span>: \+1\.7[^<]* points; \w", close), "an interval alone does not say why"


def test_a_rollout_is_headed_by_its_question_and_a_hidden_one_by_its_id(folder):
    site = Site(Catalog(folder))
    shown = html_of(site, "rollout", id_of(site.catalog, "shown"), "0")
    assert "<title>question secret-0: " in shown and "item-000" in shown
    hidden = html_of(site, "rollout", id_of(site.catalog, "hidden"), "0")
    assert "<title>item-000: " in hidden and "secret-0" not in hidden


def test_hidden_answers_are_never_compared_and_other_questions_are_refused(folder):
    write_card(folder / "hidden-2", split=Split.TEST_PRIVATE, checkpoint="other")
    site = Site(Catalog(folder))
    page = html_of(site, "compare", id_of(site.catalog, "hidden"), **{"with": id_of(site.catalog, "hidden-2")})
    assert "Items are hidden" in page and "its answer" not in page
    for other_card in (id_of(site.catalog, "shown"), id_of(site.catalog, "open"), "no-such-card"):
        with pytest.raises(NoSuchPageError):
            html_of(site, "compare", id_of(site.catalog, "hidden"), **{"with": other_card})
    assert all(entry.kind is EntryKind.CARD for entry in site.catalog.scan().entries.values())
