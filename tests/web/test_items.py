"""What pages show of items: question, reference, answer, place in the data; and nothing of hidden ones."""

import json
import re
from dataclasses import replace

import pytest
from msgspec import structs

from agent2.cards.writer import CardWriter
from agent2.evaluation.suite_folder import read_places, read_references
from agent2.records import Message, Split
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.export import export_site
from agent2.web.items import shown_questions
from agent2.web.page import PageAddress
from agent2.web.site import Site
from card_builders import make_header, make_record
from web_builders import html_of, status_of

IDENTITY = {
    "format": 1, "suite": "s", "suite_digest": "d", "role": "dev", "split": "dev", "seed": 0,
    "sides": {side: {"name": side, "digest": side} for side in ("baseline", "checkpoint")},
}  # fmt: skip
TASK = "Answer with a number alone.\nQuestion: "


def write_side(out, side: str, split: Split, n: int = 60) -> None:
    """A finished card of an evaluation with questions and answers of its own."""
    header = make_header(checkpoint_name=side)
    header = replace(header, protocol=replace(header.protocol, split=split, attempts=1))
    with CardWriter(out / "cards" / side / f"sums-{split.value}", header) as writer:
        for number in range(n):
            record = make_record(f"sums-{number:04}", float(number % 2))
            prompt = [Message("system", "You are sharp."), Message("user", f"{TASK}What is {number} plus wagons?")]
            rollout = structs.replace(record.rollout, prompt=prompt, answer=f"{side} says {number}")
            score = structs.replace(record.score, extracted=f"<{number}>" if number == 1 else None)
            writer.append(structs.replace(record, rollout=rollout, score=score))
        writer.close()


def write_evaluation_of(out, split: Split, n: int = 60) -> None:
    """An evaluation with a reference and a place for each item, also where the split is hidden and has none."""
    for side in ("baseline", "checkpoint"):
        write_side(out, side, split, n)
    (out / "evaluation.json").write_text(json.dumps(IDENTITY | {"split": split.value}))
    (out / "references.json").write_text(json.dumps({"sums": {f"sums-{k:04}": f"expected-{k}" for k in range(n)}}))
    payloads = {f"sums-{k:04}": {"level": f"grade {k % 3}", "tag": f"only-{k}"} for k in range(n)}
    (out / "payloads.json").write_text(json.dumps({"sums": payloads}))
    (out / "places.json").write_text(json.dumps({"sums": {f"sums-{k:04}": f"qa.csv:{k + 2}" for k in range(n)}}))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    root = tmp_path / "results"
    write_evaluation_of(root / "open", Split.DEV)
    write_evaluation_of(root / "secret", Split.TEST_PRIVATE)
    return root


def card_of(site: Site, path: str) -> str:
    return next(entry.id for entry in site.catalog.scan().entries.values() if entry.display_path == path)


def test_a_card_lists_question_reference_answer_and_the_row_of_the_data(root):
    site = Site(Catalog(root))
    page = html_of(site, "card", card_of(site, "open/cards/checkpoint/sums-dev"))
    assert ">qa.csv:2</a>" in page and '<div class="muted small">sums-0000</div>' in page
    assert "… What is 3 plus wagons?" in page and "Answer with a number" not in page, "what all begin with is left out"
    assert "expected-3" in page and "checkpoint says 3" in page
    assert "&lt;1&gt; ← checkpoint says 1" in page, "what the scorer read comes first"
    rollout = html_of(site, "rollout", card_of(site, "open/cards/checkpoint/sums-dev"), "3")
    assert "expected-3" in rollout and "<title>qa.csv:5: " in rollout and "sums-0003" in rollout
    hidden = html_of(site, "rollout", card_of(site, "secret/cards/checkpoint/sums-test_private"), "3")
    assert "<title>sums-0003: " in hidden and "qa.csv" not in hidden, "the place of a hidden item is nobody's business"


