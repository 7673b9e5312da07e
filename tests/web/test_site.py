"""Every kind of page, of healthy, broken and hostile results, as a client requests it."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient
from msgspec import structs

from agent2.cards.writer import CardWriter
from agent2.records import Split, StopReason, Turn
from agent2.web.catalog import Catalog
from agent2.web.entries import EntryKind
from agent2.web.page import LiveLinks, PageAddress, UnreadableResultError
from agent2.web.server import ReaderGuard, make_view_app
from agent2.web.site import Site
from card_builders import make_header, make_record, write_old_card
from web_builders import (
    HOSTILE,
    OWN_PAGE,
    client_of,
    digest_of_tree,
    html_of,
    id_of,
    status_of,
    write_card,
    write_evaluation,
    write_scores,
    write_trial,
)

POLICY = "content-security-policy"
STARTED = ({"event": "base_scored", "split": "test_public", "score": {"value": 0.5}}, {"event": "agent_started"})


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        top = tmp_path_factory.mktemp("web")
        patch.setenv("AGENT2_HOME", str(top / "home"))
        root = top / "results"
        write_evaluation(top / "players", root / "an evaluation")
        write_card(root / "cards" / "one")
        write_card(root / "cards" / "two", checkpoint="better")
        write_card(root / "cards" / "hidden", split=Split.TEST_PRIVATE)
        write_card(root / "cards" / "open", is_open=True)
        write_trial(root / "trials" / "killed", *STARTED)
        write_trial(root / "trials" / "interrupted", *STARTED, {"event": "agent_interrupted", "reason": HOSTILE})
        write_trial(root / "trials" / "broken").joinpath("trial.json").write_text("{")
        (root / f"{HOSTILE.replace('/', '')[:60]}").mkdir()
        write_card(root / HOSTILE.replace("/", "")[:60] / "card").joinpath("card.json").write_text('{"format": 99}')
        yield root


@pytest.fixture(scope="module")
def site(results):
    return Site(Catalog(results))


@pytest.fixture(scope="module")
def client(site):
    return TestClient(make_view_app(site, ReaderGuard("127.0.0.1", None)), base_url="http://127.0.0.1")


def links_of(text):
    return [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"]*)"', text)]


def test_home_tells_killed_interrupted_and_broken_trials_apart(client):
    text = client.get("/").text
    assert "killed in its agent phase" in text and "cannot be read" in text and "agent2 resume" in text
    assert "Nothing is running." in text and "evaluations 1" in text


@pytest.mark.parametrize("kind", ["card", "history", "trial", "evaluation"])
def test_an_address_without_a_result_says_where_to_find_one(client, kind):
    answer = client.get(f"/{kind}")
    assert answer.status_code == 404 and "open one from the list of all results" in answer.text


def test_every_page_that_can_be_reached_answers_and_nothing_hostile_becomes_markup(client, results):
    before = digest_of_tree(results)
    queue, answers = ["/"], {}
    while queue and len(answers) < 150:
        link = queue.pop(0)
        if link in answers:
            continue
        answer = answers[link] = client.get(link)
        assert answer.status_code in (200, 422), link
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        if link.startswith("/static/"):
            continue
        assert "<img src=x" not in answer.text and "<script>document" not in answer.text, link
        assert "\x1b" not in answer.text and "\u202e" not in answer.text, link
        if not link.startswith("/download/"):
            queue += [found for found in links_of(answer.text) if not re.search(r"[?&;](sort|columns)=", found)]
    kinds = {link.split("/")[1].partition("?")[0] for link in answers}
    assert {"", "trial", "evaluation", "card", "rollout", "static"} <= kinds
    assert digest_of_tree(results) == before, "looking changes nothing"


def test_a_card_of_a_newer_version_says_so(client, site):
    answer = client.get(f"/card/{id_of(site.catalog, 'card', EntryKind.CARD)}")
    assert answer.status_code == 422 and "This cannot be shown" in answer.text


def test_what_is_not_there_is_not_found(client):
    for link in ("/card/nothing", "/nothing/at-all", "/rollout/x/0", "/static/site.py", "/a/b/c/d", "/live/trial/x"):
        assert client.get(link).status_code == 404, link


@pytest.mark.parametrize(
    ("query", "n"),
    [("", 6), ("show=failed", 2), ("show=passed", 4), ("q=item-004", 1), ("q=secret-3", 1), ("q=secret-3&in=turns", 1),
     ("label=wrong_place", 2), ("q=' or 1=1 --", 0), ("page=99999999999", 6), ("sort=drop&order=x&show=y", 6)],
)  # fmt: skip
def test_a_card_is_filtered_by_its_address(client, site, query, n):
    text = client.get(f"/card/{id_of(site.catalog, 'one', EntryKind.CARD)}?{query}").text
    assert f"{n} rollout" in text and text.count('data-name="score"') == n


def test_a_card_shows_how_its_rollouts_were_worked_beside_what_came_of_them(client, site):
    address = f"/card/{id_of(site.catalog, 'one', EntryKind.CARD)}"
    text = client.get(address).text
    assert "Process: how the work was done" in text and "repeated actions" in text
    assert "Process: how" not in client.get(f"{address}?show=failed").text, "it is of the whole card"


def test_arrow_keys_lead_from_failure_to_failure(client, site):
    card = id_of(site.catalog, "one", EntryKind.CARD)
    text = client.get(f"/rollout/{card}/2").text
    assert re.search(rf'href="/rollout/{card}/5" data-key="ArrowRight"', text)
    assert "ArrowLeft" not in text
    assert 'data-key="ArrowLeft"' in client.get(f"/rollout/{card}/5").text


def test_a_rollout_is_shown_beside_the_same_item_of_another_card(client, site):
    first, two = id_of(site.catalog, "one", EntryKind.CARD), id_of(site.catalog, "two", EntryKind.CARD)
    text = client.get(f"/rollout/{first}/1?beside={two}").text
    assert 'id="t1"' in text and 'id="other-t1"' in text and "better" in text
    assert f"beside={two}" in next(link for link in links_of(text) if link.startswith(f"/rollout/{first}/2"))


def test_hidden_items_show_no_text_unless_asked_for(client, site, results):
    card = id_of(site.catalog, "hidden", EntryKind.CARD)
    revealing = TestClient(make_view_app(Site(site.catalog, shows_hidden=True), ReaderGuard("127.0.0.1", None)))
    revealing.base_url = "http://127.0.0.1"
    for link in (
        f"/rollout/{card}/1",
        f"/card/{card}",
        f"/download/rollout/{card}?part=1",
        f"/card/{card}?q=secret-1&in=turns",
    ):
        assert "secret-1<" not in client.get(link).text and "look for 1" not in client.get(link).text, link
    assert "question secret-1" in revealing.get(f"/rollout/{card}/1").text


def test_the_figure_of_an_evaluation_comes_by_itself_and_in_the_readers_colours(client, site):
    evaluation = id_of(site.catalog, "an evaluation", EntryKind.EVALUATION)
    page = client.get(f"/evaluation/{evaluation}").text
    assert f'src="/figure/{evaluation}"' in page and "<svg" not in page, "the page does not wait for it"
    figure = client.get(f"/figure/{evaluation}")
    assert figure.headers["content-type"] == "image/svg+xml" and figure.text.startswith("<svg")
    assert "prefers-color-scheme: dark" in figure.text and "default-src 'none'" in figure.headers[POLICY]
    ElementTree.fromstring(figure.text)
    assert "<svg" in client.get(f"/download/evaluation/{evaluation}").text
    assert client.get("/figure/none").status_code == 404
    assert client.get(f"/figure/{id_of(site.catalog, 'one', EntryKind.CARD)}").status_code == 404


def test_a_download_is_one_file_without_scripts(client, site):
    card = id_of(site.catalog, "one", EntryKind.CARD)
    evaluation = id_of(site.catalog, "an evaluation", EntryKind.EVALUATION)
    for link, text in (
        (f"/download/rollout/{card}?part=1", "question secret-1"),
        (f"/download/card/{card}?show=failed", "2 rollouts"),
        (f"/download/evaluation/{evaluation}", "Release decision"),
        ("/download/home", "All results"),
    ):
        answer = client.get(link)
        assert "attachment" in answer.headers["content-disposition"]
        assert not re.search(r"<(script|img|link|iframe|form)\b", answer.text) and text in answer.text
        assert not re.search(r'href="(?!#)', answer.text), "nothing outside the file is linked"
    assert len(client.get(f"/download/rollout/{card}?part=2").text) > 300_000, "texts are there to their end"
    for link in ("/download/rollout/none?part=1", "/download/nothing", f"/download/rollout/{card}?part=x%0d%0ay"):
        assert client.get(link).status_code == 404, link


def test_an_evaluation_leads_to_the_rollout_of_a_lost_item(client, site):
    text = client.get(f"/evaluation/{id_of(site.catalog, 'an evaluation', EntryKind.EVALUATION)}").text
    assert text.index("Release decision") < text.index(">Gates<") < text.index(">Metrics<") < text.index("Items lost")
    lost = next(link for link in links_of(text) if link.startswith("/rollout/"))
    beside = client.get(lost).text
    assert "weak" in beside and "strong" in beside and "failed" in beside


def test_an_evaluation_lists_visible_items_by_their_questions(client, site):
    text = client.get(f"/evaluation/{id_of(site.catalog, 'an evaluation', EntryKind.EVALUATION)}").text
    for kind in ("won", "failed on both sides"):
        (item,) = re.findall(rf'<summary>{kind}: \d+</summary>.*?<a href="[^"]+" title="([^"]+)">([^<]+)</a>', text)[:1]
        assert item[1] and item[1] != item[0]


def test_every_metric_of_an_evaluation_leads_to_the_rollouts_behind_it(client, site):
    entry = id_of(site.catalog, "an evaluation", EntryKind.EVALUATION)
    page = client.get(f"/evaluation/{entry}").text
    table = page[page.index("<h2>Metrics</h2>") : page.index("Items lost and won")]
    metric_links = dict(
        re.findall(r'<a href="(/compare/[^"]+)">(?:<wbr>|\w)*?(sums|doubles)_', table.replace("<wbr>", ""))
    )
    assert set(metric_links.values()) == {"sums", "doubles"}
    for link in metric_links:
        answer = client.get(link.replace("&amp;", "&"))
        assert answer.status_code == 200 and "strong" in answer.text and "weak" in answer.text


def test_an_empty_folder_and_one_that_vanishes_are_told(tmp_path):
    folder = tmp_path / "folder"
    write_card(folder / "card")
    catalog = Catalog(folder)
    client = TestClient(make_view_app(Site(catalog), ReaderGuard("localhost", None)), base_url="http://localhost")
    (card,) = catalog.scan().entries
    folder.rename(tmp_path / "gone")
    assert client.get(f"/card/{card}").status_code in (404, 422)
    folder.mkdir()
    empty = TestClient(
        make_view_app(Site(Catalog(folder)), ReaderGuard("localhost", None)), base_url="http://localhost"
    )
    assert "Nothing here yet" in empty.get("/").text


@pytest.mark.parametrize("form", [1, 2])
def test_cards_of_older_formats_are_listed_filtered_compared_and_status_of(tmp_path, monkeypatch, form):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    records = [make_record(f"item-{number}", float(number % 2), text=f"answer {number}") for number in range(6)]
    for name in ("old", "older"):
        write_old_card(tmp_path / "results" / name, records, form, make_header(checkpoint_name=name))
    site = Site(Catalog(tmp_path / "results"))
    card = id_of(site.catalog, "old")
    assert status_of(html_of(site, "card", card, show="failed")) == "3 rollouts"
    assert "answer 3" in html_of(site, "rollout", card, "3")
    assert status_of(html_of(site, "search", q="answer 3")) == "2 rollouts on 2 cards"
    pair = html_of(site, "compare", card, **{"with": id_of(site.catalog, "older")})
    assert ">both passed 3</a>" in pair and ">lost 0</a>" in pair


def test_attempts_have_a_histogram_and_notes_are_a_filter(tmp_path):
    scores = {("item", attempt): attempt % 3 / 2 for attempt in range(8)} | {
        ("other", attempt): 1.0 for attempt in range(8)
    }
    write_scores(tmp_path / "one", scores | {("other", 7): None})
    client, card = client_of(tmp_path), id_of(Catalog(tmp_path), "one")
    text = client.get(f"/rollout/{card}/0").text
    bins = re.findall(r'<li><span>(\d+)<.*?class="muted">([\d.]+)<', text)
    assert bins == [("3", "0"), ("3", "0.5"), ("2", "1")]
    assert client.post(f"/note/{card}/3", data={"label": "odd"}, headers=OWN_PAGE).status_code == 303
    for note, n in (("odd", 1), ("*", 1), ("even", 0), ("", 16)):
        assert f"{n} rollout" in client.get(f"/card/{card}?note={note}").text, note
    assert "odd (1)" in client.get(f"/card/{card}").text
    assert "next rollout of the list" not in client.get(f"/rollout/{card}/3?note=odd").text


def test_a_hidden_rollout_beside_another_tells_nothing_of_what_was_said(tmp_path):
    write_card(tmp_path / "one")
    head = make_header()
    with CardWriter(
        tmp_path / "hidden", replace(head, protocol=replace(head.protocol, split=Split.TEST_PRIVATE, attempts=1))
    ) as writer:
        record = make_record("item-001")
        call = Turn('{"name": "peek_at_vault", "arguments": {}}', "secret-1", StopReason.END, 10, 5)
        writer.append(structs.replace(record, rollout=structs.replace(record.rollout, turns=[call])))
        writer.close()
    hidden, visible = id_of(Catalog(tmp_path), "hidden"), id_of(Catalog(tmp_path), "one")
    for link in (
        f"/rollout/{visible}/1?beside={hidden}",
        f"/rollout/{hidden}/0?beside={visible}",
        f"/download/rollout/{visible}?part=1&beside={hidden}",
    ):
        text = client_of(tmp_path).get(link).text
        assert "peek_at_vault" not in text and "secret-1<" not in text.replace("question secret-1", ""), link
    assert "peek_at_vault" in client_of(tmp_path, shows_hidden=True).get(f"/rollout/{visible}/1?beside={hidden}").text


@pytest.mark.parametrize("is_verbose", [False, True])
def test_a_trace_is_logged_only_if_asked_for(tmp_path, monkeypatch, caplog, is_verbose):
    monkeypatch.setenv("AGENT2_VERBOSE", "1" if is_verbose else "")
    (tmp_path / "monitor.json").write_text('{"signals": []}')
    site = Site(Catalog(tmp_path))
    (entry,) = site.catalog.scan().entries
    with pytest.raises(UnreadableResultError, match="KeyError"):
        site.html(PageAddress("training", entry), LiveLinks())
    (record,) = caplog.records
    assert "cannot be shown: KeyError: " in record.message and bool(record.exc_info) is is_verbose


def test_evidence_is_a_link_where_a_page_has_it_and_text_elsewhere(tmp_path):
    site = Site(Catalog(tmp_path))
    proof = "{% import 'macros.html.j2' as m with context %}{{ m.proof(lines) }}"
    template = site._engine.from_string(proof)
    line = {"where": 'a"<b>.py:1', "text": "x"}
    assert '<a href="/t#&#34;">a&#34;&lt;b&gt;.py:1</a>' in template.render(lines=[line], evidence=lambda w: '/t#"')
    assert "<a" not in template.render(lines=[line], evidence=lambda w: "") + template.render(lines=[line])
