"""The entry pages in docs/start, typed in their order; scripted players and random models stand in for checkpoints."""

import csv
import json
import shlex
from pathlib import Path

from agent2.arena.agents import load_agent
from agent2.arena.sweep import SweepSpec
from agent2.config import parse_yaml
from cli_builders import run_agent2
from grading_builders import write_checkpoint
from monitor_builders import healthy, write_jsonl
from page_blocks import REPO, blocks_of, shell_commands
from served_fakes import Reply, chat, endpoint

START = REPO / "docs" / "start"
README = "README.md"
HERE = "tests/docs/test_start.py"
PLAYERS = """
def grpo(chat):
    a, b = (int(word) for word in chat[-1].content.replace("?", "").split() if word.isdigit())
    return f"#### {a + b}"


def sft(chat):
    return grpo(chat) if sum(map(ord, chat[-1].content)) % 3 else "#### 0"


def same(chat):
    return "A"
"""


def typed(page: str, language: str) -> list[str]:
    """The blocks of a language that this test runs, on a page of docs/start or in the README."""
    path = REPO / README if page == README else START / page
    found = blocks_of(str(path.relative_to(REPO)), path.read_text(encoding="utf-8"))
    return [block.text for block in found if block.language == language and block.said == HERE]


def commands(page: str) -> list[str]:
    """The commands of a page that this test runs, in order."""
    return [line for text in typed(page, "sh") for line in shell_commands(text)]


def type_in(folder: Path, lines: list[str], stand_ins: dict[str, str], installation: Path | None = None) -> list[tuple]:
    """Exit code and output of each command, typed in one folder."""
    (folder / "players.py").write_text(PLAYERS)
    ended = []
    for line in lines:
        words = [stand_ins.get(word, word) for word in shlex.split(line)]
        assert words[0] == "agent2", line
        finished = run_agent2(*words[1:], home=folder, installation=installation)
        ended.append((line, finished.returncode, finished.stdout + finished.stderr))
    return ended


def test_there_are_five_short_pages_and_the_readme_links_each():
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    pages = sorted(START.glob("*.md"))
    assert len(pages) == 5
    for page in pages:
        assert f"](docs/start/{page.name})" in readme
        assert len(page.read_text(encoding="utf-8").split()) <= 680, page.name


