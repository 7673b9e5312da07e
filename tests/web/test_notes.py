"""Notes on rollouts: what is saved, to what it is bound, who may send it, and that nothing else is written."""

import html
import json

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from agent2.cli import app
from agent2.errors import ConfigError
from agent2.records import Split
from agent2.web.catalog import Catalog
from agent2.web.notes import NOTES_FILE, card_digest
from agent2.web.server import is_own_form
from web_builders import (
    HOSTILE,
    OWN_PAGE,
    client_of,
    digest_of_tree,
    id_of,
    write_card,
)


@pytest.fixture
def folder(tmp_path):
    write_card(tmp_path / "one")
    write_card(tmp_path / "two", checkpoint="better")
    write_card(tmp_path / "hidden", split=Split.TEST_PRIVATE)
    write_card(tmp_path / "open", is_open=True)
    return tmp_path


def test_a_note_is_one_line_bound_to_the_card_and_nothing_else_changes(folder):
    client, card = client_of(folder), id_of(Catalog(folder), "one")
    before = digest_of_tree(folder)
    form = {"turn": "t1", "label": "wrong_place", "comment": f"Über {HOSTILE}\nsecond line", "author": "Ada"}
    saved = client.post(f"/note/{card}/2?show=failed", data=form, headers=OWN_PAGE)
    assert saved.status_code == 303 and saved.headers["location"] == f"/rollout/{card}/2?show=failed#t1"
    (line,) = (folder / NOTES_FILE).read_text().splitlines()
    record = json.loads(line)
    assert (record["item_id"], record["attempt"], record["turn"]) == ("item-002", 0, "t1")
    assert record["card"] == card_digest(folder / "one") and record["comment"].startswith("Über")
    text = client.get(f"/rollout/{card}/2").text
    assert "Ada" in text and "1 note" in text and "<img src=x" not in text
    client.post(f"/note/{card}/2", data={"comment": "again"}, headers=OWN_PAGE)
    assert (folder / NOTES_FILE).read_text().splitlines()[0] == line, "only ever appended to"
    assert "Ada" not in client.get(f"/rollout/{card}/1").text
    assert "Ada" not in client.get(f"/rollout/{id_of(Catalog(folder), 'two')}/2").text, (
        "another card with the same item"
    )
    (folder / NOTES_FILE).unlink()
    assert digest_of_tree(folder) == before


@pytest.mark.parametrize(
    ("form", "message"),
    [({}, "the note is empty"), ({"label": "  ", "comment": "\x1b"}, "the note is empty"),
     ({"comment": "x", "turn": "t9"}, "no turn"), ({"comment": "x", "turn": "p2"}, "no turn"),
     ({"comment": "x", "turn": "t2-reply"}, "no turn"), ({"comment": "x", "turn": "t1\n"}, "no turn"),
     ({"comment": "x", "turn": HOSTILE}, "no turn"),
     ({"comment": "é" * 4001}, "the comment has 4,001 characters, at most 4,000 are kept"),
     ({"label": "x" * 81}, "the label has 81 characters, at most 80 are kept")],
)  # fmt: skip
def test_a_wrong_note_is_refused_with_a_reason(folder, form, message):
    answer = client_of(folder).post(f"/note/{id_of(Catalog(folder), 'one')}/1", data=form, headers=OWN_PAGE)
    assert answer.status_code == 422 and message in answer.text and "<img src=x" not in answer.text
    for field in form.keys() - {"turn"}:
        assert html.escape(form[field].strip().replace("\x1b", "")) in answer.text, "nothing that was written is lost"
    assert not (folder / NOTES_FILE).exists()


def test_a_note_with_tabs_is_kept_whole(folder):
    client, card = client_of(folder), id_of(Catalog(folder), "one")
    assert client.post(f"/note/{card}/2", data={"comment": "look:\n\tx = 1"}, headers=OWN_PAGE).status_code == 303
    assert json.loads((folder / NOTES_FILE).read_text())["comment"] == "look:\n    x = 1"


def test_notes_are_taken_from_the_apps_own_pages_only(folder):
    client, card = client_of(folder), id_of(Catalog(folder), "one")
    for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"},
                    {"origin": "http://evil.example"}, {"origin": "null"}):  # fmt: skip
        assert client.post(f"/note/{card}/1", data={"comment": "x"}, headers=headers).status_code == 403, headers
    assert client.post(f"/note/{card}/1", content=b"comment=" + b"x" * 60_000, headers=OWN_PAGE).status_code == 403
    assert client.post(f"/note/{card}/1", content=b"comment=\xff", headers=OWN_PAGE).status_code == 403
    elsewhere = TestClient(client.app, base_url="http://evil.example")
    assert elsewhere.post(f"/note/{card}/1", data={"comment": "x"}, headers=OWN_PAGE).status_code == 421
    assert not (folder / NOTES_FILE).exists()
    assert is_own_form(None, None), "a program that is no browser"


