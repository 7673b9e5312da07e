import json

import pytest

from agent2.analysis.spot_check import agreement
from agent2.analysis.verifier_log import log_accuracy
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError
from card_builders import make_header, make_record
from cli_builders import run_agent2
from spot_check_builders import fill_forms


def judged(folder, name, n_bad_that_pass):
    """A card of 40 rollouts that two people judged; the scorer passes all of them."""
    with CardWriter(folder / name, make_header(checkpoint_name=name)) as writer:
        for number in range(40):
            writer.append(make_record(f"item-{number:03}", 1.0, text="bad" if number < n_bad_that_pass else "good"))
        writer.close()
    fill_forms(folder / name, folder, ("Ada", "Ben"), lambda row: "right" if row["answer"] == "good" else "wrong", n=40)
    return folder / name


def test_a_verifier_that_drifts_from_people_over_checkpoints_is_raised_by_the_monitor(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    for step, n_bad in ((100, 0), (300, 16), (200, 8), (200, 6)):
        card = judged(tmp_path, f"checkpoint-{step}", n_bad) if n_bad != 6 else tmp_path / "checkpoint-200"
        done = run_agent2("spotcheck", "agreement", card, "--log", "v.jsonl", home=tmp_path)
        assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert [(line["step"], line["verifier_accuracy"], line["n"]) for line in lines] == [
        (100, 1.0, 40), (200, 0.8, 40), (300, 0.6, 40),
    ]  # fmt: skip
    watched = run_agent2("monitor", "v.jsonl", "--out", "m", home=tmp_path)
    assert watched.returncode == 1 and "verifier_drift" in watched.stdout


def test_a_checkpoint_without_a_step_and_a_file_of_something_else_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    card = judged(tmp_path, "final", 0)
    with pytest.raises(ConfigError, match="final, has no training step"):
        log_accuracy(tmp_path / "v.jsonl", card, agreement(card))
    stepped = judged(tmp_path, "checkpoint-5", 0)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="cannot be read as a log"):
        log_accuracy(tmp_path / "notes.txt", stepped, agreement(stepped))
    assert (tmp_path / "notes.txt").read_text() == "mine"
