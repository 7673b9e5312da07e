"""From a data file to a decision: `python benchmarks/own_data.py`.

Files in the layouts that people have are made in a temporary folder, and taken to a decision by commands alone:
`benchmarks new`, `benchmarks check`, `eval` on scripted players of which one answers more. The table has the lines that
were written, by whom, and the seconds of each file. Exits with 1 if a command failed or no decision came.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

AGENT2 = [sys.executable, "-m", "agent2"]
N_ROWS = 200
PLAYERS = """\
import re


def answer(chat, share):
    number = int(re.search(r"number (\\d+)", chat[-1].text)[1])
    if number % 10 >= 10 * share:
        return "unknown"
    if "You may call functions" in chat[0].text:
        return '{"name": "weather", "arguments": {"city": "city %d"}}' % number
    letter = re.search(r"^([A-Z])\\. right", chat[-1].text, re.M)
    return letter[1] if letter else f"right {number}"


def before(chat):
    return answer(chat, 0.4)


def after(chat):
    return answer(chat, 0.7)
"""


def write_gpqa(folder: Path) -> Path:
    """GPQA's table: the right answer in a column of its own, three wrong ones beside it."""
    header = ["Pre-Revision Question", "Question", "Correct Answer"]
    header += [f"Incorrect Answer {k}" for k in (1, 2, 3)] + ["Explanation", "Record ID"]
    with (folder / "gpqa.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for k in range(N_ROWS):
            writer.writerow(
                ["old", f"What is\nnumber {k}?", f"right {k}", f"wrong {k}", f"other {k}", f"none {k}", "why", f"r{k}"]
            )
    return folder / "gpqa.csv"


def write_arc(folder: Path) -> Path:
    """ARC as it was published: question and choices in one record, labels as letters or digits."""
    lines = []
    for k in range(N_ROWS):
        labels = "1234" if k % 7 == 0 else "ABCD"
        texts = [f"right {k}" if place == k % 4 else f"wrong {k} {place}" for place in range(4)]
        choices = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
        question = {"stem": f"Which is number {k}?", "choices": choices}
        lines.append(json.dumps({"id": f"m{k}", "question": question, "answerKey": labels[k % 4]}))
    (folder / "arc.jsonl").write_text("\n".join(lines))
    return folder / "arc.jsonl"


def write_chats(folder: Path) -> Path:
    """Chats with tools, which end in words about the result of a call."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
    lines = []
    for k in range(N_ROWS):
        call = {"name": "weather", "arguments": json.dumps({"city": f"city {k}"})}
        messages = [
            {"role": "user", "content": f"Weather in number {k}?"},
            {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]},
            {"role": "tool", "content": "rain"},
            {"role": "assistant", "content": "It rains."},
        ]
        lines.append(json.dumps({"messages": messages, "tools": tools}))
    (folder / "chats.jsonl").write_text("\n".join(lines))
    return folder / "chats.jsonl"


def write_questions(folder: Path) -> Path:
    """200 questions with short answers, of which `files: {all: ...}` would leave 30 to decide on."""
    rows = [{"question": f"What is number {k}?", "answer": f"right {k}"} for k in range(N_ROWS)]
    (folder / "questions.json").write_text(json.dumps(rows))
    return folder / "questions.json"


def write_pandas(folder: Path) -> Path:
    """MMLU's rows as pandas writes them to a table, with the options as numpy prints an array."""
    with (folder / "mmlu.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "subject", "choices", "answer"])
        for k in range(N_ROWS):
            texts = [f"right {k}" if place == k % 4 else f"wrong {k} {place}" for place in range(4)]
            writer.writerow([f"Which is number {k}?", "anatomy", f"array({texts!r}, dtype=object)", k % 4])
    return folder / "mmlu.csv"


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "GPQA, CSV": write_gpqa,
    "ARC, JSON": write_arc,
    "chats with tools": write_chats,
    "200 questions": write_questions,
    "MMLU by pandas": write_pandas,
}


def measure(name: str, write: Callable[[Path], Path], folder: Path) -> bool:
    """Take one layout to a decision and print its row; whether it got there."""
    file = write(folder)
    (folder / "players.py").write_text(PLAYERS)
    home = {**os.environ, "AGENT2_HOME": str(folder / "home")}
    location = f"./{file.name.partition('.')[0]}"
    sides = ["--checkpoint", "scripted:players.py:after", "--baseline", "scripted:players.py:before"]
    commands = [
        ["benchmarks", "new", file.name],
        ["benchmarks", "check", location],
        ["eval", location, "--role", "nightly", *sides],
    ]
    started, output = time.perf_counter(), ""
    for command in commands:
        done = subprocess.run([*AGENT2, *command], cwd=folder, env=home, capture_output=True, text=True, check=False)
        output = done.stdout
        if done.returncode:
            print(f"{name:18} FAILED at {' '.join(command)}: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
            return False
    seconds = time.perf_counter() - started
    n_lines = len((folder / location / "benchmark.yaml").read_text().splitlines())
    change = re.search(r"([\d.]+% -> [\d.]+%)", output)
    decision = re.search(r"release decision: (\w+)", output)
    print(
        f"{name:18} {0:>14} {n_lines:>17} {len(commands):>9} {seconds:>8.1f}  {change[1] if change else '-'}, "
        f"{decision[1] if decision else 'no decision'}"
    )
    return decision is not None


def main() -> int:
    """Print the table."""
    print(f"{'layout':18} {'lines by hand':>14} {'lines by command':>17} {'commands':>9} {'seconds':>8}  decision")
    results = []
    for name, write in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(name, write, Path(folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
