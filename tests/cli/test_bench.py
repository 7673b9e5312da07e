"""`agent2 bench` with bad input, and versions after the first."""

import json

import pytest
from msgspec import structs

from agent2.authoring.task_cards import read_cards
from agent2.authoring.versions import read_pilot
from agent2.errors import ConfigError
from agent2.records import Message
from cli_builders import run_agent2 as agent2
from contract_card_builders import make_scored, write_card

PLAYERS = """
import re


def strong(chat):
    number = int(re.search(r"(\\d+)", chat[-1].content)[1])
    return str(2 * number)


def previous(chat):
    return strong(chat) if len(strong(chat)) < 3 else "no"


def weak(chat):
    return "4"
"""
ROLES = [f"--role={role}=scripted:players.py:{role}" for role in ("weak", "previous", "strong")]


def test_drafts_of_failures_are_written_once_and_say_what_was_taken_out(tmp_path):
    record = make_scored("a", 0.0)
    prompt = [Message("user", "Who wrote to a@x.org about ACME?")]
    records = [record, structs.replace(record, rollout=structs.replace(record.rollout, item_id="b", prompt=prompt))]
    write_card(tmp_path / "ev" / "card", records, scorer="exact-v1.0")
    (tmp_path / "ev" / "references.json").write_text('{"fake": {"b": "ACME did"}}')
    (tmp_path / "names.txt").write_text("ACME\n")
    words = ("bench", "draft", "ev", "--out", "drafts.jsonl", "--redact", "names.txt")
    ended = agent2(*words, "--json", home=tmp_path)
    assert json.loads(ended.stdout) == {
        "n_failed": 2,
        "n_cards": 1,
        "n_unanswered": 1,
        "left_out": {},
        "redacted": {"redacted": 1, "email": 1},
    }
    (card,) = read_cards(tmp_path / "drafts.jsonl")
    assert (card.prompt, card.answer) == ("Who wrote to [email 1] about [redacted 1]?", "[redacted 1] did")
    assert json.loads((tmp_path / "drafts.unanswered.jsonl").read_text())["answer"] == ""
    again = agent2(*words, home=tmp_path)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert "ends in .jsonl" in agent2("bench", "draft", "ev", "--out", "drafts", home=tmp_path).stderr


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "players.py").write_text(PLAYERS)
    (tmp_path / "matrix.yaml").write_text("doubling: 10/10/2\n")
    rows = [{"id": f"n{n}", "prompt": f"Double {n}.", "answer": 2 * n, "task_type": "doubling"} for n in range(30, 70)]
    (tmp_path / "cards.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = agent2("bench", "new", "b", "--matrix", "matrix.yaml", "--cards", "cards.jsonl", "--json", home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["deficit"] == 12
    return tmp_path


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        ("fix: 0/0/0", "asks for no item"),
        ("fix:", "row 'fix' is empty"),
        ("fix: 3/4", "give easy, medium and hard"),
        ("fix: {easy: 3, heavy: 4}", "give easy, medium and hard"),
        ("fix: {easy: -3}", "give a number of items"),
    ],
)
def test_a_wrong_matrix_is_refused_and_nothing_is_written(matrix, sentence, tmp_path):
    (tmp_path / "matrix.yaml").write_text(matrix)
    ended = agent2("bench", "new", "b", "--matrix", "matrix.yaml", home=tmp_path)
    assert (ended.returncode, (tmp_path / "b").exists()) == (2, False)
    assert sentence in ended.stderr


def test_a_pilot_with_one_role_is_refused(bench):
    ended = agent2("bench", "pilot", "b", ROLES[2], home=bench)
    assert ended.returncode == 2
    assert "three roles" in ended.stderr and "add --role weak=" in ended.stderr


@pytest.mark.parametrize("name", ["a b", "../x", "x\n", "日本"])
def test_a_name_that_no_benchmark_can_have_is_refused_and_nothing_is_written(name, bench):
    ended = agent2("bench", "new", "c", "--matrix", "matrix.yaml", "--name", name, home=bench)
    assert (ended.returncode, (bench / "c").exists()) == (2, False)
    assert "is no name of a benchmark" in ended.stderr


def test_one_checkpoint_in_two_roles_is_no_pilot(bench):
    ended = agent2("bench", "pilot", "b", *ROLES[:2], "--role=strong=scripted:players.py:previous", home=bench)
    assert (ended.returncode, (bench / "b" / "pilots" / "1" / "pilot.json").exists()) == (2, False)
    assert "is the checkpoint of role previous, too" in ended.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"roles": 5},
        {"drop": [{}]},
        {"drop": [{"id": "n30", "reasons": []}]},
        {"items": [{"id": "n30"}]},
        {"items": [{"id": "n30", "rates": {"weak": "much"}}]},
        {"roles": {"weak": {}}},
        {"digests": None},
        {"verdict": 1},
    ],
)
def test_a_pilot_in_another_form_is_refused_and_nothing_is_frozen(changes, tmp_path):
    record = {"verdict": "healthy", "drop": [], "items": [], "roles": {}, "digests": {}}
    (tmp_path / "pilot.json").write_text(json.dumps(record))
    assert read_pilot(tmp_path) == record
    (tmp_path / "pilot.json").write_text(json.dumps({**record, **changes}))
    with pytest.raises(ConfigError, match="cannot be read as a pilot"):
        read_pilot(tmp_path)


