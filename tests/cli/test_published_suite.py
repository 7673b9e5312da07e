"""`agent2 eval llm_core_regression_v1` on files in the published layouts, with scripted players: no model is loaded."""

import json
import os
import subprocess
import sys

import pytest

from agent2.benchmarks import load_benchmark
from agent2.cli import main
from agent2.records import Split
from bfcl_builders import rows_of, write_folder

PLAYERS = """
def right(messages):
    asked = messages[-1].content
    number = int(asked.split()[2].rstrip("?."))
    if "options" in asked:
        return f"The answer is ({'ABCD'[number % 3]})"
    return f"#### {number + 7}" if "pens" in asked else "red"

def wrong(messages):
    return "It is 7, I think, or not."
"""
N_ITEMS = 50


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the three data sets of our own making, and the variables that name them."""
    rows = {
        ("gsm8k", "train.jsonl"): [
            {"question": f"Ann has {k} pens and 7 more?", "answer": f"#### {k + 7}"} for k in range(500)
        ],
        ("gsm8k", "test.jsonl"): [
            {"question": f"Bob has {k} pens and 7 more?", "answer": f"#### {k + 7}"} for k in range(100)
        ],
        ("mmlu_pro", "test.jsonl"): [
            {
                "question_id": k,
                "question": f"Which is {k} of these options?",
                "options": [str(k + place - k % 3) for place in range(4)],
                "answer": "ABCD"[k % 3],
                "answer_index": k % 3,
                "category": "math",
            }
            for k in range(500)
        ],
        ("ifeval", "input_data.jsonl"): [
            {
                "key": k,
                "prompt": f"Name colour {k} without commas.",
                "instruction_id_list": ["punctuation:no_comma"],
                "kwargs": [{}],
            }
            for k in range(200)
        ],
    }
    for (benchmark, name), lines in rows.items():
        folder = tmp_path / benchmark
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(map(json.dumps, lines)))
        monkeypatch.setenv(f"{benchmark.upper()}_DATA", str(folder))
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)
    return tmp_path


@pytest.fixture
def agent2(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


def evaluate(agent2, checkpoint, baseline, role, *more):
    sides = ("--checkpoint", f"scripted:players.py:{checkpoint}", "--baseline", f"scripted:players.py:{baseline}")
    return agent2("eval", "llm_core_regression_v1", *sides, "--role", role, "--out", "e", *more)


@pytest.mark.parametrize("role", ["dev", "candidate"])
def test_the_suite_is_played_and_decided_on_the_items_of_each_role(agent2, workplace, role):
    code, out, err = evaluate(agent2, "right", "wrong", role, "--set", f"cadence.{role}.n_items={N_ITEMS}")
    report = json.loads((workplace / "e" / "report.json").read_text())
    assert report["gsm8k_exact_match"] == "0.0% -> 100.0% (+100.0)", err
    assert report["mmlu_pro_accuracy"] == "0.0% -> 100.0% (+100.0)"
    assert report["ifeval_prompt_accuracy"] == "0.0% -> 100.0% (+100.0)"
    assert (code, out.strip().splitlines()[-2]) == (0, "release decision: candidate")
    code, out, _ = agent2("decide", "e", "--suite", "e/suite.json", "--json")
    assert (code, json.loads(out)["release"]) == (0, "candidate")


def test_a_checkpoint_that_unlearned_everything_is_blocked(agent2, workplace):
    code, out, _ = evaluate(agent2, "wrong", "right", "dev", "--set", f"cadence.dev.n_items={N_ITEMS}")
    assert (code, out.strip().splitlines()[-2]) == (1, "release decision: block")
    assert {"primary_holds", "knowledge_holds", "instructions_hold", "format_failures"} <= set(out.split())


def test_where_a_role_asks_for_all_items_all_are_played(agent2, workplace):
    _, _, err = evaluate(agent2, "right", "wrong", "nightly")
    assert [f"mmlu_pro {225}/225" in err, "gsm8k 50/50" in err, "ifeval 60/60" in err] == [True] * 3


def test_a_file_that_is_not_there_is_named_before_anything_is_played(agent2, workplace):
    (workplace / "ifeval" / "input_data.jsonl").unlink()
    code, _, err = evaluate(agent2, "right", "wrong", "dev", "--set", f"cadence.dev.n_items={N_ITEMS}")
    assert code == 2 and "contains no input_data.jsonl" in err and "IFEVAL_DATA" in err
    assert not (workplace / "e").exists()


AGENT_PLAYERS = """
import json
import re

CALLS = json.loads(open("calls.json").read())

def right(messages):
    return CALLS.get(messages[-1].text, "none")

def silent(messages):
    return "I cannot do that."
