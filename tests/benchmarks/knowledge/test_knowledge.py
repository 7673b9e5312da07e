"""MMLU, GPQA, ARC, TruthfulQA and BIG-Bench Hard on small files of our own in the official layouts."""

import csv
import json
import math

import pyarrow as pa
import pyarrow.parquet
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.declaration import Portion
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split

SECRET = b"s" * 32


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def mmlu_row(subject, number):
    options = [str(number + k - number % 4) for k in range(4)]
    return [f"Which number of {subject} is {number}?", *options, "ABCD"[number % 4]]


def mmlu(folder, n=10):
    for portion, name in (("dev", "dev"), ("val", "val"), ("test", "test")):
        for subject in ("anatomy", "college_physics"):
            start = {"dev": 0, "val": 100, "test": 200}[portion]
            rows = [mmlu_row(subject, start + k) for k in range(n)]
            write_csv(folder / portion / f"{subject}_{name}.csv", rows)
    return load_benchmark("mmlu", folder)


def every(benchmark, split=Split.TEST_PUBLIC):
    return benchmark.items(split, benchmark.count(split, SECRET), SECRET)


def values(benchmark, item, *answers):
    return [score_messages(benchmark, item, [answer]).value for answer in answers]


def test_mmlu_reads_a_file_for_each_subject_without_a_header(tmp_path):
    benchmark = mmlu(tmp_path)
    assert {split: benchmark.count(split, SECRET) for split in Split} == {
        Split.TRAIN: 20,
        Split.DEV: 20,
        Split.TEST_PUBLIC: 10,
        Split.TEST_PRIVATE: 10,
    }
    (item,) = benchmark.items(Split.DEV, 1, None)
    assert item.id == "mmlu-anatomy_val-0" and item.payload["task_type"] == "anatomy"
    assert "\nA. 100\nB. 101\nC. 102\nD. 103\n" in item.prompt
    assert values(benchmark, item, "The answer is (A)", "The answer is (B)", "", "100") == [1.0, 0.0, 0.0, 1.0]
    assert benchmark.environment().reset(item, 0)[-1].text == item.prompt


def test_mmlu_reads_the_same_questions_from_the_hub_files(tmp_path):
    by_csv = mmlu(tmp_path / "csv")
    rows = [
        {"question": row[0], "subject": subject, "choices": row[1:5], "answer": "ABCD".index(row[5])}
        for subject in ("anatomy", "college_physics")
        for row in (mmlu_row(subject, 200 + k) for k in range(10))
    ]
    (tmp_path / "hub" / "all").mkdir(parents=True)
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "hub" / "all" / "test-00000-of-00001.parquet")
    by_hub = load_benchmark("mmlu", tmp_path / "hub")
    both = [benchmark.whole_portion(Portion.TEST) for benchmark in (by_csv, by_hub)]
    first, second = ([(q.prompt, q.reference, q.payload["task_type"]) for q in questions] for questions in both)
    assert first == second


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["Which?", "1", "2", "3", "4", "E"], r"names no option by letter in 1 of 20 rows"),
        (["Which?", "1", "2", "3", "4"], r"anatomy_test.csv:1: has 5 fields, the header 6"),
    ],
)
def test_a_row_of_mmlu_that_is_not_as_published_is_refused_with_its_place(tmp_path, row, message):
    benchmark = mmlu(tmp_path)
    write_csv(tmp_path / "test" / "anatomy_test.csv", [row, *(mmlu_row("anatomy", k) for k in range(1, 10))])
    with pytest.raises(ConfigError, match=message):
        benchmark.count(Split.TEST_PUBLIC, SECRET)


def test_missing_files_are_named_with_what_to_bring(tmp_path):
    with pytest.raises(ConfigError, match=r"gpqa: .* contains no gpqa_diamond.csv or .* download it from .*GPQA_DATA"):
        load_benchmark("gpqa", tmp_path).count(Split.TEST_PUBLIC, SECRET)


def test_the_version_says_which_files_were_read(tmp_path):
    versions = {mmlu(tmp_path / "a").version, mmlu(tmp_path / "b", 11).version, mmlu(tmp_path / "c").version}
    assert len(versions) == 2
    assert load_benchmark("mmlu", tmp_path / "none").version == "1.0"


def gpqa_row(number):
    wrong = {f"Incorrect Answer {k}": f" {number + k} " for k in (1, 2, 3)}
    return {
        "Record ID": f"rec{number}",
        "Question": f"What is {number} + 0?",
        "Correct Answer": f"{number}\n",
        **wrong,
        "High-level domain": "Physics" if number % 2 else "Biology",
    }


