"""`agent2 cards regrade`, `query`, `export` and `show --id` as a user meets them."""

import json
import sys
from pathlib import Path

import pytest

from agent2.cards.reader import read_summary
from agent2.cards.writer import CardWriter
from agent2.cli import main
from agent2.records import RolloutStatus
from card_builders import make_header, make_record
from contract_card_builders import write_card

PLAYERS = """
def old(messages):
    return "A"

def new(messages):
    return "A" if hash_of(messages) % 3 else "  "

def hash_of(messages):
    return sum(messages[-1].content.encode())
"""
EVAL = ("eval", "llm_core_regression_mini", "--checkpoint", "scripted:players.py:new")
EVAL += ("--baseline", "scripted:players.py:old", "--set", "cadence.dev.n_items=60", "--out", "e")


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, " ".join(captured.out.split()), captured.err

    return run


@pytest.fixture
def card(workplace):
    capped = [make_record(f"capped{i}", 1.0, status=RolloutStatus.TURN_CAP) for i in range(2)]
    late = make_record("late", 1.0, status=RolloutStatus.TIME_CAP)
    write_card(workplace / "card", [make_record("a", 1.0), make_record("b", 0.0), make_record("c", 0.0), *capped, late])
    return "card"


@pytest.fixture
def evaluation(agent2, workplace):
    (workplace / "players.py").write_text(PLAYERS)
    assert agent2(*EVAL)[0] in (0, 1)
    return workplace / "e"


def test_every_number_of_an_evaluation_and_its_report_comes_out_of_the_cards_again(agent2, evaluation):
    code, out, _ = agent2("cards", "regrade", "e")
    assert code == 0
    assert "every stored number of 6 cards and of the report was reproduced from the rollouts" in out


def test_a_number_of_the_report_that_the_cards_do_not_give_is_named(agent2, evaluation):
    file = evaluation / "report.json"
    report = json.loads(file.read_text())
    report["evaluation"]["benchmarks"]["mini_math"]["checkpoint"]["completion_tokens"] = 12345
    report["evidence"]["mini_math_exact_match"]["clean_new"] = 0.5
    file.write_text(json.dumps(report))
    code, out, _ = agent2("cards", "regrade", "e")
    assert code == 1
    assert "evaluation.benchmarks.mini_math.checkpoint.completion_tokens is 12345, the cards give" in out
    assert "evidence.mini_math_exact_match.clean_new is 0.5, the cards give 1.0" in out
    assert "every stored number" not in out


def without_numbers(value):
    if isinstance(value, dict):
        return {key: without_numbers(entry) for key, entry in value.items() if key != "numbers"}
    return [without_numbers(entry) for entry in value] if isinstance(value, list) else value


def test_a_report_from_before_gates_kept_numbers_is_still_reproduced_and_a_wrong_number_is_named(agent2, evaluation):
    file = evaluation / "report.json"
    report = json.loads(file.read_text())
    file.write_text(json.dumps(without_numbers(report)))
    assert agent2("cards", "regrade", "e")[0] == 0
    report["decision"]["gates"][0]["numbers"]["limit"] = 0.125
    file.write_text(json.dumps(report))
    code, out, _ = agent2("cards", "regrade", "e")
    assert code == 1
    assert "decision.gates[0].numbers.limit is 0.125, the cards give" in out


def test_one_rule_changes_the_score_of_an_evaluation(agent2, evaluation):
    card = evaluation / "cards" / "checkpoint" / "mini_knowledge-dev"
    summary = read_summary(card)
    code, out, _ = agent2("cards", "regrade", str(card), "--empty", "drop", "--out", "r.json")
    assert code == 0
    (regraded,) = json.loads(Path("r.json").read_text())
    assert regraded["old"]["score"]["value"] == summary.score.value < regraded["new"]["score"]["value"]
    assert regraded["moved"] == {"empty": len(regraded["moves"])}
    assert regraded["new"]["n_missing"] == regraded["moved"]["empty"] == 60 - regraded["new"]["score"]["n"]
    assert f"{summary.score.value:.4f} [" in out and "empty: as_scored -> missing" in out


