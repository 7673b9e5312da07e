"""DeepSearchQA's official file, small recordings and a judge that is a script."""

import csv
from pathlib import Path

import yaml

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.declaration import Portion
from agent2.environments.search.corpus import Corpus, Document, record_search

COLUMNS = ("problem", "problem_category", "answer", "answer_type")
PAGES = Corpus.of([Document("river", "Rivers", "The Ulm is a river."), Document("town", "Towns", "Norvik is a town.")])
JUDGE = """
import json
from agent2.records import Completion

def rate(messages):
    text = messages[-1].content
    expected, answer = (text.split(f"<<< {name} ")[1].split("\\n")[1] for name in ("reference", "answer"))
    parts = [part.strip() for part in expected.split(",")]
    given = [part.strip() for part in answer.replace(",", ";").split(";")]
    details = {part: part in given for part in parts}
    more = [part for part in given if part not in parts]
    said = {"Correctness Details": details, "Excessive Answers": more}
    return Completion(json.dumps({"verdict": said}), prompt_tokens=10, n_tokens=10)
"""


def write_questions(folder, n=900, columns=COLUMNS, **change):
    with (folder / "DSQA-full.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for number in range(n):
            kind = change.get("answer_type", ("Single Answer", "Set Answer")[number % 2])
            answer = f"town {number}" if number % 2 == 0 else f"town {number}, river {number}"
            row = (f'Which "towns", of all,\nare number {number}?', "Geography", answer, kind)
            writer.writerow(row[: len(columns)])


def write_deepsearchqa(folder: Path) -> Path:
    """900 questions, a recording for each that is asked, and a judge."""
    folder.mkdir(parents=True, exist_ok=True)
    write_questions(folder)
    (folder / "judge.py").write_text(JUDGE)
    (folder / "judge.yaml").write_text(yaml.safe_dump({"model": f"scripted:{folder / 'judge.py'}:rate"}))
    record_search(PAGES, ["rivers", "norvik"], 3, folder / "all.jsonl")
    (folder / "recorded").mkdir()
    benchmark = load_benchmark("deepsearchqa", folder)
    for portion in (Portion.TRAIN, Portion.DEV, Portion.TEST):
        for question in benchmark.read(portion):
            (folder / "recorded" / f"deepsearchqa-{question.id}.jsonl").write_text((folder / "all.jsonl").read_text())
    return folder
