"""Blocks of reference pages that have no test of their own: files are read by what reads them, programs are run."""

import io
import json
import re
import runpy
import shlex
import shutil
from inspect import signature

import pytest
import yaml
from pydantic import TypeAdapter

from agent2.arena.analysis.published import PublishedFile
from agent2.arena.spec import KindGate
from agent2.arena.sweep import SweepSpec
from agent2.benchmarks.two_turns import TurnJudgeFile
from agent2.cards.reader import read_page
from agent2.config import parse_yaml
from agent2.contract.causes import StatedCause
from agent2.contract.metrics import MetricSpec
from agent2.contract.suite import StepJudging
from agent2.reports.radar import read_radar
from agent2.scorers import SCORERS
from agent2.scorers.judges import LlmJudge, load_prompt
from agent2.scorers.process.rules import read_rules
from agent2.scorers.process.weights import WeightSpec, weights_of
from agent2.scorers.reward_sum import load_reward
from card_builders import make_record
from cli_builders import run_agent2
from contract_card_builders import make_lost, write_card
from monitor_builders import healthy, write_jsonl
from page_blocks import REPO, all_blocks, shell_commands

HERE = "tests/docs/test_pages.py"
NAMES = frozenset(
    (
        "cards.md",
        "charts.md",
        "clusters.md",
        "dialogue.md",
        "evaluating-a-checkpoint.md",
        "faults.md",
        "gpu.md",
        "grounding.md",
        "history.md",
        "judges.md",
        "labels.md",
        "leaderboard.md",
        "monitoring.md",
        "online-training.md",
        "own-benchmark.md",
        "process.md",
        "readiness.md",
        "replies.md",
        "search.md",
        "suites.md",
    )
)
"""Pages of which this test runs a block."""


def blocks(name: str, language: str) -> list[str]:
    """The blocks of a page that are marked as run here."""
    found = [block for block in all_blocks() if block.page.endswith(f"/{name}") and block.said == HERE]
    return [block.text for block in found if block.language == language]


def test_every_block_that_names_this_test_is_on_a_page_that_it_runs():
    assert {block.page.rsplit("/", 1)[-1] for block in all_blocks() if block.said == HERE} == NAMES


def test_the_files_of_sweeps_are_read():
    (of_gpus,) = blocks("gpu.md", "yaml")
    assert parse_yaml(of_gpus, SweepSpec, "gpu.md").agents == ["sft", "grpo"]
    of_one_machine = of_gpus.replace("resources: {gpus: 1}\n", "")
    assert of_one_machine != of_gpus
    for resources in blocks("clusters.md", "yaml"):
        spec = parse_yaml(of_one_machine + resources, SweepSpec, "clusters.md")
        assert spec.resources.gpus == 1


def test_the_radar_of_the_page_is_drawn_from(tmp_path):
    (tmp_path / "ours.yaml").write_text(blocks("charts.md", "yaml")[0])
    radar = read_radar(str(tmp_path / "ours.yaml"))
    assert len(radar.axes) == 4 and radar.actions[1].fell == ["tool calls"]


def test_published_figures_of_the_page_are_read():
    (text,) = blocks("leaderboard.md", "yaml")
    assert [row.name for row in parse_yaml(text, PublishedFile, "page").rows] == ["theirs", "another"]


def test_rubric_and_scorer_of_the_page_are_read(tmp_path):
    scorer, rubric = blocks("judges.md", "yaml")
    named = yaml.safe_load(scorer)["scorer"]
    assert named.pop("name") in SCORERS and named.keys() <= signature(LlmJudge).parameters.keys()
    (tmp_path / named["prompt"]).write_text(rubric)
    prompt = load_prompt(str(tmp_path / named["prompt"]))
    assert [criterion.name for criterion in prompt.rubric] == ["correct", "complete", "harmless"]


def test_causes_gates_and_the_judge_of_a_task_are_read():
    (causes,) = blocks("labels.md", "yaml")
    found = TypeAdapter(dict[str, StatedCause]).validate_python(yaml.safe_load(causes)["failure_taxonomy"])
    assert set(found) == {"wrong_answer", "repeated_search"}
    gates, judge = blocks("replies.md", "yaml")
    assert TypeAdapter(list[KindGate]).validate_python(yaml.safe_load(gates)["gates"])[0].at_least == 0.9
    assert parse_yaml(judge, TurnJudgeFile, "page").prices == {"prompt": 10.0, "completion": 30.0}


