"""MMMU, MMBench, MathVista, ChartQA and DocVQA on small files of our own in the official layouts."""

import base64
import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from agent2.benchmarks import load_benchmark
from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.evaluation.suite_plan import limits_of
from agent2.pictures import of_payload, place_pictures
from agent2.records import Split

SECRET = b"s" * 32
HIDDEN = (Split.TEST_PUBLIC, Split.TEST_PRIVATE)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def png(number):
    stream = io.BytesIO()
    Image.new("RGB", (20 + number, 10), "white").save(stream, "PNG")
    return stream.getvalue()


def picture(number):
    return {"bytes": png(number), "path": f"{number}.png"}


def loaded(folder, name, file, rows):
    path = folder / name / file
    path.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    return load_benchmark(name, folder / name)


def hidden(benchmark):
    return [item for split in HIDDEN for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]


def values(benchmark, item, *answers):
    return [score_messages(benchmark, item, [answer]).value for answer in answers]


def mmmu_row(number, **changes):
    no_pictures = {f"image_{k}": None for k in range(2, 8)}
    row = {
        "id": f"validation_Art_Theory_{number}",
        "question": "Which style is <image 1>?",
        "options": "['Baroque', 'Rococo', \"Gaudi's\"]",
        "answer": "B",
        "question_type": "multiple-choice",
        "image_1": picture(number),
    }
    return row | no_pictures | changes


def mmmu(folder):
    second = {"question": "Compare <image 1> and <image 2>.", "image_2": picture(30)}
    opened = {"question": "How long is <image 1>?", "options": "[]", "question_type": "open", "answer": "['2', 'two']"}
    rows = [mmmu_row(1), mmmu_row(2, **second), mmmu_row(3, **opened), mmmu_row(4)]
    return loaded(folder, "mmmu", "Art_Theory/validation-00000-of-00001.parquet", rows)


def test_mmmu_has_choices_and_open_questions_in_one_file(tmp_path):
    benchmark = mmmu(tmp_path)
    items = {item.id.rpartition("_")[2]: item for item in hidden(benchmark)}
    assert items.keys() == {"1", "2", "3", "4"}
    assert items["1"].payload["task_type"] == "Art_Theory" and "C. Gaudi's" in items["1"].prompt
    assert values(benchmark, items["1"], "B", "It is (B).", "(A)", "I see nothing") == [1.0, 1.0, 0.0, 0.0]
    assert values(benchmark, items["3"], "It is 2 m.", "two", "3", "B") == [1.0, 1.0, 0.0, 0.0]


def test_mmmu_shows_each_picture_where_the_question_says(tmp_path):
    item = next(item for item in hidden(mmmu(tmp_path)) if item.id.endswith("_2"))
    message = place_pictures("user", item.prompt, of_payload(item.payload))
    assert [message.content[: shown.at] for shown in message.pictures] == ["Compare ", "Compare  and "]


def mmbench_row(number, **changes):
    return {
        "index": number,
        "question": f"What is {number}?",
        "hint": "nan",
        "A": "a cat",
        "B": "a dog",
        "C": "nan",
        "D": None,
        "answer": "B",
        "category": "object_localization",
        "image": picture(number),
    } | changes


def check_mmbench(benchmark):
    items = {item.id.rpartition("-")[2]: item for item in hidden(benchmark)}
    assert items["1"].payload["options"] == ["a cat", "a dog"] and items["2"].payload["options"][2] == "a cow"
    assert items["2"].prompt.startswith("Look.\nWhat is 2?")
    assert {item.payload["task_type"] for item in items.values()} == {"object_localization", "ocr"}
    right = score_messages(benchmark, items["1"], ["B", "A"])
    assert (right.value, right.views["first_order"]) == (1.0, 1.0)
    always = score_messages(benchmark, items["1"], ["B", "B"])
    assert (always.value, always.views["first_order"]) == (0.0, 1.0), "a letter that is always chosen is no knowledge"