def test_a_comparison_shows_and_searches_questions(root):
    site = Site(Catalog(root))
    new, old = (card_of(site, f"open/cards/{side}/sums-dev") for side in ("checkpoint", "baseline"))
    page = html_of(site, "compare", new, **{"with": old})
    assert "What is 3 plus wagons?" in page and "expected-3" in page and "qa.csv:5" in page
    searched = html_of(site, "compare", new, **{"with": old, "q": "is 7 plus"})
    assert status_of(searched) == "1 rollout with “is 7 plus” in item ids, questions, answers of both"


def test_a_search_finds_questions_and_says_where_it_looked(root, monkeypatch):
    site = Site(Catalog(root))
    page = html_of(site, "search", q="is 7 plus")
    assert status_of(page) == "2 rollouts on 2 cards" and "questions, answers" in page
    assert "Of hidden items only ids are searched; <code>agent2 view --show-hidden</code>" in page
    card = card_of(site, "open/cards/checkpoint/sums-dev")
    on_card = status_of(html_of(site, "card", card, q="is 7 plus"))
    assert (
        on_card
        == "1 rollout with “is 7 plus” in item ids, questions, answers, scorers&#39; reasons and fields of the items"
    )
    nothing = html_of(site, "search", q="You are sharp")
    assert status_of(nothing) == "0 rollouts on 0 cards" and "/search?q=You+are+sharp&amp;in=turns" in nothing
    monkeypatch.setattr("agent2.web.rollouts.MOST_QUESTIONS", 10)
    large = html_of(site, "search", q="is 7 plus")
    assert status_of(large) == "0 rollouts on 0 cards" and "Questions of 4 large cards were not read" in large