def test_rules_weights_and_metrics_of_the_process_are_read(tmp_path):
    rules, metrics, judged, weights = (yaml.safe_load(text) for text in blocks("process.md", "yaml"))
    (tmp_path / "own.py").write_text("def polite(rollout):\n    return True\n")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    assert len(read_rules(tmp_path / "rules.yaml")) == len(rules["rules"]) == 6
    for metric in (*metrics["metrics"], *judged["metrics"]):
        assert TypeAdapter(MetricSpec).validate_python(metric).measure.startswith("process:")
    TypeAdapter(StepJudging).validate_python(judged["benchmarks"][0]["step_judge"])
    assert weights_of(TypeAdapter(WeightSpec).validate_python(weights["trajectory_weights"])).correctness == 0.5


def test_the_reward_of_the_page_is_a_sum_of_its_parts(tmp_path):
    (text,) = blocks("online-training.md", "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    assert load_reward(str(tmp_path / "mine.yaml")).about.startswith("success less")


def test_the_programs_of_the_pages_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "archive.md").write_text("The librarian may open the archive.")
    folder = tmp_path / "card"
    write_card(folder, [make_record("item-7"), make_record("b", 0.0), make_lost("c")])
    names = {"folder": folder, "card": folder, "GRPOTrainer": lambda *_, **__: None}
    for page in ("search.md", "monitoring.md", "dialogue.md", "cards.md", "history.md"):
        programs = blocks(page, "python")
        assert programs, page
        for program in programs:
            exec(compile(program.replace("GRPOTrainer(..., ", "GRPOTrainer("), page, "exec"), dict(names))


def test_the_command_on_readiness_prints_the_rules(capsys):
    (line,) = shell_commands(blocks("readiness.md", "bash")[0])
    assert line.startswith('python -c "') and line.endswith('" > rules.yaml')
    exec(line.removeprefix('python -c "').removesuffix('" > rules.yaml'), {})
    assert yaml.safe_load(capsys.readouterr().out)


def test_the_first_commands_on_own_data_end_in_a_decision(tmp_path):
    rows = [
        f"What is {10 + k % 80} plus {11 + k * 7 % 83}? (ticket {k}),{21 + k % 80 + k * 7 % 83}" for k in range(260)
    ]
    (tmp_path / "questions.csv").write_text("\n".join(["question,answer", *rows]))
    (tmp_path / "answers.jsonl").write_text(
        "".join(f'{{"prompt": "{row.split(",")[0]}", "answer": "1"}}\n' for row in rows)
    )
    (tmp_path / "players.py").write_text("def sft(chat):\n    return '#### 21'\n\n\ngrpo = sft\n")
    for line in shell_commands(blocks("own-benchmark.md", "sh")[0]):
        words = [word.replace("runs/", "scripted:players.py:") for word in shlex.split(line)[1:]]
        ended = run_agent2(*words, home=tmp_path)
        assert ended.returncode == 0 or "--baseline" in line, f"{line}: {ended.stderr}"
    assert (tmp_path / "evaluations").is_dir()


def test_the_commands_on_cards_run_on_the_cards_of_an_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n" * 50))  # for replay --step
    (tmp_path / "players.py").write_text(
        "def old(chat):\n    return '12'\n\n\ndef new(chat):\n    return '7, of course'\n"
    )
    sides = ["--checkpoint", "scripted:players.py:new", "--baseline", "scripted:players.py:old"]
    assert run_agent2("eval", "arithmetic", *sides, "--out", "e", home=tmp_path).returncode in {0, 1}
    old, new = (tmp_path / "e" / "cards" / side / "arithmetic-dev" for side in ("baseline", "checkpoint"))
    named = {
        "CARD": new,
        "OLD": old,
        "NEW": new,
        "FOLDER": tmp_path / "e",
        "FOLDER...": tmp_path / "e",
        "OUT.parquet": tmp_path / "o.parquet",
    }
    named["ITEM"] = read_page(new, 0, 1)[0].rollout.item_id
    lines = [line for text in blocks("cards.md", "") for line in shell_commands(text)]
    assert len(lines) >= 11
    for line in lines:
        words = [named.get(word, word) for word in shlex.split(re.split(r"\s{3,}", line)[0])]
        ended = run_agent2(*words[1:], home=tmp_path)
        assert ended.returncode == 0, f"{line}: {ended.stdout}{ended.stderr}"
    assert (tmp_path / "o.parquet").is_file()


def typed(folder, text, stand_ins, *, codes=frozenset({0})):
    """Types the commands of a block in a folder; words are replaced as `stand_ins` says."""
    for line in shell_commands(text):
        words = [stand_ins.get(word, word) for word in shlex.split(re.split(r"\s{3,}", line)[0])]
        ended = run_agent2(*words[1:], home=folder)
        assert ended.returncode in codes, f"{line}: {ended.stdout}{ended.stderr}"