@pytest.mark.parametrize(("word", "score"), [("count", "0.6667"), ("zero", "0.1667"), ("drop", "0.3333")])
def test_timeouts_are_turn_caps_and_time_caps(agent2, card, word, score):
    code, out, _ = agent2("cards", "regrade", card, "--timeouts", word)
    assert code == 0
    if word == "count":
        assert f"card: its own rule already counts that way: {score} [" in out
        assert "every stored number" not in out  # a rule was given: nothing is claimed about the stored numbers
    else:
        assert f"{score} [" in out
        assert "1 time_cap, 2 turn_cap" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "no cards there"),
        (["card", "--timeouts", "dropp"], "did you mean 'drop'?"),
        (["card", "--crashes", "count"], "leaves no score to count"),
        (["card", "--attempts", "last"], "--attempts: unknown way to combine attempts 'last'"),
        (["card", "--out", "card"], "already exists"),
    ],
)
def test_bad_input_is_one_sentence(agent2, card, arguments, sentence):
    code, _, err = agent2("cards", "regrade", *arguments)
    assert code == 2
    assert sentence in err


def test_a_stored_number_that_the_rollouts_do_not_give_is_exit_code_1(agent2, card, workplace):
    file = workplace / "card" / "card.json"
    file.write_text(file.read_text().replace('"n_turns": 6', '"n_turns": 7', 1))
    code, out, _ = agent2("cards", "regrade", card)
    assert code == 1
    assert "summary.n_turns is not what the rollouts give" in out


def test_an_items_rollouts_are_shown_by_id(agent2, card):
    code, out, _ = agent2("cards", "show", card, "--id", "late")
    assert code == 0
    assert "late, only attempt (rollout 5 of the card): time_cap" in out
    assert "question late" in out and "an answer" in out
    code, _, err = agent2("cards", "show", card, "--id", "nobody")
    assert (code, "no rollout of item 'nobody'" in err) == (2, True)


def test_cards_are_asked_in_sql_page_by_page(agent2, card, workplace):
    CardWriter(workplace / "open", make_header()).release()
    code, out, err = agent2("cards", "query", "select item_id from rollouts order by 1", ".", "--n", "4")
    assert code == 0
    assert "rows 0 to 4; more: --start 4" in out
    assert "open: skipped" in err
    _, out, _ = agent2(
        "cards", "query", "select item_id, views from rollouts order by 1", ".", "--start", "5", "--json"
    )
    assert json.loads(out) == {"item_id": "late", "views": {}}
    code, _, err = agent2("cards", "query", "select * from read_text('/etc/passwd')", ".")
    assert (code, "file system operations are disabled" in err) == (2, True)


def test_a_card_is_exported(agent2, card, workplace):
    code, out, _ = agent2("cards", "export", card, "rollouts.parquet")
    assert (code, out) == (0, "6 rollouts: rollouts.parquet")
    assert (workplace / "rollouts.parquet").stat().st_size > 1000


def test_validate_takes_what_regrade_takes(agent2, evaluation):
    code, out, _ = agent2("cards", "validate", "e")
    assert (code, out) == (0, "6 valid cards: e")
    damaged = evaluation / "cards" / "checkpoint" / "mini_knowledge-dev"
    frames = damaged / "rollouts.parquet"
    data = bytearray(frames.read_bytes())
    data[len(data) // 2] ^= 1
    frames.write_bytes(data)
    code, out, _ = agent2("cards", "validate", "e")
    assert code == 1
    assert "mini_knowledge-dev" in out and "mini_math" not in out


def test_a_folder_without_cards_is_not_valid(agent2, workplace):
    (workplace / "empty").mkdir()
    for name in ("empty", "players.py"):
        code, _, err = agent2("cards", "validate", name)
        assert (code, "no card.json there or below" in err) == (2, True)