def test_a_card_that_was_played_before_an_edit_is_refused(bench):
    assert agent2("bench", "pilot", "b", *ROLES, home=bench).returncode == 0
    cards = [f"--role={role}=b/pilots/1/{role}" for role in ("weak", "previous", "strong")]
    again = agent2("bench", "pilot", "b", *cards, home=bench)
    assert again.returncode == 0, again.stderr
    path = bench / "b" / "cards" / "cards.jsonl"
    path.write_text(path.read_text().replace("Double 30.", "Double thirty."))
    assert "play the checkpoint again" in agent2("bench", "pilot", "b", *cards, home=bench).stderr


def test_versions_keep_their_anchors_and_refuse_changes(bench):
    assert agent2("bench", "pilot", "b", *ROLES, home=bench).returncode == 0
    first = json.loads(agent2("bench", "freeze", "b", "--json", home=bench).stdout)
    assert (first["version"], first["n_items"], len(first["anchors"])) == ("b-v1.0", 40, 8)
    assert "nothing changed since v1.0" in agent2("bench", "freeze", "b", home=bench).stderr
    path = bench / "b" / "cards" / "cards.jsonl"
    cards = [json.loads(line) for line in path.read_text().splitlines()]
    others = [card["id"] for card in cards if card["id"] not in first["anchors"]]
    changed = [{**card, "prompt": f"Please: {card['prompt']}"} if card["id"] == others[0] else card for card in cards]
    path.write_text("".join(json.dumps(card) + "\n" for card in changed if card["id"] != others[1]))
    assert "1 changed" in agent2("bench", "freeze", "b", home=bench).stderr
    assert agent2("bench", "pilot", "b", *ROLES, home=bench).returncode == 0
    second = json.loads(agent2("bench", "freeze", "b", "--json", home=bench).stdout)
    assert (second["version"], second["anchors"]) == ("b-v1.1", first["anchors"])
    assert (second["changed"], second["removed"]) == ([others[0]], [others[1]])
    assert {drift["role"]: drift["difference"]["change"]["value"] for drift in second["drift"]} == dict.fromkeys(
        ("weak", "previous", "strong"), 0.0
    )
    anchor = first["anchors"][0]
    path.write_text(
        "".join(json.dumps({**card, "answer": "7"} if card["id"] == anchor else card) + "\n" for card in cards)
    )
    agent2("bench", "pilot", "b", *ROLES, home=bench)
    assert f"card '{anchor}' is an anchor of v1.1 and was changed" in agent2("bench", "freeze", "b", home=bench).stderr
    rows = bench / "b" / "versions" / "b-v1.1" / "test_private.jsonl"
    original = rows.read_text()
    rows.write_text(original.replace('"answer": "', '"answer": "1', 1))
    eased = agent2("benchmarks", "check", str(rows.parent), home=bench)
    assert (eased.returncode, "changed after it was pinned" in eased.stderr) == (2, True), eased.stderr
    rows.write_text(original)
    frozen = bench / "b" / "versions" / "b-v1.0" / "cards.jsonl"
    frozen.write_text(frozen.read_text().replace("Double", "Triple"))
    assert "was changed after the freeze" in agent2("bench", "check", "b", home=bench).stderr


def test_an_item_that_is_answered_by_its_own_prompt_is_dropped(bench):
    path = bench / "b" / "cards" / "more.jsonl"
    path.write_text('{"id": "leak", "prompt": "Double 4711. The answer is 9422.", "answer": 9422}\n')
    assert agent2("bench", "check", "b", home=bench).returncode == 1
    agent2("bench", "pilot", "b", *ROLES, home=bench)
    frozen = json.loads(agent2("bench", "freeze", "b", "--json", home=bench).stdout)
    assert (list(frozen["dropped"]), frozen["n_items"]) == (["leak"], 40)


def test_dated_items_are_written_after_a_cutoff(bench):
    path = bench / "b" / "cards" / "more.jsonl"
    path.write_text('{"id": "new", "prompt": "Double 4711.", "answer": 9422, "date": "2026-07-01"}\n')
    ended = agent2("bench", "refresh", "b", "--cutoff", "2026-06-30", "--out", "new", home=bench)
    assert (ended.returncode, "after 2026-06-30: 1 item" in ended.stdout) == (0, True)
    assert (bench / "new" / "test_private.jsonl").read_text().count("\n") == 1
    assert "is no date" in agent2("bench", "refresh", "b", "--cutoff", "soon", home=bench).stderr
