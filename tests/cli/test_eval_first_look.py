"""`agent2 eval` without a baseline, on the first items, and of several checkpoints and benchmarks at once."""

import json
import sys

import pytest

from agent2.cards.reader import read_header
from agent2.cli import main

PLAYERS = """
def weak(messages):
    return "A"

def chatty(messages):
    return "Let me think about it at length.\\x1b[31m"
"""
WEAK, CHATTY = "scripted:players.py:weak", "scripted:players.py:chatty"
SMALL = ("--set", "cadence.dev.n_items=60")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)
    return tmp_path


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


def test_one_model_without_a_baseline_gets_scores_and_no_decision(agent2, workplace):
    code, out, _ = agent2("eval", "mini_knowledge", "--checkpoint", WEAK, *SMALL, "--out", "look")
    assert code == 0
    lines = out.strip().splitlines()
    assert lines[-2:] == ["no decision: this is a first look", "report: look/report.md"]
    assert "no baseline was played" in out
    report = json.loads((workplace / "look" / "report.json").read_text())
    assert report["decision"] is None
    (row,) = report["rows"]
    assert (row["model"], row["n_items_planned"], row["n_missing"], row["score"]["n"]) == ("weak", 60, 0, 60)
    assert "No decision: this is a first look." in (workplace / "look" / "report.md").read_text()
    assert "release decision" not in out
    written = (workplace / "look" / row["card"] / "card.json").read_bytes()
    assert agent2("eval", "mini_knowledge", "--checkpoint", WEAK, *SMALL, "--out", "look")[:2] == (0, out)
    assert (workplace / "look" / row["card"] / "card.json").read_bytes() == written, "resumed, not played again"


def test_limit_plays_the_first_items_by_hash_and_the_card_says_so(agent2, workplace):
    sides = ("--checkpoint", WEAK, "--baseline", CHATTY)
    code, out, err = agent2("eval", "mini_knowledge", *sides, *SMALL, "--limit", "15", "--out", "look")
    assert code == 0
    assert "the first 15 of 60 items by a public hash" in out
    assert "no baseline was played" not in out
    report = json.loads((workplace / "look" / "report.json").read_text())
    assert [(row["model"], row["score"]["n"]) for row in report["rows"]] == [("weak", 15), ("chatty", 15)]
    card = workplace / "look" / report["rows"][0]["card"]
    assert read_header(card).lock["first_look"] == {"limit": 15, "of": 60}
    _, shown, _ = agent2("cards", "show", str(card))
    assert "first 15 of 60 items by hash; no decision rests on it" in shown
    warning = next(line for line in err.splitlines() if line.startswith("warning"))
    assert "chatty on mini_knowledge: 100.0% (15 of 15 answers)" in warning
    assert "\x1b" not in warning
    code, _, err = agent2("decide", "look")
    assert (code, "first look" in err) == (2, True)


def test_the_items_of_a_first_look_are_found_again_by_what_reads_its_card(agent2, workplace):
    names = ("mini_apis", "mini_knowledge")
    code, out, err = agent2("eval", *names, "--checkpoint", WEAK, "--limit", "5", "--out", "look", "--json")
    assert code == 0, err
    calls, knowledge = (str(workplace / "look" / row["card"]) for row in json.loads(out)["rows"])
    code, out, err = agent2("cards", "ground", calls, "--json")
    assert code == 0, err
    assert [note for note in json.loads(out)["notes"] if "without the items" in note] == []
    code, out, err = agent2("cards", "rescore", knowledge, "--out", "again", "--json")
    assert code == 0, err
    assert read_header(workplace / "again").lock["first_look"] == read_header(workplace / knowledge).lock["first_look"]
    code, _, err = agent2("cards", "rescore", knowledge, "--benchmark", "mini_math", "--out", "other")
    assert code == 2 and "gives others now" in err