"""


def test_the_agent_suite_plays_bfcl_first_and_skips_the_tasks_of_a_model_that_cannot_call(
    tmp_path, monkeypatch, agent2
):
    folder = write_folder(tmp_path / "bfcl", rows_of("v3", n=20), "v3")
    monkeypatch.setenv("BFCL_V3_DATA", str(folder))
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    published = load_benchmark("bfcl_v3").named_set(None, b"s" * 32).items
    gold = {named.item.payload["messages"][-1]["content"]: named.item.reference for named in published}
    (tmp_path / "calls.json").write_text(json.dumps(gold))
    (tmp_path / "players.py").write_text(AGENT_PLAYERS)
    command = ("eval", "agent_tool_regression_v1", "--role", "dev", "--set", "cadence.dev.n_items=20", "--out")
    sides = [f"scripted:players.py:{name}" for name in ("right", "silent")]
    code, out, err = agent2(*command, "good", "--checkpoint", sides[0], "--baseline", sides[1])
    assert "bfcl_executable_accuracy" in out and "-> 100.0%" in out and "release decision:" in out, err
    assert "agent_tool_regression_offline is played for agent_tool_regression_v1" in err
    assert "mini_repo" in out and "was skipped" not in out
    code, out, err = agent2(*command, "bad", "--checkpoint", sides[1], "--baseline", sides[0])
    assert code == 1 and "mini_repo was skipped: bfcl_v3 scored" in out, err


def git(folder, *arguments):
    author = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **author}, check=True, capture_output=True, text=True)
    return done.stdout


def swe_bench(folder, n):
    """Issues of a small repository in the official layout."""
    repository = folder / "repos" / "club__calc"
    repository.mkdir(parents=True)
    (repository / "conftest.py").write_text("")
    (repository / "calc.py").write_text("def double(number):\n    return number + 2\n")
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "first")
    commit = git(repository, "rev-parse", "HEAD").strip()
    (repository / "calc.py").write_text("def double(number):\n    return number * 2\n")
    patch = git(repository, "diff")
    git(repository, "checkout", "-q", ".")
    (repository / "test_calc.py").write_text(
        "from calc import double\n\n\ndef test_it():\n    assert double(5) == 10\n"
    )
    git(repository, "add", "-N", ".")
    test_patch = git(repository, "diff")
    row = {"repo": "club/calc", "base_commit": commit, "patch": patch, "test_patch": test_patch}
    tests = {"FAIL_TO_PASS": '["test_calc.py::test_it"]', "PASS_TO_PASS": "[]"}
    rows = [
        {**row, **tests, "instance_id": f"club__calc-{k}", "problem_statement": f"double({k + 3}) is wrong"}
        for k in range(n)
    ]
    (folder / "test.jsonl").write_text("".join(json.dumps(values) + "\n" for values in rows))
    return folder


def api_bank(folder, n):
    """Requests in the official layout."""
    folder.mkdir()
    function = {"name": "AddAlarm", "description": "Sets an alarm.", "input_parameters": {"time": {"type": "str"}}}
    for level in (1, 2):
        rows = [
            {
                "file": "AddAlarm-level-1-1.jsonl",
                "id": k,
                "instruction": f"Generate an API request.\nAPI descriptions:\n{json.dumps(function)}",
                "input": f"User {level}: Wake me at {k}.\nGenerate API Request:\n",
                "expected_output": f"API-Request: [AddAlarm(time='{k}:00')]",
            }
            for k in range(n)
        ]
        (folder / f"level-{level}-api.json").write_text(json.dumps(rows))
    return folder


def test_the_agent_suite_on_its_three_published_data_sets_ends_in_a_decision(tmp_path, monkeypatch, agent2):
    folders = {
        "bfcl_v3": write_folder(tmp_path / "bfcl", rows_of("v3", n=20), "v3"),
        "api_bank": api_bank(tmp_path / "api_bank", 20),
        "swebench_verified": swe_bench(tmp_path / "swe", 15),
    }
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    gold = {}
    for name, folder in folders.items():
        monkeypatch.setenv(f"{name.upper()}_DATA", str(folder))
        for item in load_benchmark(name).items(Split.DEV, 3, None):
            gold[(item.payload.get("messages") or [{"content": item.prompt}])[-1]["content"]] = item.reference
    (tmp_path / "calls.json").write_text(json.dumps(gold))
    (tmp_path / "players.py").write_text(AGENT_PLAYERS)
    command = ("eval", "agent_tool_regression_v1", "--role", "dev", "--set", "cadence.dev.n_items=3", "--out")
    sides = [f"scripted:players.py:{name}" for name in ("right", "silent")]
    _, out, err = agent2(*command, "good", "--checkpoint", sides[0], "--baseline", sides[1])
    report = json.loads((tmp_path / "good" / "report.json").read_text())
    assert report["swebench_verified_resolved"] == "0.0% -> 100.0% (+100.0)", err
    assert report["suite"].startswith("agent_tool_regression_files") and "agent_tool_regression_files is played" in err
    assert report["api_bank_call_accuracy"] == "0.0% -> 100.0% (+100.0)" and "release decision:" in out
    code, out, err = agent2(*command, "bad", "--checkpoint", sides[1], "--baseline", sides[0])
    assert code == 1 and "swebench_verified was skipped: bfcl_v3 scored" in out, err