def test_hidden_open_and_missing_rollouts_take_no_note(folder):
    client = client_of(folder)
    for name, line, status in (("hidden", 1, 422), ("open", 1, 422), ("one", 99, 404)):
        answer = client.post(f"/note/{id_of(Catalog(folder), name)}/{line}", data={"comment": "x"}, headers=OWN_PAGE)
        assert answer.status_code == status, name
    assert client.post("/note/none/1", data={"comment": "x"}, headers=OWN_PAGE).status_code == 404
    hidden = id_of(Catalog(folder), "hidden")
    revealing = client_of(folder, shows_hidden=True)
    assert revealing.post(f"/note/{hidden}/1", data={"comment": "quoted"}, headers=OWN_PAGE).status_code == 303
    assert "quoted" in revealing.get(f"/rollout/{hidden}/1").text
    assert "quoted" not in client.get(f"/rollout/{hidden}/1").text


def test_lines_that_cannot_be_read_are_counted_and_kept(folder):
    client, card = client_of(folder), id_of(Catalog(folder), "one")
    (folder / NOTES_FILE).write_bytes(b'{"format": "agent2-note-9"}\n\xff\xfe\nhalf a li')
    assert client.post(f"/note/{card}/1", data={"label": "odd"}, headers=OWN_PAGE).status_code == 303
    text = client.get(f"/rollout/{card}/1").text
    assert "odd" in text and "3 lines of the folder" in text
    assert b"half a li\n{" in (folder / NOTES_FILE).read_bytes(), "a torn line spoils no other"


def test_notes_are_never_written_through_a_link(folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("elsewhere") / "file"
    target.write_text("mine")
    (folder / NOTES_FILE).symlink_to(target)
    answer = client_of(folder).post(f"/note/{id_of(Catalog(folder), 'one')}/1", data={"comment": "x"}, headers=OWN_PAGE)
    assert answer.status_code == 422 and "cannot be written" in answer.text and target.read_text() == "mine"


def test_verdicts_in_notes_are_compared_with_the_scorer_by_the_command(folder, tmp_path):
    runner, client, card = CliRunner(), client_of(folder), id_of(Catalog(folder), "one")
    refused = runner.invoke(app, ["spotcheck", "notes", str(folder / "one")])
    assert isinstance(refused.exception, ConfigError) and "no agent2-notes.jsonl" in str(refused.exception)

    def note(line, label, author, turn=""):
        form = {"turn": turn, "label": label, "author": author}
        assert client.post(f"/note/{card}/{line}", data=form, headers=OWN_PAGE).status_code == 303

    # rollouts 2 and 5 failed, the others passed
    for line, label in enumerate(("right", "right", "wrong", "wrong", "Right", "unsure")):
        note(line, label, "Ada")
    note(3, "right", "Ada")
    for line, label in ((0, "wrong"), (1, "right")):
        note(line, label, "Bob")
    note(2, "right", "Bob", turn="t1")
    note(0, "looks odd", "Bob")
    result = runner.invoke(app, ["spotcheck", "notes", str(folder / "one"), "--json"])
    report = json.loads(result.stdout)
    assert report["raters"]["Ada"]["agreement"]["value"] == 1.0 and report["raters"]["Ada"]["agreement"]["n"] == 5
    assert report["raters"]["Bob"]["agreement"]["value"] == 0.5 and report["raters"]["Bob"]["agreement"]["n"] == 2
    assert report["n_unsure"] == {"Ada": 1, "Bob": 0} and report["people"]["agreement"]["n"] == 5
    assert [disagreement["people"] for disagreement in report["disagreements"]] == [{"Ada": "right", "Bob": "wrong"}]
    output = runner.invoke(app, ["spotcheck", "notes", str(folder / "one")]).stdout
    assert "Ada with the scorer (1 unsure)" in output
    pairs = runner.invoke(app, ["spotcheck", "notes", str(folder / "one"), "--pairs", str(tmp_path / "pairs.jsonl")])
    assert isinstance(pairs.exception, ConfigError) and not (tmp_path / "pairs.jsonl").exists()
    result_of_other = runner.invoke(app, ["spotcheck", "notes", str(folder / "two")])
    assert "no note is a verdict" in str(result_of_other.exception), "notes are bound to their card"