def test_evaluations_of_the_pages_are_played_and_their_history_is_listed(tmp_path):
    call = '{"name": "price", "arguments": {"item": "lamp"}}'
    (tmp_path / "players.py").write_text(f"def sft(chat):\n    return '{call}'\n\n\ngrpo = sft\n")
    stand_ins = {"runs/grpo": "scripted:players.py:grpo", "runs/sft": "scripted:players.py:sft"}
    (first,) = blocks("evaluating-a-checkpoint.md", "sh")
    typed(tmp_path, first, stand_ins, codes={0, 1})
    (steady,) = blocks("faults.md", "sh")
    typed(tmp_path, steady, {"MODEL": stand_ins["runs/grpo"], "BASE": stand_ins["runs/sft"]}, codes={0, 1})
    card = "faulty/cards/checkpoint/mini_apis-faulty-dev"
    (grounded,) = blocks("grounding.md", "")
    typed(tmp_path, grounded, {"CARD": card})
    (tmp_path / "own.py").write_text("def polite(rollout):\n    return True\n")
    (tmp_path / "rules.yaml").write_text(blocks("process.md", "yaml")[0])
    (process,) = blocks("process.md", "")
    typed(tmp_path, process, {"CARD": card})
    shutil.copytree(tmp_path / "evaluations", tmp_path / "runs")
    (listed,) = blocks("history.md", "bash")
    typed(tmp_path, listed, {})
    assert "llm_core_regression_mini" in (tmp_path / "history" / "history.html").read_text()


def test_trajectories_of_the_page_are_imported_and_judged_and_their_addresses_checked(tmp_path):
    address = "https://weather.example/now"
    call = {"type": "function", "id": "c", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    asked = [{"role": "user", "content": "Weather in Ulm?"}, {"role": "assistant", "tool_calls": [call]}]
    told = [
        {"role": "tool", "tool_call_id": "c", "content": "rain"},
        {"role": "assistant", "content": f"Rain, says {address}."},
    ]
    write_jsonl(tmp_path / "RUNS.jsonl", [{"id": "a", "messages": [*asked, *told], "reference": asked[1:]}])
    (tmp_path / "judge.py").write_text('def judge(chat):\n    return \'{"quote": "Rain", "verdict": 8}\'\n')
    (imported,) = blocks("cards.md", "sh")
    typed(tmp_path, imported, {"model=MODEL": "model=scripted:judge.py:judge"})
    write_jsonl(tmp_path / "recorded.jsonl", [{"url": address, "status": 200, "text": "rain, says the weather"}])
    (cited,) = blocks("search.md", "sh")
    typed(tmp_path, cited, {})


def test_the_logs_of_the_page_are_judged(tmp_path):
    (tmp_path / "runs" / "grpo").mkdir(parents=True)
    write_jsonl(tmp_path / "runs" / "grpo" / "train_log.jsonl", healthy())
    write_jsonl(tmp_path / "train_log.jsonl", healthy())
    rows = [{"id": f"i{i}", "reward": i / 100, "score": float(i < 95), "completion": "text"} for i in range(100)]
    write_jsonl(tmp_path / "rollouts.jsonl", rows)
    of_log, of_rollouts = blocks("monitoring.md", "bash")
    typed(tmp_path, of_log, {})
    typed(tmp_path, of_rollouts, {})
    assert '"n_suspicious": 5' in (tmp_path / "monitor" / "monitor.json").read_text()


def test_suites_of_the_page_are_made_checked_and_played(tmp_path):
    rows = "".join(f"What colour has thing {k}?,{('red', 'blue')[k % 2]}\n" for k in range(240))
    (tmp_path / "office.csv").write_text("question,answer\n" + rows)
    name = {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    calls = [
        {
            "messages": [
                {"role": "user", "content": f"Weather in place {k}?"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "type": "function",
                            "function": {"name": "weather", "arguments": json.dumps({"city": f"place {k}"})},
                        }
                    ],
                },
            ],
            "tools": [name],
        }
        for k in range(240)
    ]
    write_jsonl(tmp_path / "calls.jsonl", calls)
    (tmp_path / "players.py").write_text("def sft(chat):\n    return 'red'\n\n\ngrpo = sft\n")
    stand_ins = {"runs/grpo": "scripted:players.py:grpo", "runs/sft": "scripted:players.py:sft"}
    (club,) = blocks("suites.md", "sh")
    *made, played = shell_commands(club)
    typed(tmp_path, "\n".join(made), stand_ins)
    typed(tmp_path, played, stand_ins, codes={0, 1})
    suite = next(block.text for block in all_blocks() if block.page == "docs/suites.md" and "my_math_v2" in block.text)
    (tmp_path / "my_math.yaml").write_text(suite)
    (checked,) = blocks("suites.md", "")
    typed(tmp_path, checked, {})


@pytest.mark.parametrize("example", sorted((REPO / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_says_what_it_does_and_does_nothing_else(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(example), "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert left.value.code == 0 and said.startswith("usage:")
    assert "Run it with" in said or "agent2 eval" in said
    assert list(tmp_path.iterdir()) == []
