"""`agent2 history` as a user meets it."""

import json

import pytest
from typer.testing import CliRunner

from agent2.cli import app
from agent2.errors import Agent2Error
from history_builders import best_finding, evaluate_step


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_history_of_a_folder_is_a_table_a_document_and_a_page(tmp_path):
    for step, player in ((10, "weak"), (20, "one_sided"), (30, "strong")):
        evaluate_step(tmp_path, step, player)
    printed = run("history", "quiz_regression").output
    assert "quiz_regression-v1.0, dev on dev: sums_accuracy (contract " in printed
    assert [line.split()[0] for line in printed.splitlines() if "checkpoint-" in line] == ["10", "20", "30"]
    (best,) = [line for line in printed.splitlines() if "*" in line]
    assert "checkpoint-20" in best and "100.0%" in best
    assert ", improvement shown" in best, "a decision alone does not say whether the checkpoint is better"
    document = json.loads(run("history", "--json", "--out", "page").output)
    (group,) = document["groups"]
    assert group["best"] == "step-20" and group["evaluations"][1]["score"]["n"] == 60
    assert json.loads((tmp_path / "page/history.json").read_text()) == document
    page = (tmp_path / "page/history.html").read_text()
    assert "<svg" in page and "checkpoint-30" in page and "<script" not in page


def test_nothing_there_is_said_and_a_wrong_folder_is_an_error(tmp_path):
    assert "no decided evaluation in ." in run("history").output
    result = run("history", "--in", "nowhere")
    assert isinstance(result.exception, Agent2Error) and "no such folder" in str(result.exception)
    (tmp_path / "runs").mkdir()
    assert "runs is a folder: agent2 history --in runs" in str(run("history", "runs").exception)


def test_decide_reads_the_history_of_a_folder_in_place_of_the_stored_values(tmp_path):
    evaluate_step(tmp_path, 10, "one_sided")
    collapsed = evaluate_step(tmp_path, 20, "weak")
    assert best_finding(collapsed).fired
    folder = tmp_path / "evaluations"
    stored = json.loads(run("decide", folder / "step-20", "--json").output)
    assert stored["training_action"] == "pause"
    (tmp_path / "empty").mkdir()
    fresh = json.loads(run("decide", folder / "step-20", "--history", tmp_path / "empty", "--json").output)
    assert fresh["training_action"] == "continue"
    found = json.loads(run("decide", folder / "step-20", "--history", folder, "--json").output)
    assert found["training_action"] == "pause"
    result = run(
        "decide", folder / "step-20/report.yaml", "--suite", folder / "step-20/suite.json", "--history", folder
    )
    assert isinstance(result.exception, Agent2Error) and "is a report without cards" in str(result.exception)
