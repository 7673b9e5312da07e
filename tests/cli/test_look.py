"""`agent2 show`: every kind of result, and what is none."""

import csv
import json

import msgspec
import pytest
from typer.testing import CliRunner

from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.cli import app
from agent2.cli.run import play_new_trial
from agent2.errors import Agent2Error, ConfigError
from agent2.reports.sweep_pages import sweep_report, write_sweep_report
from card_builders import make_record, write_old_card
from trial_builders import write_task
from web_builders import HOSTILE, digest_of_tree, write_card, write_evaluation, write_trial


def show(*arguments):
    result = CliRunner().invoke(app, ["show", *map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "\x1b" not in result.stdout
    return result.stdout


def refused(path):
    result = CliRunner().invoke(app, ["show", str(path)])
    assert isinstance(result.exception, Agent2Error), result.exception
    return str(result.exception)


def test_a_card_is_shown_with_its_numbers_and_first_rollouts(tmp_path):
    card = write_card(tmp_path / "card")
    output = show(card)
    assert "0.6667" in output and "I look for 0." in output
    assert set(json.loads(show(card, "--json"))) == {"header", "totals", "kinds", "rollouts"}
    old = write_old_card(tmp_path / "old", [make_record("i", 1.0)])
    assert "score [95%]" in show(old)


def test_an_open_card_and_a_killed_trial_say_how_far_they_are(tmp_path):
    assert "stopped: open" in show(write_card(tmp_path / "open", is_open=True))
    trial = write_trial(tmp_path / "killed", {"event": "created"}, {"event": "agent_started"})
    output = show(trial)
    assert "stopped: killed in its agent phase" in output and "continue with: agent2 resume" in output
    document = json.loads(show(trial, "--json"))
    assert (document["kind"], document["state"], document["trials"]) == ("trial", "stopped", [])
    assert document["command"].startswith("agent2 resume")


def test_an_evaluation_is_recomputed_from_its_cards_and_nothing_is_written(tmp_path):
    folder = write_evaluation(tmp_path / "suite", tmp_path / "evaluation")
    before = digest_of_tree(folder)
    output = show(folder)
    assert "sums_accuracy" in output and "release decision:" in output
    assert json.loads(show(folder, "--json"))["release_decision"]
    stored = show(folder / "report.json")
    assert "release decision, as stored" in stored and "recompute it: agent2 decide" in stored
    assert "release decision, as stored" in show(folder / "report.yaml")
    assert digest_of_tree(folder) == before


def test_a_sweep_is_shown_from_its_report_or_trial_by_trial(tmp_path):
    sweep = tmp_path / "sweep"
    write_trial(sweep / "trials" / "one", {"event": "agent_started"})
    (sweep / "sweep.json").write_text(json.dumps({"name": "mine"}))
    output = show(sweep)
    assert "1 trial; no report yet" in output and "killed in its agent phase" in output
    assert len(json.loads(show(sweep, "--json"))["trials"]) == 1
    write_sweep_report(sweep_report([], [], "Sweep mine"), sweep / "report")
    assert "Sweep mine" in show(sweep)
    assert json.loads(show(sweep, "--json"))["title"] == "Sweep mine"


def test_a_leaderboard_is_shown_and_one_of_another_version_is_told(tmp_path):
    board = tmp_path / "board.json"
    board.write_bytes(msgspec.json.encode(make_leaderboard([]), enc_hook=str))
    assert "0 trials" in show(board)
    assert json.loads(show(board, "--json"))["format"] == "agent2-leaderboard-1"
    for version, message in ((2, "upgrade agent2"), (0, "run agent2 leaderboard again")):
        board.write_text(json.dumps({"format": f"agent2-leaderboard-{version}"}))
        assert message in refused(board)
    board.write_text(json.dumps({"format": "agent2-sweep-1", "rows": []}))
    assert "run agent2 sweep again" in refused(board)


def test_a_training_report_is_shown(tmp_path):
    signal = {"danger": "kl_spike", "step": 7, "evidence": HOSTILE}
    report = {"log": "log.jsonl", "last_step": 9, "signals": [signal], "training_action": "pause", "reasons": ["why"]}
    (tmp_path / "monitor.json").write_text(json.dumps(report))
    output = show(tmp_path)
    assert "kl_spike" in output and "training action: pause" in output
    assert json.loads(show(tmp_path, "--json")) == report


def test_a_folder_of_several_is_listed(tmp_path):
    write_card(tmp_path / "a")
    write_trial(tmp_path / "b" / "t", {"event": "agent_started"})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "trial.json").write_text("{")
    output = show(tmp_path)
    assert "card" in output and "finished" in output and "stopped" in output and "failed" in output
    listed = json.loads(show(tmp_path, "--json"))
    assert [(entry["kind"], entry["state"]) for entry in listed] == [
        ("card", "finished"),
        ("trial", "stopped"),
        ("trial", "failed"),
    ]


def test_what_is_no_result_is_refused_in_one_line(tmp_path):
    assert "no such file or folder" in refused(tmp_path / "none")
    assert "contains no trial" in refused(tmp_path)
    broken = tmp_path / "trial"
    broken.mkdir()
    (broken / "trial.json").write_text("{")
    assert "this trial cannot be read" in refused(broken)
    (broken / "trial.json").write_text("{}")
    assert "KeyError" in refused(broken)
    assert "pass its folder: agent2 show" in refused(broken / "trial.json")
    for name, text, message in (
        ("other.json", '{"x": 1}', "its keys: x"),
        ("list.json", "[1]", "an object is needed"),
        ("text.json", "hello", "is not JSON"),
    ):
        (tmp_path / name).write_text(text)
        assert message in refused(tmp_path / name)
    card = write_card(tmp_path / "card")
    stored = json.loads((card / "card.json").read_text())
    (card / "card.json").chmod(0o644)
    (card / "card.json").write_text(json.dumps({**stored, "format": 999}))
    assert "999" in refused(card)


@pytest.mark.slow
def test_a_real_trial_is_shown_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    trial = play_new_trial(str(write_task(tmp_path)), "base-copy", 0, tmp_path / "trials")
    before = digest_of_tree(trial)
    output = show(trial)
    assert "gain on private items" in output and "scored" in output
    assert json.loads(show(trial, "--json"))["headline"]
    assert digest_of_tree(trial) == before
    for name in ("trajectory", "gains", "learning", "routes", "times", "cost"):
        options = ["--cost", "minutes"] if name == "cost" else []
        result = CliRunner().invoke(app, ["chart", name, str(trial), "--out", str(tmp_path / "charts"), *options])
        assert result.exit_code == 0, (name, result.output, result.exception)
    rows = list(csv.DictReader((tmp_path / "charts" / "gains.csv").open()))
    assert rows[0]["agent"] == "base-copy" and float(rows[0]["mean_gain"]) == 0.0
    profiles = CliRunner().invoke(app, ["chart", "profiles", str(trial)])
    assert "run more seeds" in str(profiles.exception)
    only = CliRunner().invoke(app, ["chart", "gains", str(trial), "--only", "base-cop"])
    assert isinstance(only.exception, ConfigError) and "base-copy" in str(only.exception)


def test_of_a_sweep_of_hundreds_of_trials_the_first_ones_are_shown_and_the_rest_counted(tmp_path):
    sweep = tmp_path / "sweep"
    for number in range(203):
        write_trial(sweep / "trials" / f"trial-{number:03}", {"event": "agent_started"})
    (sweep / "sweep.json").write_text(json.dumps({"name": "many"}))
    for folder in (sweep, sweep / "trials"):
        shown = show(folder)
        assert "trial-199" in shown and "trial-200" not in shown and "and 3 more; agent2 show --json" in shown
        document = json.loads(show(folder, "--json"))
        assert len(document["trials"] if folder == sweep else document) == 203
