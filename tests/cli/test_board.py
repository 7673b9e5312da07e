"""agent2 leaderboard and agent2 verify on folders of trials."""

import json
import shutil

import numpy as np
import pytest

from agent2.arena.sharing import share_trial
from cli_builders import run_agent2
from pool_builders import mark_as_own, simulation


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    module, out = simulation(), tmp_path_factory.mktemp("written")
    module.write_sweep(module.simulate(np.random.default_rng(3), n_stacks=1, n_runs=2, n_items=20), out)
    return out


@pytest.fixture
def trials(written, tmp_path, monkeypatch):
    """One marked trial, and one of another installation."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "agent2"))
    folder = tmp_path / "trials"
    for seed in (0, 1):
        shutil.copytree(written / f"static-1-stack-00-{seed}", folder / f"run-{seed}")
    mark_as_own(folder / "run-0")
    return folder


def test_the_exams_of_a_task_are_listed_with_their_keys_and_another_one_is_shown(trials, tmp_path):
    shown = json.loads(run_agent2("leaderboard", "trials", "--json", home=tmp_path).stdout)
    assert [(exam["key"], exam["n_marked"], exam["is_shown"]) for exam in shown["exams"]] == [
        ("400/600", 1, True),
        ("400/600#2", 0, False),
    ]
    assert [trial["folder"] for trial in shown["trials"]] == ["trials/run-0"]
    table = run_agent2("leaderboard", "trials", home=tmp_path).stdout
    assert "another one: --exam TASK=KEY" in table and "400/600#2" in table
    chosen = ("leaderboard", "trials", "--json", "--exam", "static-1=400/600#2")
    assert [trial["folder"] for trial in json.loads(run_agent2(*chosen, home=tmp_path).stdout)["trials"]] == [
        "trials/run-1"
    ]
    refused = run_agent2("leaderboard", "trials", "--exam", "static-1", home=tmp_path)
    assert refused.returncode == 2 and "is not TASK=KEY" in refused.stderr


def test_a_shared_trial_is_verified_elsewhere_and_what_cannot_be_checked_is_said(trials, tmp_path):
    share_trial(trials / "run-0", tmp_path / "whole", with_cards=True)
    share_trial(trials / "run-0", tmp_path / "short")
    here = run_agent2("verify", "whole", home=tmp_path)
    assert here.returncode == 0 and "whole: verified; it was marked by this installation" in here.stdout
    assert "hidden items" not in here.stdout
    elsewhere = run_agent2("verify", "whole", home=tmp_path, installation=tmp_path / "other")
    assert elsewhere.returncode == 0 and "whole: verified; it was marked by another installation" in elsewhere.stdout
    for part in ("the hidden items are those of its installation", "nothing was edited since", "the checkpoint gives"):
        assert f"not checked here: that {part}" in elsewhere.stdout
    short = run_agent2("verify", "short", "whole", home=tmp_path)
    assert short.returncode == 1 and "short: not verified" in short.stdout and "problem: no cards" in short.stdout
    assert str(tmp_path) not in short.stdout + elsewhere.stdout


def test_an_edited_trial_is_not_verified_and_the_part_is_named(trials, tmp_path):
    log = trials / "run-0" / "events" / "trial.jsonl"
    log.write_text(log.read_text().replace('"t":1001.0', '"t":1000.0'))
    result = run_agent2("verify", "trials/run-0", "--json", home=tmp_path)
    (report,) = json.loads(result.stdout)
    assert result.returncode == 1 and report["mark"]["state"] == "changed"
    assert report["problems"] == ["changed since it was marked: events/trial.jsonl: not as it was marked"]
    empty = run_agent2("verify", ".", home=tmp_path / "agent2")
    assert empty.returncode == 2 and "contains no trial" in empty.stderr


def test_a_board_carries_a_title_text_and_logo_of_ones_own(trials, tmp_path):
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "club.yaml").write_text("title: The club\ntext: Season *2*\nlogo: logo.svg\n")
    page = run_agent2("leaderboard", "trials", "--format", "html", "--site", "club.yaml", home=tmp_path).stdout
    assert "<h1>The club</h1>" in page and "Season <em>2</em>" in page and "data:image/svg+xml;base64," in page
    text = run_agent2("leaderboard", "trials", "--format", "markdown", "--site", "club.yaml", home=tmp_path).stdout
    assert text.startswith("# The club\n\nSeason *2*\n\n")
    refused = run_agent2("leaderboard", "trials", "--format", "csv", "--site", "club.yaml", home=tmp_path)
    assert refused.returncode == 2 and "--site club.yaml: is for pages, not for csv" in refused.stderr
    refused = run_agent2("view", "trials", "--site", "club.yaml", home=tmp_path)
    assert refused.returncode == 2 and "add --export DIR" in refused.stderr