def test_several_checkpoints_and_benchmarks_are_one_command(agent2, workplace):
    names = ("mini_knowledge", "mini_math")
    models = ("--checkpoint", WEAK, "--checkpoint", CHATTY)
    code, out, _ = agent2("eval", *names, *models, "--limit", "10", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [(row["benchmark"], row["model"]) for row in rows] == [
        ("mini_knowledge", "weak"), ("mini_knowledge", "chatty"), ("mini_math", "weak"), ("mini_math", "chatty")
    ]  # fmt: skip


def test_several_checkpoints_against_a_baseline_are_decided_one_by_one(agent2, workplace):
    models = ("--checkpoint", WEAK, "--checkpoint", CHATTY, "--baseline", WEAK)
    code, out, _ = agent2("eval", "mini_knowledge", *models, *SMALL, "--out", "nightly")
    assert code == 1, "one of the decisions does not let a checkpoint pass"
    assert out.count("release decision: ") == 2
    assert "chatty against weak on mini_knowledge-v1.0" in out
    assert len(list((workplace / "nightly").glob("*/report.html"))) == 2
    code, out, _ = agent2("eval", "mini_knowledge", *models, *SMALL, "--out", "nightly", "--json")
    assert [report["checkpoint"] for report in json.loads(out)] == ["weak", "chatty"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["mini_knowledge"], "has no checkpoint for --checkpoint; give one"),
        (["mini_knowledge", "--checkpoint", WEAK, "--role", "candidate"], "each look at private items makes them"),
        (["mini_knowledge", "--checkpoint", WEAK, "--out", "players.py"], "is not a directory; give another --out"),
        (["mini_knowledge", "--checkpoint", WEAK, "--out", "."], "holds other files"),
        (["mini_knowledge", "--checkpoint", WEAK, "--with", "r.yaml"], "--with: belongs to the decision on one"),
        (["mini_knowledge", "--checkpoint", WEAK, "--limit", "0"], "--limit"),
        (["mini_knowledge", "--checkpoint", WEAK, "--endpoint", "timeout_s=3"], "no model here is an endpoint"),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_at_is_one_line_and_exit_code_2(agent2, arguments, problem):
    code, out, err = agent2("eval", *arguments, *SMALL)
    assert (code, out) == (2, "")
    assert problem in err


def write_questions(folder, files):
    folder.mkdir()
    for name in files:
        rows = [{"question": f"{name} {n}?", "answer": "A" if n % 2 else "B"} for n in range(4)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    listed = ", ".join(f"{name}: {name}.jsonl" for name in files)
    text = f'prompt: "{{question}}"\nanswer: answer\nfiles: {{{listed}}}\nscorer: exact\n'
    (folder / "benchmark.yaml").write_text(f"name: {folder.name}\nversion: '1.0'\ndescription: letters\n{text}")


def test_data_without_dev_items_are_played_on_test_public_unasked_which_is_said(agent2, workplace):
    write_questions(workplace / "short", ["test_public"])
    write_questions(workplace / "long", ["dev", "test_public"])
    look = ("--checkpoint", WEAK, "--limit", "2", "--json")
    code, out, err = agent2("eval", "./short", *look)
    assert code == 0 and json.loads(out)["rows"][0]["card"].endswith("short-test_public")
    assert "short has no dev items; test_public is played (--role nightly)" in err
    code, out, err = agent2("eval", "./long", *look)
    assert code == 0 and json.loads(out)["rows"][0]["card"].endswith("long-dev") and "--role nightly" not in err
    code, _, err = agent2("eval", "./short", *look, "--role", "dev")
    assert code == 2 and "no file holds items of split 'dev'" in err, "what was asked for is not replaced"
    code, _, err = agent2("eval", "./short", "./long", *look)
    assert code == 2 and "short: no dev items, which others here have" in err, "hidden items are not played unasked"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["suite", "check", "quiz.csv"], "quiz.csv is a file of items; agent2 benchmarks new quiz.csv makes"),
        (["eval", "./quiz.csv", "--checkpoint", WEAK], "agent2 benchmarks new ./quiz.csv makes a benchmark of it"),
        (["benchmarks", "check", "quiz.csv"], "agent2 benchmarks new quiz.csv makes a benchmark of it"),
        (["suite", "check", "mini_math"], "agent2 suite new mini_math makes a suite of it"),
        (["suite", "check", "mini_mathe"], "unknown suite"),
        (["eval", "miniwob", "--checkpoint", WEAK], "as in miniwob:twenty"),
        (["benchmarks", "check", "lm-eval"], "as in lm-eval:FOLDER/TASK.yaml"),
    ],
)
def test_a_name_of_another_kind_is_answered_with_what_to_type(agent2, workplace, command, answer):
    (workplace / "quiz.csv").write_text("question,answer\nA or B?,A\n")
    code, out, err = agent2(*command)
    assert (code, out) == (2, "") and answer in err and len(err.splitlines()) == 1


def test_a_folder_of_another_look_is_left_alone(agent2):
    agent2("eval", "mini_knowledge", "--checkpoint", WEAK, "--limit", "5", "--out", "look")
    code, _, err = agent2("eval", "mini_knowledge", "--checkpoint", WEAK, "--limit", "6", "--out", "look")
    assert (code, "contains another first look" in err) == (2, True)


def test_all_published_items_are_played_as_one_set_and_nothing_is_decided_on_them(agent2, workplace, monkeypatch):
    rows = [
        {"key": n, "prompt": f"Say {n}.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        for n in range(11)
    ]
    (workplace / "input_data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("IFEVAL_DATA", str(workplace))
    whole = ("eval", "ifeval", "--checkpoint", WEAK, "--set", "run.whole=true")
    code, _, _ = agent2(*whole, "--out", "look")
    assert code == 0
    (row,) = json.loads((workplace / "look" / "report.json").read_text())["rows"]
    assert (row["n_items_planned"], row["n_items_available"], row["score"]["value"]) == (11, 11, 1.0)
    card = workplace / "look" / row["card"]
    assert read_header(card).lock["items"] == "whole set"
    assert '"split":"test_private"' in (workplace / "home" / "access.jsonl").read_text().replace('": "', '":"')
    assert agent2("cards", "rescore", str(card), "--out", "again")[0] == 0

    code, _, err = agent2(*whole, "--baseline", CHATTY)
    assert code == 2 and "nothing is decided" in err
    code, _, err = agent2(*whole, "--set", "run.split=dev")
    assert code == 2 and "leave out run.split" in err