def test_nothing_of_a_hidden_item_is_shown_even_where_a_reference_was_left(root, tmp_path):
    site = Site(Catalog(root))
    new, old = (card_of(site, f"secret/cards/{side}/sums-test_private") for side in ("checkpoint", "baseline"))
    pages = [
        html_of(site, "card", new), html_of(site, "card", new, q="wagons"), html_of(site, "rollout", new, "3"),
        html_of(site, "compare", new, **{"with": old}), html_of(site, "rollout", new, "3", beside=old),
        html_of(site, "card", new, q="zzz"), html_of(site, "card", new, columns="level"),
        html_of(site, "search", q="sums-0003"), site.standalone(PageAddress("card", new)),
    ]  # fmt: skip
    for page in pages[:-2]:
        assert not re.search(r"plus wagons|expected-|qa\.csv|says \d|grade|only-", page)
    section = html_of(site, "search", q="sums-0003").replace("<wbr>", "").partition("secret/cards")[2]
    assert "sums-0003" in section and not re.search(r"plus wagons|expected-|qa\.csv|grade|only-", section)
    assert "expected-" not in pages[-1]
    assert status_of(html_of(site, "card", new, q="wagons")) == "0 rollouts with “wagons” in item ids"
    shown = Site(Catalog(root), shows_hidden=True)
    assert "plus wagons" in html_of(shown, "card", new), "to those who may see it"
    export_site(shown, tmp_path / "site")
    exported = {path.name: path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    hidden = [text for name, text in exported.items() if name.startswith("sums-test-private")]
    assert len(hidden) > 2 and not any(re.search(r"plus wagons|expected-|qa\.csv|grade|only-", text) for text in hidden)


def test_the_list_keeps_its_place(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    write_evaluation_of(tmp_path / "results" / "open", Split.DEV, n=130)
    site = Site(Catalog(tmp_path / "results"))
    card = card_of(site, "open/cards/checkpoint/sums-dev")
    assert '<tr id="r60">' in html_of(site, "card", card, page="2")
    assert f'href="/card/{card}?page=2#r60"' in html_of(site, "rollout", card, "60")
    assert f'href="/card/{card}?show=failed#r60"' in html_of(site, "rollout", card, "60", show="failed")
    assert f'href="/card/{card}?order=desc#r120"' in html_of(site, "rollout", card, "120", order="desc")
    assert f'href="/card/{card}?sort=tokens&amp;page=2#r60"' in html_of(
        site, "rollout", card, "60", sort="tokens", page="2"
    )
    old = card_of(site, "open/cards/baseline/sums-dev")
    pairs = html_of(site, "compare", card, **{"with": old, "page": "2"})
    assert f"/rollout/{card}/60?beside={old}&amp;pairs=2" in pairs and '<tr id="r60">' in pairs
    beside = html_of(site, "rollout", card, "60", beside=old, pairs="2")
    assert f'href="/compare/{card}?with={old}&amp;page=2#r60"' in beside
    assert re.search(r"<title>[^<]+ beside [^<]+</title>", beside), "two tabs of one item differ in their names"


def test_a_damaged_file_of_references_breaks_no_page(root):
    (root / "open" / "references.json").write_text("[")
    site = Site(Catalog(root))
    page = html_of(site, "card", card_of(site, "open/cards/checkpoint/sums-dev"))
    assert "What is 3 plus wagons?" in page and "expected-" not in page


def test_questions_lose_only_what_all_of_them_begin_with():
    long = "Read the passage and answer the question in one word. "
    assert shown_questions({1: f"{long}Who?", 4: f"{long}When?"}) == {1: "… Who?", 4: "… When?"}
    assert shown_questions({1: f"{long}Who?"}) == {1: f"{long}Who?"}, "one question is shown whole"
    assert shown_questions({1: long, 2: f"{long}Who?"})[1] == long.strip(), "none becomes empty"
    assert shown_questions({}) == {}
    far = "Once upon a time. " * 40 + "the wagon rolls"
    assert "the wagon rolls" in shown_questions({1: far}, "wagon")[1]


def test_places_are_kept_for_visible_items_alone(root):
    assert read_places(root / "open")["sums"]["sums-0000"] == "qa.csv:2"
    assert read_places(root) == {} and read_references(root) == {}
    assert all(entry.kind in (EntryKind.EVALUATION, EntryKind.CARD) for entry in Catalog(root).scan().entries.values())


def test_fields_of_payloads_are_columns_that_the_address_chooses(root):
    site = Site(Catalog(root))
    card = card_of(site, "open/cards/checkpoint/sums-dev")
    page = html_of(site, "card", card)
    assert '<th scope="col">level</th>' in page and ">grade 1</a>" in page, "a few values that come again and again"
    assert '<th scope="col">tag</th>' not in page, "a field that differs from item to item is shown when asked for"
    both = html_of(site, "card", card, columns="level,tag,unknown")
    assert '<th scope="col">tag</th>' in both and ">only-7</a>" in both and "unknown</th>" not in both
    assert f'href="/card/{card}?columns=tag"' in both, "a chip takes its column away"
    none = html_of(site, "card", card, columns="none")
    assert '<th scope="col">level</th>' not in none and f'href="/card/{card}?columns=level"' in none
    rollout = html_of(site, "rollout", card, "7", columns="none")
    assert "grade 1" in rollout and "only-7" in rollout and f'href="/card/{card}?columns=none#r7"' in rollout


def test_a_search_finds_fields_of_payloads_on_one_card_and_on_all(root):
    site = Site(Catalog(root))
    card = card_of(site, "open/cards/checkpoint/sums-dev")
    assert status_of(html_of(site, "card", card, q="level: grade 1")).startswith("20 rollouts")
    assert status_of(html_of(site, "card", card, q="grade 1", show="failed")).startswith("10 rollouts")
    assert status_of(html_of(site, "card", card, q="tag: grade 1")).startswith("0 rollouts"), "another field"
    assert status_of(html_of(site, "card", card, q="GRADE 1")).startswith("0 rollouts"), "capitals count"
    assert status_of(html_of(site, "search", q="only-7")) == "2 rollouts on 2 cards", "of none that is hidden"
    secret = card_of(site, "secret/cards/checkpoint/sums-test_private")
    assert status_of(html_of(site, "card", secret, q="grade 1")).startswith("0 rollouts")
    rollout = html_of(site, "rollout", card, "4", q="level: grade 1")
    assert f"/rollout/{card}/7?q=level" in rollout, "the next one is the next of the list"
