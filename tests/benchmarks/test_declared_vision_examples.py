"""The files of `examples/vision`, played on small data of ours in the published layouts."""

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from agent2.benchmarks import load_benchmark
from agent2.evaluation.engine import score_messages
from agent2.records import Split

EXAMPLES = Path(__file__).parents[2] / "examples" / "vision"
SECRET = b"s" * 32


def picture(number):
    stream = io.BytesIO()
    Image.new("RGB", (20 + number, 10), "white").save(stream, "PNG")
    return {"bytes": stream.getvalue(), "path": f"{number}.png"}


def loaded(folder, name, file, rows):
    shutil.copytree(EXAMPLES / name, folder / name)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / name / file)
    benchmark = load_benchmark(str(folder / name))
    splits = (Split.TEST_PUBLIC, Split.TEST_PRIVATE)
    return benchmark, [
        item for split in splits for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)
    ]


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def scores(benchmark, item, *answers):
    return [score_messages(benchmark, item, [answer]).value for answer in answers]


def test_chartqa_counts_a_number_within_five_percent(tmp_path):
    rows = [
        {"image": picture(k), "question": "How many?", "answer": str(100 + k), "type": "human_test"} for k in range(4)
    ]
    benchmark, items = loaded(tmp_path, "chartqa", "test.parquet", rows)
    (item,) = (item for item in items if item.reference == "100")
    assert len(items) == 4 and item.payload["type"] == "human_test"
    assert item.payload["pictures"][0]["prepared"] == "1344"
    assert scores(benchmark, item, "105", "106", "about 100", "") == [1.0, 0.0, 0.0, 0.0]


def test_docvqa_takes_the_nearest_of_its_answers(tmp_path):
    rows = [
        {"questionId": str(k), "image": picture(k), "question": "Who?", "answers": ["Ann Lee", f"Lee {k}"]}
        for k in range(4)
    ]
    benchmark, items = loaded(tmp_path, "docvqa", "validation.parquet", rows)
    (item,) = (item for item in items if item.id == "docvqa_files-2")
    assert scores(benchmark, item, "ann lee", "Lee 2", "nobody at all") == [1.0, 1.0, 0.0]
    assert 0.5 < scores(benchmark, item, "Ann Leo")[0] < 1.0


def test_mathvista_has_options_and_numbers_in_one_file(tmp_path):
    free = {"question_type": "free_form", "answer_type": "float", "precision": 1.0, "choices": None}
    choice = {
        "question_type": "multi_choice",
        "answer_type": "text",
        "precision": None,
        "choices": ["red", "dark blue"],
    }
    rows = [
        {"pid": "1", "decoded_image": picture(1), "query": "Hint: ...\nQuestion: How long?", "answer": "0.6"} | free,
        {"pid": "2", "decoded_image": picture(2), "query": "Hint: ...\n(A) red\n(B) dark blue", "answer": "dark blue"}
        | choice,
    ]
    benchmark, items = loaded(tmp_path, "mathvista", "testmini.parquet", rows)
    first, second = sorted(items, key=lambda item: item.id)
    assert scores(benchmark, first, "It is 0.64.", "0.7", "short") == [1.0, 0.0, 0.0]
    assert scores(benchmark, second, "The answer is (B).", "dark blu", "(A)", "I see nothing") == [1.0, 1.0, 0.0, 0.0]
