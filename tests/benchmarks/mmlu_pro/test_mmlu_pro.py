"""MMLU-Pro on small files of our own in the official layout, and the questions of stored outputs."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split

SECRET = b"s" * 32
SCRIPT = Path(__file__).parents[3] / "benchmarks" / "mmlu_pro_questions.py"


def row(number, **changes):
    place = number % 3
    return {
        "question_id": number,
        "question": f"Which is {number}?",
        "options": [str(number + k - place) for k in range(4)],
        "answer": "ABCD"[place],
        "answer_index": place,
        "cot_content": "",
        "category": "math",
        "src": "ours",
    } | changes


def write(folder, *rows):
    folder.mkdir(exist_ok=True)
    (folder / "test.jsonl").write_text("\n".join(json.dumps(values) for values in rows))
    return load_benchmark("mmlu_pro", folder)


def test_every_tenth_question_is_visible_and_a_repeated_one_is_left_out(tmp_path):
    others = row(7, question_id=99), row(7, question_id=100, options=["7"] * 3)
    benchmark = write(tmp_path, *map(row, range(40)), *others)
    n_items = {split: benchmark.count(split, SECRET) for split in Split}
    assert n_items == {Split.TRAIN: 0, Split.DEV: 4, Split.TEST_PUBLIC: 18, Split.TEST_PRIVATE: 19}
    every = [item for split, n in n_items.items() for item in benchmark.items(split, n, SECRET)]
    assert len({item.prompt for item in every}) == 41 and "mmlu_pro-99" not in {item.id for item in every}
    assert [item.id for item in benchmark.items(Split.DEV, 2, None)] == ["mmlu_pro-9", "mmlu_pro-19"]


def test_the_letter_of_the_right_option_scores(tmp_path):
    benchmark = write(tmp_path, *map(row, range(10)))
    (item,) = benchmark.items(Split.DEV, 1, None)
    assert "\nA. 9\nB. 10\nC. 11\nD. 12\n" in item.prompt and item.payload["category"] == "math"
    answers = {"The answer is (A)": 1.0, "The answer is (B)": 0.0, "9": 0.0, "": 0.0}
    assert {answer: score_messages(benchmark, item, [answer]).value for answer in answers} == answers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": "B"}, r"test.jsonl:2: answer 'B' and answer_index 0 do not name the same one of 4 options"),
        ({"answer_index": 4}, "do not name the same"),
        ({"options": "A or B"}, r":2: field 'options' is missing or not list"),
        ({"question_id": 0, "question": "Another?"}, "id mmlu_pro-0 also appears"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        write(tmp_path, row(0), row(3, **changes)).count(Split.TEST_PRIVATE, SECRET)


def test_the_published_parquet_file_and_converted_outputs_hold_the_same_questions(tmp_path):
    rows = [row(number) for number in range(20)]
    (tmp_path / "hub").mkdir()
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "hub" / "test-00000-of-00001.parquet")
    with zipfile.ZipFile(tmp_path / "outputs.zip", "w") as archive:
        stored = [question | {"pred": "A", "generated_text": "The answer is (A)"} for question in rows]
        archive.writestr("outputs.json", json.dumps(stored))
    out = tmp_path / "converted"
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path / "outputs.zip"), str(out)], check=True)
    assert json.loads((out / "test.jsonl").read_text().splitlines()[3]) == rows[3]
    hub, converted = (load_benchmark("mmlu_pro", folder).questions() for folder in (tmp_path / "hub", out))
    assert [(question.id, question.prompt, question.reference) for question in hub] == [
        (question.id, question.prompt, question.reference) for question in converted
    ]