MMBENCH_ROWS = [mmbench_row(1), mmbench_row(2, C="a cow", hint="Look.", category="ocr"), mmbench_row(3)]


def test_mmbench_is_asked_in_every_order_of_the_options_there_are(tmp_path):
    check_mmbench(loaded(tmp_path, "mmbench", "dev-00000-of-00001.parquet", MMBENCH_ROWS))


def test_mmbench_is_read_from_its_table_with_pictures_in_base64(tmp_path):
    path = tmp_path / "MMBench_DEV_EN.tsv"
    rows = [row | {"image": base64.b64encode(png(row["index"])).decode()} for row in MMBENCH_ROWS]
    rows[2]["image"] = "1"  # the table writes a picture once, and then the index of its row
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in rows)
    check_mmbench(load_benchmark("mmbench", tmp_path))


def test_chartqa_counts_a_number_within_five_percent(tmp_path):
    rows = [
        {"image": picture(k), "question": "How many?", "answer": str(100 + k), "type": "human_test"} for k in range(4)
    ]
    benchmark = loaded(tmp_path, "chartqa", "data/test-00000-of-00001.parquet", rows)
    (item,) = (item for item in hidden(benchmark) if item.reference == "100")
    assert item.payload["task_type"] == "human_test" and item.payload["pictures"][0]["prepared"] == "1344"
    assert values(benchmark, item, "105", "106", "about 100", "") == [1.0, 0.0, 0.0, 0.0]


def test_docvqa_takes_the_nearest_of_its_answers(tmp_path):
    rows = [
        {"questionId": str(k), "image": picture(k), "question": "Who?", "answers": ["Ann Lee", f"Lee {k}"]}
        for k in range(4)
    ]
    benchmark = loaded(tmp_path, "docvqa", "DocVQA/validation-00000-of-00001.parquet", rows)
    (item,) = (item for item in hidden(benchmark) if item.id == "docvqa-2")
    assert values(benchmark, item, "ann lee", "Lee 2", "nobody at all") == [1.0, 1.0, 0.0]
    assert 0.5 < values(benchmark, item, "Ann Leo")[0] < 1.0


def mathvista(folder):
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
    return loaded(folder, "mathvista", "data/testmini-00000-of-00001.parquet", rows)


def test_mathvista_has_options_and_numbers_in_one_file(tmp_path):
    benchmark = mathvista(tmp_path)
    first, second = sorted(hidden(benchmark), key=lambda item: item.id)
    assert values(benchmark, first, "It is 0.64.", "0.7", "short") == [1.0, 0.0, 0.0]
    assert values(benchmark, second, "The answer is (B).", "dark blu", "(A)", "I see nothing") == [1.0, 1.0, 0.0, 0.0]


def test_the_published_suite_names_the_scorers_and_the_pictures_that_are_installed(tmp_path):
    suite = load_suite("vlm_reasoning_regression_v1")
    for entry in suite.benchmarks:
        benchmark = load_benchmark(entry.name, tmp_path)
        assert entry.scorer.name == benchmark.scorer().name
        limits_of(suite, benchmark)  # raises if pictures are prepared in another way


@pytest.mark.parametrize("name", ["mmmu", "mmbench", "mathvista", "chartqa", "docvqa"])
def test_without_files_the_source_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match="hf download"):
        load_benchmark(name, tmp_path).items(Split.TEST_PUBLIC, 1, SECRET)


def test_pictures_beside_a_file_are_found_where_its_variable_points(tmp_path, monkeypatch):
    rows = [{"question": f"How high is bar {k}?", "answer": str(k), "image": f"{k}.png"} for k in range(20)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for k in range(20):
        (tmp_path / f"{k}.png").write_bytes(png(k))
    monkeypatch.setenv("CHARTQA_DATA", str(tmp_path))
    (item,) = load_benchmark("chartqa").items(Split.DEV, 1, SECRET)
    assert of_payload(item.payload)[0].width == 20 + int(item.reference)