def test_own_data_goes_from_a_file_to_a_decision(tmp_path):
    rows = [
        [f"What is {10 + k % 80} plus {11 + k * 7 % 83}? (ticket {k})", 21 + k % 80 + k * 7 % 83] for k in range(260)
    ]
    (shown,) = typed("own-data.md", "csv")
    assert [[str(cell) for cell in row] for row in rows[:2]] == list(csv.reader(shown.splitlines()))[1:]
    with (tmp_path / "questions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["question", "answer"], *rows])
    answers = [json.dumps({"prompt": question, "answer": f"#### {answer}"}) for question, answer in rows]
    (tmp_path / "answers.jsonl").write_text("\n".join(answers))
    stand_ins = {f"checkpoints/{name}": f"scripted:players.py:{name}" for name in ("sft", "grpo")}
    ended = type_in(tmp_path, commands("own-data.md"), stand_ins)
    assert [(line, output) for line, code, output in ended if code != 0] == []
    said = dict(zip((line for line, _, _ in ended), (output for _, _, output in ended), strict=True))
    new, check, look, score, decision, *_ = said.values()
    assert "final_answer: all answers are numbers" in new and "is sound" in check and "20" in look
    assert "1.0000" in score and "improvement shown" in decision and "release decision: candidate" in decision

    short = [line.replace("first", "again") for line in commands(README) if "run " not in line]
    short = short[: next(k for k, line in enumerate(short) if "decide" in line) + 1]
    stand_ins = {"A": "scripted:players.py:grpo", "B": "scripted:players.py:sft"}
    (tmp_path / "questions" / "benchmark.yaml").unlink()
    (tmp_path / "questions").rmdir()
    assert [(line, output) for line, code, output in type_in(tmp_path, short, stand_ins) if code != 0] == []


def test_a_checkpoint_goes_from_a_first_look_to_the_form_for_people(tmp_path):
    write_checkpoint(tmp_path / "checkpoints" / "grpo")
    check, *lines = commands("my-checkpoint.md")
    assert check == "agent2 models check checkpoints/grpo"
    ended = type_in(tmp_path, [check], {})
    stand_ins = dict.fromkeys(("checkpoints/sft", "checkpoints/grpo"), "scripted:players.py:same")
    ended += type_in(tmp_path, lines, stand_ins)
    decided = [code for line, code, _ in ended if line.startswith(("agent2 decide", "agent2 eval llm"))]
    assert set(decided) <= {0, 1}  # two players who only ever say "A": whatever is decided, the same each time
    assert [(line, output) for line, code, output in ended if code not in {0, 1}] == []
    assert "models check" in ended[0][0] and ended[0][1] == 0
    assert (tmp_path / "first" / "report.html").is_file() and (tmp_path / "form.yaml").is_file()


def test_a_training_is_judged_by_its_log_and_its_evaluations_are_listed(tmp_path):
    (tmp_path / "runs" / "grpo").mkdir(parents=True)
    write_jsonl(tmp_path / "runs" / "grpo" / "train_log.jsonl", healthy())
    monitor, history = commands("my-training.md")
    play = "agent2 eval mini_math --checkpoint scripted:players.py:same --limit 20"
    ended = type_in(tmp_path, [monitor, play, history], {})
    assert [(line, output) for line, code, output in ended if code != 0] == []
    assert "training action: continue" in ended[0][2] and (tmp_path / "monitor" / "monitor.html").is_file()
    assert (tmp_path / "history" / "history.html").is_file()
    (program,) = typed("my-training.md", "python")
    exec(compile(program, "page", "exec"), {})


def test_the_callback_of_the_page_is_given_the_folder_that_the_watch_of_the_page_prints_first(tmp_path):
    (tmp_path / "runs" / "grpo").mkdir(parents=True)
    page = "docs/start/my-training.md"
    blocks = blocks_of(page, (REPO / page).read_text(encoding="utf-8"))
    (watch,) = [line for block in blocks for line in shell_commands(block.text) if line.startswith("agent2 watch")]
    ((_, code, output),) = type_in(tmp_path, [watch], {})
    (program,) = typed("my-training.md", "python")
    folder = output.split("evaluations: ")[1].split()[0]
    assert code == 0 and f'WatchCallback("{folder}")' in program
    assert "runs/grpo: no checkpoint yet" in output


def test_the_agent_of_the_page_hands_in_the_base_model(tmp_path, monkeypatch, capsys):
    (tmp_path / "my-agent").mkdir()
    spec, sweep = typed("my-agents.md", "yaml")
    (tmp_path / "my-agent" / "agent.yaml").write_text(spec)
    (program,) = typed("my-agents.md", "python")
    (tmp_path / "my-agent" / "main.py").write_text(program)
    assert load_agent(str(tmp_path / "my-agent")).spec.command == ["python", "/agent/main.py"]
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    with endpoint(lambda body, number: Reply(b'{"score": 25.0, "error": null}')) as grader:
        monkeypatch.setenv("MODEL_PATH", str(tmp_path / "base"))
        monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "output"))
        monkeypatch.setenv("GRADING_SERVER_URL", grader.url)
        exec(compile(program, "page", "exec"), {})
        assert [body["model_path"] for body in grader.bodies] == ["output/model"]
    assert (tmp_path / "output" / "model" / "config.json").is_file() and "25.0 None" in capsys.readouterr().out
    (tmp_path / "agents.yaml").write_text(sweep)
    (estimate,) = type_in(tmp_path, commands("my-agents.md"), {})
    assert estimate[1] == 0 and "6 to run" in estimate[2], estimate


def test_the_page_on_gpus_serves_both_sides_and_prices_a_sweep(tmp_path):
    (sweep,) = typed("gpus.md", "yaml")
    assert len(parse_yaml(sweep, SweepSpec, "the page").seeds) == 3
    (tmp_path / "gsm8k.yaml").write_text(sweep)
    with endpoint(lambda body, number: chat("A")) as mine, endpoint(lambda body, number: chat("A")) as before:
        stand_ins = {
            "http://127.0.0.1:8001/v1#mine": f"{mine.url}#mine",
            "http://127.0.0.1:8002/v1#before": f"{before.url}#before",
        }
        ended = type_in(tmp_path, commands("gpus.md"), stand_ins)
        assert {body["model"] for body in mine.bodies} == {"mine"} and before.bodies
    assert [(line, output) for line, code, output in ended if code not in {0, 1}] == []
    assert "6 to run" in ended[-1][2] and "GPU dollars" in ended[-1][2]
