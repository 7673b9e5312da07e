"""The web app as a browser asks for it: every kind of page, broken and hostile results, who is answered."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient

from agent2.cards.card import ReportingRule
from agent2.cards.query import CardQueries
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError
from agent2.records import SampledToken, Split
from agent2.web import rollouts
from agent2.web.catalog import Catalog, EntryKind, EntryState
from agent2.web.server import ReaderGuard, make_view_app, view_folder
from agent2.web.site import Site
from agent2.web.trials import transcript_of
from card_builders import make_header, make_record
from web_builders import HOSTILE, digest_of_tree, write_card, write_evaluation, write_exchanges, write_trial

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


def id_of(site, kind, name):
    return next(
        entry.id for entry in site.catalog.scan().entries.values() if entry.kind is kind and entry.path.name == name
    )


def links_of(text):
    return [link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"]*)"', text)]


def test_home_tells_killed_interrupted_and_broken_trials_apart(client):
    text = client.get("/").text
    assert "killed in its agent phase" in text and "cannot be read" in text and "agent2 resume" in text
    assert "Nothing is running." in text and "evaluations 1" in text


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
            queue += links_of(answer.text)
    kinds = {link.split("/")[1].partition("?")[0] for link in answers}
    assert {"", "trial", "evaluation", "card", "rollout", "static"} <= kinds
    assert digest_of_tree(results) == before, "looking changes nothing"


def test_a_card_of_a_newer_version_says_so(client, site):
    answer = client.get(f"/card/{id_of(site, EntryKind.CARD, 'card')}")
    assert answer.status_code == 422 and "This cannot be shown" in answer.text


def test_what_is_not_there_is_not_found(client):
    for link in ("/card/nothing", "/nothing/at-all", "/rollout/x/0", "/static/site.py", "/a/b/c/d", "/live/trial/x"):
        assert client.get(link).status_code == 404, link


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
    ("name", "value"), [("value", 1.0), ("low", 0.6), ("high", 0.97), ("n_items", 60), ("n_missing", 1)]
)
def test_a_card_with_an_edited_summary_says_so(tmp_path, monkeypatch, name, value, max_regraded):
    monkeypatch.setattr(rollouts, "MOST_REGRADED", max_regraded)  # as for a small and for a large card
    assert "not what the rollouts give" not in edited(write_card(tmp_path / "honest"), lambda card: None)
    text = edited(write_card(tmp_path / "card"), lambda card: card["summary"].update({name: value}))
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
    text = edited(tmp_path, lambda card: card["summary"].update(value=0.9, n_missing=0))
    assert f"rollouts give: n_missing{', value' if over_attempts == 'mean' else ''}." in text


def test_of_a_large_card_without_any_score_only_an_edited_value_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts, "MOST_REGRADED", 0)
    with CardWriter(tmp_path, replace(make_header(), reporting=ReportingRule(over_attempts="mean"))) as writer:
        for attempt in range(2):
            writer.append(make_record("a", None, attempt=attempt))
        writer.close()
    assert "not what the rollouts give" not in edited(tmp_path, lambda card: None)
    assert "rollouts give: value." in edited(tmp_path, lambda card: card["summary"].update(value=0.9))


def test_a_card_with_an_edited_header_says_so(tmp_path):
    text = edited(write_card(tmp_path / "card"), lambda card: card["header"].update(checkpoint_name="another"))
    assert "was changed after the card was written" in text


@pytest.mark.parametrize(
    ("query", "n"),
    [("", 6), ("show=failed", 2), ("show=passed", 4), ("q=item-004", 1), ("q=secret-3", 0), ("q=secret-3&in=turns", 1),
     ("label=wrong_place", 2), ("q=' or 1=1 --", 0), ("page=99999999999", 6), ("sort=drop&order=x&show=y", 6)],
)  # fmt: skip
def test_a_card_is_filtered_by_its_address(client, site, query, n):
    text = client.get(f"/card/{id_of(site, EntryKind.CARD, 'one')}?{query}").text
    assert f"{n} rollout" in text and text.count('data-name="score"') == n


def test_arrow_keys_lead_from_failure_to_failure(client, site):
    card = id_of(site, EntryKind.CARD, "one")
    text = client.get(f"/rollout/{card}/2").text
    assert re.search(rf'href="/rollout/{card}/5" data-key="ArrowRight"', text)
    assert "ArrowLeft" not in text
    assert 'data-key="ArrowLeft"' in client.get(f"/rollout/{card}/5").text


def test_a_rollout_is_shown_beside_the_same_item_of_another_card(client, site):
    first, two = id_of(site, EntryKind.CARD, "one"), id_of(site, EntryKind.CARD, "two")
    text = client.get(f"/rollout/{first}/1?beside={two}").text
    assert 'id="t1"' in text and 'id="other-t1"' in text and "better" in text
    assert f"beside={two}" in next(link for link in links_of(text) if link.startswith(f"/rollout/{first}/2"))


def test_hidden_items_show_no_text_unless_asked_for(client, site, results):
    card = id_of(site, EntryKind.CARD, "hidden")
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
    evaluation = id_of(site, EntryKind.EVALUATION, "an evaluation")
    page = client.get(f"/evaluation/{evaluation}").text
    assert f'src="/figure/{evaluation}"' in page and "<svg" not in page, "the page does not wait for it"
    figure = client.get(f"/figure/{evaluation}")
    assert figure.headers["content-type"] == "image/svg+xml" and figure.text.startswith("<svg")
    assert "prefers-color-scheme: dark" in figure.text and "default-src 'none'" in figure.headers[POLICY]
    ElementTree.fromstring(figure.text)
    assert "<svg" in client.get(f"/download/evaluation/{evaluation}").text
    assert client.get("/figure/none").status_code == 404
    assert client.get(f"/figure/{id_of(site, EntryKind.CARD, 'one')}").status_code == 404


def test_a_download_is_one_file_without_scripts(client, site):
    card = id_of(site, EntryKind.CARD, "one")
    evaluation = id_of(site, EntryKind.EVALUATION, "an evaluation")
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


def test_kept_tokens_are_shown_by_their_probability_and_never_those_of_hidden_items(tmp_path):
    tokens = [SampledToken(7, "sure", -0.01), SampledToken(8, HOSTILE, -1.0), SampledToken(9, "\n", -9.0)]
    for split in (Split.DEV, Split.TEST_PRIVATE):
        header = make_header()
        protocol = replace(header.protocol, split=split, attempts=1)
        with CardWriter(tmp_path / split.value, replace(header, protocol=protocol)) as writer:
            record = make_record("item-1")
            turn = replace(record.rollout.turns[0], tokens=tokens)
            writer.append(replace(record, rollout=replace(record.rollout, turns=[turn])))
            writer.append(make_record("item-2"))
            writer.close()
    catalog = Catalog(tmp_path)
    client = TestClient(make_view_app(Site(catalog), ReaderGuard("127.0.0.1", None)), base_url="http://127.0.0.1")
    cards = {entry.path.name: entry.id for entry in catalog.scan().entries.values()}
    text = client.get(f"/rollout/{cards['dev']}/0").text
    marks = re.findall(r'class="token (p\d)" title="([^"]*)">([^<]*)<', text)
    assert [mark[:2] for mark in marks] == [
        ("p0", "-0.010 (99%), id 7"), ("p2", "-1.000 (36.8%), id 8"), ("p4", "-9.000 (0.0123%), id 9")
    ]  # fmt: skip
    assert "mean log-probability -3.337, the least likely one 0.0123%" in text and marks[2][2] == "↵"
    assert "<img src=x" not in text and "\x1b" not in text
    assert 'class="drawn"' not in client.get(f"/rollout/{cards['dev']}/1").text, "none were kept"
    assert 'class="drawn"' not in client.get(f"/rollout/{cards['test_private']}/0").text


def test_an_evaluation_leads_to_the_rollout_of_a_lost_item(client, site):
    text = client.get(f"/evaluation/{id_of(site, EntryKind.EVALUATION, 'an evaluation')}").text
    assert text.index("Release decision") < text.index(">Gates<") < text.index(">Metrics<") < text.index("Items lost")
    lost = next(link for link in links_of(text) if link.startswith("/rollout/"))
    beside = client.get(lost).text
    assert "weak" in beside and "strong" in beside and "failed" in beside


def test_every_metric_of_an_evaluation_leads_to_the_rollouts_behind_it(client, site):
    entry = id_of(site, EntryKind.EVALUATION, "an evaluation")
    page = client.get(f"/evaluation/{entry}").text
    table = page[page.index("<h2>Metrics</h2>") : page.index("Items lost and won")]
    metric_links = dict(
        re.findall(r'<a href="(/compare/[^"]+)">(?:<wbr>|\w)*?(sums|doubles)_', table.replace("<wbr>", ""))
    )
    assert set(metric_links.values()) == {"sums", "doubles"}
    for link in metric_links:
        answer = client.get(link.replace("&amp;", "&"))
        assert answer.status_code == 200 and "strong" in answer.text and "weak" in answer.text


def test_only_its_own_address_is_answered(site):
    client = TestClient(make_view_app(site, ReaderGuard("127.0.0.1", None)), base_url="http://evil.example")
    assert client.get("/").status_code == 421


def test_another_host_needs_the_token(site):
    app = make_view_app(site, ReaderGuard("0.0.0.0", "correct-horse-battery"))
    client = TestClient(app, base_url="http://10.0.0.1")
    for link in ("/", "/?token=wrong", "/static/app.js", "/?token=%ff"):
        assert client.get(link).status_code == 403, link
    assert client.get("/?token=correct-horse-battery").status_code == 200
    assert client.get("/").status_code == 200, "the cookie is kept"


def test_a_taken_port_and_a_missing_folder_are_one_line(tmp_path):
    import socket

    with pytest.raises(ConfigError, match="no such folder"):
        view_folder(tmp_path / "no", "127.0.0.1", 0, shows_hidden=False, ready=print)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}"):
            view_folder(tmp_path, "127.0.0.1", port, shows_hidden=False, ready=print)


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


def test_a_running_trial_is_known_by_the_lock_of_its_harness(tmp_path):
    import fcntl

    path = write_trial(tmp_path / "trial", *STARTED)
    catalog = Catalog(tmp_path)
    (entry,) = catalog.scan().entries.values()
    assert catalog.summary(entry).state is EntryState.STOPPED
    with (path / "harness.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        import agent2.web.catalog as module

        module._locks_read = (0.0, frozenset())
        assert catalog.summary(entry).state is EntryState.RUNNING
    module._locks_read = (0.0, frozenset())
    assert catalog.summary(entry).state is EntryState.STOPPED


def test_lines_of_a_query_are_the_lines_of_the_card(site, results):
    with CardQueries([results / "cards" / "one"]) as queries:
        page = queries.page("select line, item_id from rollouts where item_id = ?", parameters=["item-004"])
    assert page.rows == ((4, "item-004"),)


def test_a_transcript_has_each_message_once(tmp_path):
    from agent2.arena.trial_folder import TrialPaths

    paths = TrialPaths(tmp_path)
    write_exchanges(paths.llm)
    transcript = transcript_of(paths)
    turns = [(turn.role, turn.text) for turn in transcript.turns]
    assert [role for role, _ in turns] == ["system", "user", "assistant", "tool", "assistant"]
    assert turns[2][1] == "first answer\nbash({})" and "second answer" in turns[-1][1] and "\x1b" not in turns[1][1]
