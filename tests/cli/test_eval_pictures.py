"""The suite of drawn pictures from the command to the decision, with players that know what each picture shows."""

import json
import sys

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.mini.vision import SOURCES
from agent2.cli import main
from agent2.pictures import of_payload
from agent2.records import Split

PLAYERS = """
import hashlib, json
from pathlib import Path

KNOWN = json.loads(Path("known.json").read_text())

def key_of(messages):
    return messages[-1].text + messages[-1].pictures[0].digest

def sft(messages):
    is_careless = hashlib.sha256(key_of(messages).encode()).digest()[0] < 60
    return "nothing" if is_careless else KNOWN[key_of(messages)]["right"]

def rl(messages):
    is_careless = hashlib.sha256(key_of(messages).encode()).digest()[0] < 10
    return "nothing" if is_careless else KNOWN[key_of(messages)]["right"]

def charts_lost(messages):
    return KNOWN[key_of(messages)].get("on_another_axis") or rl(messages)
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)
    known = {}
    for name in SOURCES:
        for item in load_benchmark(name).items(Split.DEV, 100, None):
            mistakes = item.payload.get("mistakes", {}).get("chart_axis_value_misread")
            key = item.prompt + of_payload(item.payload)[0].digest
            known[key] = {"right": item.reference, "on_another_axis": mistakes[0] if mistakes else None}
    (tmp_path / "known.json").write_text(json.dumps(known))
    return tmp_path


@pytest.mark.parametrize(("player", "blocks_charts"), [("rl", False), ("charts_lost", True)])
def test_a_checkpoint_that_loses_charts_is_blocked_for_them_and_an_honest_one_is_not(
    workplace, monkeypatch, capsys, player, blocks_charts
):
    sides = ["--checkpoint", f"scripted:players.py:{player}", "--baseline", "scripted:players.py:sft"]
    arguments = ["eval", "vlm_reasoning_regression_mini", "--role", "dev", *sides, "--out", "e"]
    monkeypatch.setattr(sys, "argv", ["agent2", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.count("Traceback") == 0
    report = json.loads((workplace / "e" / "report.json").read_text())
    assert (report["release_decision"] == "block_for_chart_tasks") == blocks_charts, report["release_decision"]
    assert ("chart_axis_value_misread" in str(report["badcase_top"])) == blocks_charts
    kept = list((workplace / "e").rglob("cards/**/pictures/*"))
    assert len(kept) >= 300