def test_gpqa_shuffles_the_right_option_that_comes_first(tmp_path):
    rows = [gpqa_row(k) for k in range(10, 90)]
    write_csv(tmp_path / "gpqa_diamond.csv", [list(rows[0]), *(row.values() for row in rows)])
    write_csv(tmp_path / "gpqa_main.csv", [list(rows[0]), list(gpqa_row(1).values())])
    benchmark = load_benchmark("gpqa", tmp_path)
    items = [*every(benchmark), *every(benchmark, Split.TEST_PRIVATE), *every(benchmark, Split.DEV)]
    assert len(items) == 80 and benchmark.count(Split.DEV, None) == 20
    letters = [item.reference for item in items]
    assert all(10 <= letters.count(letter) <= 32 for letter in "ABCD")
    assert all(values(benchmark, item, f"The answer is ({item.reference})") == [1.0] for item in items[:5])
    assert {item.payload["task_type"] for item in items} == {"Physics", "Biology"}


def test_arc_reads_both_layouts_and_labels_of_numbers(tmp_path):
    options = [{"text": text, "label": label} for text, label in zip(("ice", "rock", "air"), "123", strict=True)]
    archive = [
        {"id": f"q{k}", "question": {"stem": f"What melts at {k}?", "choices": options}, "answerKey": "1"}
        for k in range(4)
    ]
    for portion in ("Train", "Dev", "Test"):
        write_jsonl(tmp_path / "archive" / f"ARC-Challenge-{portion}.jsonl", archive)
    lists = {"text": ["ice", "rock", "air"], "label": ["1", "2", "3"]}
    hub = [
        {"id": row["id"], "question": row["question"]["stem"], "choices": lists, "answerKey": "1"} for row in archive
    ]
    (tmp_path / "hub" / "ARC-Challenge").mkdir(parents=True)
    path = tmp_path / "hub" / "ARC-Challenge" / "test-00000-of-00001.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(hub), path)
    both = [load_benchmark("arc_challenge", tmp_path / name) for name in ("archive", "hub")]
    first, second = ([(q.id, q.prompt, q.reference) for q in b.whole_portion(Portion.TEST)] for b in both)
    assert first == second and first[0][2] == "A"


def likelihoods(*logprobs):
    n = len(logprobs)
    return json.dumps({"logprobs": logprobs, "n_tokens": [1] * n, "is_greedy": [False] * n})


def test_truthfulqa_mc2_is_the_share_of_probability_on_true_options(tmp_path):
    rows = [
        {
            "question": f"Is {k} even?",
            "mc1_targets": {"It is.": 1, "No.": 0, "Never.": 0},
            "mc2_targets": {"It is.": 1, "Yes.": 1, "No.": 0},
        }
        for k in range(8)
    ]
    (tmp_path / "mc_task.json").write_text(json.dumps(rows))
    mc2, mc1 = (load_benchmark(f"truthfulqa_mc{n}", tmp_path) for n in (2, 1))
    item = mc2.items(Split.DEV, 1, None)[0]
    answer = likelihoods(math.log(0.2), math.log(0.1), math.log(0.6))
    assert score_messages(mc2, item, [answer]).value == pytest.approx(0.3 / 0.9)
    assert score_messages(mc2, item, [likelihoods(-5000.0, -5000.0, -5001.0)]).value == pytest.approx(
        2 / (2 + 1 / math.e)
    )
    first = mc1.items(Split.DEV, 1, None)[0]
    right = [0.0 if option == "It is." else -9.0 for option in first.payload["options"]]
    wrong = [-9.0 if option == "It is." else 0.0 for option in first.payload["options"]]
    assert values(mc1, first, likelihoods(*right), likelihoods(*wrong)) == [1.0, 0.0]


def test_truthfulqa_of_the_csv_file_has_the_same_options(tmp_path):
    header = ["Type", "Category", "Question", "Best Answer", "Correct Answers", "Incorrect Answers", "Source"]
    rows = [["Adversarial", "Law", f"Is {k} legal?", "It is", "It is; Yes", "No; Never; ", "here"] for k in range(4)]
    write_csv(tmp_path / "TruthfulQA.csv", [header, *rows])
    (question, *_) = load_benchmark("truthfulqa_mc2", tmp_path).whole_portion(Portion.TEST)
    assert question.payload["options"] == ["No", "Never", "It is", "Yes"]
    assert (question.payload["marks"], question.payload["task_type"], question.reference) == ([0, 0, 1, 1], "Law", "C")


def test_bbh_reads_the_text_behind_the_answer_is(tmp_path):
    for task, target in (("boolean_expressions", "True"), ("snarks", "(B)"), ("dyck_languages", "] )")):
        rows = [{"input": f"{task} {k}", "target": target} for k in range(20)]
        (tmp_path / "bbh").mkdir(exist_ok=True)
        (tmp_path / "bbh" / f"{task}.json").write_text(json.dumps({"canary": "x", "examples": rows}))
    benchmark = load_benchmark("bbh", tmp_path)
    items = {item.payload["task_type"]: item for item in every(benchmark, Split.DEV)}
    assert set(items) == {"boolean_expressions", "snarks", "dyck_languages"}
    answers = ("Not so. So the answer is True.", "True", "so the Answer is true", "The answer is False.\n\nTrue")
    assert values(benchmark, items["boolean_expressions"], *answers) == [1.0, 1.0, 0.0, 0.0]
    assert values(benchmark, items["dyck_languages"], "So the answer is ] ).", "So the answer is ) ]") == [1.0, 0.0]
