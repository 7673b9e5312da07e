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
from agent2.benchmarks.declaration import Portion
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split, digest_of

SECRET = b"s" * 32
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "mmlu_pro_questions.py"


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


def test_items_and_protocol_are_those_of_version_1_0(tmp_path):
    """Whatever is written otherwise in the file: scores of two releases stay comparable."""
    benchmark = write(tmp_path, *map(row, range(40)))
    items = [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]
    assert digest_of(items) == "8a8b1eacaa1a7d9a48d8a5ace72f1ba81eae60c553cf5e417ce040fc0e4bae9c"
    assert (benchmark.version, benchmark.prompt_digest) == (
        "1.0",
        "74a22cd68fcb530e480602860f8fe86dd798e3f65249929cde3d71b99f402306",
    )


def test_the_letter_of_the_right_option_scores(tmp_path):
    benchmark = write(tmp_path, *map(row, range(10)))
    (item,) = benchmark.items(Split.DEV, 1, None)
    assert "\nA. 9\nB. 10\nC. 11\nD. 12\n" in item.prompt and item.payload["category"] == "math"
    answers = {"The answer is (A)": 1.0, "The answer is (B)": 0.0, "9": 0.0, "": 0.0}
    assert {answer: score_messages(benchmark, item, [answer]).value for answer in answers} == answers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answer": "B"},
            r"test.jsonl:2: answer fields 'answer' and 'answer_index' do not name the same option in 1 of 2 rows",
        ),
        ({"answer_index": 4}, "do not name the same option.* restore the file as it is published at huggingface"),
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
    hub, converted = (
        load_benchmark("mmlu_pro", folder).questions_in_file(Portion.TEST) for folder in (tmp_path / "hub", out)
    )
    assert [(question.id, question.prompt, question.reference) for question in hub] == [
        (question.id, question.prompt, question.reference) for question in converted
    ]
