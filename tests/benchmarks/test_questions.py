"""How rows become questions: options, answers in every layout that people have, and what is refused."""

import csv
import json
import re
from collections import Counter

import pyarrow
import pyarrow.parquet
import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split
from plugin_builders import write_rows

CHOICE = """\
name: colours
version: "1"
files: {dev: rows.jsonl}
prompt: "{question}\\n{options}\\nAnswer with a letter."
options: choices
answer: answer
scorer: choice
"""
GRASS = {"question": "Grass?", "choices": ["red", "green"]}


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def items_of(folder, text, rows):
    (folder / "benchmark.yaml").write_text(text)
    write_rows(folder / "rows.jsonl", rows)
    benchmark = load_benchmark(str(folder))
    return benchmark.items(Split.DEV, benchmark.count(Split.DEV, None), None)


def refusal(folder, text, rows):
    with pytest.raises(ConfigError) as refused:
        items_of(folder, text, rows)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("answer", ["B", "b", "(B)", "B.", "b)", " B ", "green"])
def test_options_are_lettered_and_the_answer_is_a_letter_or_a_text(tmp_path, answer):
    (item,) = items_of(tmp_path, CHOICE, [GRASS | {"answer": answer}])
    assert item.prompt == "Grass?\nA. red\nB. green\nAnswer with a letter." and item.reference == "B"
    benchmark = load_benchmark(str(tmp_path))
    assert [score_messages(benchmark, item, [letter]).value for letter in ("B", "A")] == [1.0, 0.0]


@pytest.mark.parametrize("answer", [1, 1.0, "1", 2, "2", 0, -1])
def test_a_number_is_never_guessed_to_be_a_place(tmp_path, answer):
    message = refusal(tmp_path, CHOICE, [GRASS | {"answer": answer}])
    assert (
        "rows.jsonl:1: answer field 'answer' is a number, which may be a place or an option's text, in 1 of 1"
        in message
    )
    assert "{field: answer, option_by: place_from_0} or, counted from 1, option_by: place_from_1" in message


@pytest.mark.parametrize(
    ("by", "answer", "letter"),
    [("place_from_0", 1, "B"), ("place_from_1", 1, "A"), ("place_from_0", "0", "A"), ("place_from_1", 2.0, "B")],
)
def test_a_number_is_the_place_that_the_file_says(tmp_path, by, answer, letter):
    text = CHOICE.replace("answer: answer", f"answer: {{field: answer, option_by: {by}}}")
    assert items_of(tmp_path, text, [GRASS | {"answer": answer}])[0].reference == letter
    assert "names no option by" in refusal(tmp_path, text, [GRASS | {"answer": 7}])


def test_numbers_as_options_are_refused_unless_the_answer_is_their_text(tmp_path):
    rows = [{"question": "1 + 1?", "choices": [1, 2, 3, 4], "answer": 2}]
    assert "is a number, which may be a place or an option's text, in 1 of 1 rows" in refusal(tmp_path, CHOICE, rows)
    text = CHOICE.replace("answer: answer", "answer: {field: answer, option_by: text}")
    assert items_of(tmp_path, text, rows)[0].reference == "B"
    rows = [{"question": "1 + 1?", "choices": ["1", "2", "3", "4"], "answer": "2"}]
    assert items_of(tmp_path, CHOICE, rows)[0].reference == "B"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "C"}, "is neither the letter, the label nor the text of an option in 1 of 1 rows"),
        ({"answer": "blue"}, "is neither the letter, the label nor the text"),
        ({"answer": True}, "is neither the letter, the label nor the text"),
        ({"answer": None}, "answer field 'answer' is missing or empty"),
        ({"answer": "  "}, "answer field 'answer' is missing or empty"),
        ({"answer": float("nan")}, "answer field 'answer' is missing or empty"),
        ({"answer": ["A", "B"]}, "is a list, and one option is right"),
        ({"choices": ["green"], "answer": "A"}, "options (choices) are not a list of 2 to 26 texts"),
        ({"choices": [], "answer": "A"}, "options (choices) are not a list of 2 to 26 texts"),
        ({"choices": ["a", None], "answer": "A"}, "options (choices) are not a list of 2 to 26 texts"),
        ({"choices": "red, green", "answer": "A"}, "options (choices) are not a list of 2 to 26 texts"),
        ({"choices": ["B", "A"], "answer": "A"}, "is the letter of one option and the text of another"),
        ({"choices": ["green", "red", "green"], "answer": "A"}, "the right option comes twice among the options"),
        ({"choices": ["green", "red", "green"], "answer": "green"}, "the right option comes twice among the options"),
    ],
)
def test_an_answer_or_options_that_cannot_be_used_are_refused_with_their_line(tmp_path, row, message):
    assert message in refusal(tmp_path, CHOICE, [GRASS | row])


def test_the_first_lines_with_a_problem_are_named(tmp_path):
    rows = [{"question": f"{k}?", "choices": ["x", "y"], "answer": float("nan") if k % 2 else "A"} for k in range(20)]
    assert "in 10 of 20 rows, this one first (lines 2, 4, 6, 8, 10, ...); complete" in refusal(tmp_path, CHOICE, rows)


def test_labels_beside_the_texts_name_the_options_as_arc_has_them(tmp_path):
    rows = [
        {"question": "a?", "choices": {"text": ["red", "green"], "label": ["A", "B"]}, "answer": "B"},
        {"question": "b?", "choices": {"text": ["red", "green", "blue"], "label": ["1", "2", "3"]}, "answer": "3"},
    ]
    references = {
        item.prompt[0]: (item.reference, item.payload["options"]) for item in items_of(tmp_path, CHOICE, rows)
    }
    assert references == {"a": ("B", ["red", "green"]), "b": ("C", ["red", "green", "blue"])}


def test_arc_as_it_was_published_has_question_and_options_in_one_record(tmp_path):
    text = CHOICE.replace("choices", "question.choices").replace("{question}", "{question.stem}")
    text = text.replace("answer: answer", "answer: answerKey")
    choices = [{"text": "red", "label": "A"}, {"text": "green", "label": "B"}]
    rows = [{"id": "1", "question": {"stem": "Grass?", "choices": choices}, "answerKey": "B"}]
    (item,) = items_of(tmp_path, text, rows)
    assert item.prompt == "Grass?\nA. red\nB. green\nAnswer with a letter." and item.reference == "B"
    assert "no row of" in refusal(tmp_path, text.replace("stem", "sten"), rows)


def test_an_option_in_a_field_of_its_own_may_look_like_a_list(tmp_path):
    row = {"question": "f?", "right": "[0, 1]", "wrong": "[1, 2]"}
    text = CHOICE.replace("options: choices", "options: [right, wrong]").replace("answer: answer", "answer: right")
    (item,) = items_of(tmp_path, text, [row])
    assert sorted(item.payload["options"]) == ["[0, 1]", "[1, 2]"]


def test_options_in_a_table_may_be_json_text_and_more_than_26_are_refused(tmp_path):
    (item,) = items_of(tmp_path, CHOICE, [GRASS | {"choices": '["red", "green"]', "answer": "B"}])
    assert item.payload["options"] == ["red", "green"]
    many = GRASS | {"choices": [f"c{k}" for k in range(27)], "answer": "c3"}
    assert "are not a list of 2 to 26 texts" in refusal(tmp_path, CHOICE, [many])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.json", json.dumps([GRASS | {"answer": "B"}])),
        ("rows.json", json.dumps({"version": 1, "data": [GRASS | {"answer": "B"}]})),
        (
            "rows.json",
            json.dumps(GRASS | {"answer": "B"}) + "\n" + json.dumps(GRASS | {"question": "b", "answer": "B"}),
        ),
        ("rows.tsv", 'question\tchoices\tanswer\nGrass?\t"[""red"", ""green""]"\tB\n'),
    ],
)
def test_arrays_of_json_and_tables_with_tabs_are_read(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "benchmark.yaml").write_text(CHOICE.replace("rows.jsonl", name))
    items = load_benchmark(str(tmp_path)).items(Split.DEV, 1, None)
    assert items[0].reference == "B" and items[0].payload["options"] == ["red", "green"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "rows.json:1: 1 is not a JSON object"),
        ("3", "3 is not an array of objects"),
        ("[]", "holds no rows"),
        ('[{"question": ', "rows.json:1: not valid JSON"),
        (b"\xff\xfe", "not UTF-8 text"),
    ],
)
def test_json_that_is_no_array_of_rows_is_refused(tmp_path, text, message):
    (tmp_path / "rows.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "benchmark.yaml").write_text(CHOICE.replace("rows.jsonl", "rows.json"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_benchmark(str(tmp_path)).items(Split.DEV, 1, None)


GPQA = """\
name: my_gpqa
version: "1"
files: {dev: gpqa.csv}
prompt: "{Question}\\n{options}"
options: [Correct Answer, Incorrect Answer 1, Incorrect Answer 2, Incorrect Answer 3]
answer: Correct Answer
scorer: choice
"""


def write_gpqa(folder, n=200, text=GPQA):
    header = ["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"]
    with (folder / "gpqa.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *([f"Q{k}?", f"r{k}", f"x{k}", f"y{k}", f"z{k}"] for k in range(n))])
    (folder / "benchmark.yaml").write_text(text)
    return load_benchmark(str(folder))


def test_options_that_are_fields_are_shuffled_by_a_hash_of_the_item(tmp_path):
    benchmark = write_gpqa(tmp_path)
    items = benchmark.items(Split.DEV, 200, None)
    letters = Counter(item.reference for item in items)
    assert set(letters) == set("ABCD") and max(letters.values()) < 75
    for item in items:
        assert item.payload["options"]["ABCD".index(item.reference)] == f"r{item.prompt[1:].partition('?')[0]}"
    again = load_benchmark(str(tmp_path)).items(Split.DEV, 200, None)
    assert again == items
    (tmp_path / "benchmark.yaml").write_text(GPQA + "shuffle: false\n")
    plain = load_benchmark(str(tmp_path))
    assert {item.reference for item in plain.items(Split.DEV, 200, None)} == {"A"}
    assert plain.version != benchmark.version


def test_the_order_of_the_fields_does_not_decide_the_order_shown(tmp_path):
    items = write_gpqa(tmp_path).items(Split.DEV, 200, None)
    other = "[Incorrect Answer 3, Incorrect Answer 1, Correct Answer, Incorrect Answer 2]"
    swapped = write_gpqa(tmp_path, text=GPQA.replace(GPQA.partition("options: ")[2].partition("\n")[0], other))
    assert {item.prompt for item in swapped.items(Split.DEV, 200, None)} == {item.prompt for item in items}


def test_a_letter_names_the_field_in_the_order_of_the_file_wherever_it_is_shown(tmp_path):
    text = CHOICE.replace("options: choices", "options: [A, B, C]")
    rows = [{"question": f"{k}?", "A": f"a{k}", "B": f"b{k}", "C": f"c{k}", "answer": "ABC"[k % 3]} for k in range(60)]
    for item in items_of(tmp_path, text, rows):
        k = int(item.prompt.partition("?")[0])
        assert item.payload["options"]["ABC".index(item.reference)] == f"{'abc'[k % 3]}{k}"


def test_the_name_of_a_field_names_its_option_and_an_empty_field_is_none(tmp_path):
    text = CHOICE.replace("options: choices", "options: [option_1, option_2, option_3]")
    rows = [{"question": "a?", "option_1": "x", "option_2": "y", "option_3": "", "answer": "option_2"}]
    (item,) = items_of(tmp_path, text, rows)
    assert sorted(item.payload["options"]) == ["x", "y"]
    assert item.payload["options"]["AB".index(item.reference)] == "y"
    rows[0] |= {"answer": "C"}
    assert "is neither the letter, the label nor the text of an option" in refusal(tmp_path, text, rows)


def test_options_that_speak_of_each_other_stay_in_their_order(tmp_path):
    text = CHOICE.replace("options: choices", "options: [A, B, C]")
    for last in ("None of the above", "Both A and B", "all of these", "A and B"):
        rows = [{"question": f"{k}?", "A": "x", "B": "y", "C": last, "answer": "C"} for k in range(8)]
        assert {item.reference for item in items_of(tmp_path, text, rows)} == {"C"}, last


def test_a_prompt_that_shows_the_fields_itself_keeps_their_order(tmp_path):
    shown = CHOICE.replace("options: choices", "options: [A, B]").replace("{options}", "A) {A} B) {B}")
    rows = [{"question": f"{k}?", "A": "x", "B": "y", "answer": "A"} for k in range(8)]
    assert {item.reference for item in items_of(tmp_path, shown, rows)} == {"A"}
    assert "'shuffle' needs 'options'" in refusal(tmp_path, shown + "shuffle: true\n", rows)


TEXTS = """\
name: capitals
version: "1"
files: {dev: rows.jsonl}
prompt: "{question}"
answer: answer
scorer: exact
"""


@pytest.mark.parametrize(
    "answer",
    [
        ["Rome", "Roma"],
        {"value": "Rome", "aliases": ["Rome", "Roma", ""]},
        {"text": ["Rome", "Rome", "Roma"], "answer_start": [1, 1, 5]},
    ],
)
@pytest.mark.parametrize("scorer", ["exact", "token_f1"])
def test_lists_of_accepted_answers_are_all_right(tmp_path, answer, scorer):
    (item,) = items_of(tmp_path, TEXTS.replace("exact", scorer), [{"question": "Capital?", "answer": answer}])
    assert (item.reference, item.payload) == ("Rome", {"accepted": ["Roma"]})
    benchmark = load_benchmark(str(tmp_path))
    scores = [score_messages(benchmark, item, [reply]).value for reply in ("Rome", " Roma", "Paris", "")]
    assert scores == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("answer", [[], [""], [None], {"value": None, "aliases": []}, {"a": "b"}])
def test_a_list_without_an_answer_is_missing(tmp_path, answer):
    message = refusal(tmp_path, TEXTS, [{"question": "a", "answer": answer}])
    assert "answer field 'answer' is missing or empty in 1 of 1 rows" in message


def test_answers_that_are_nan_are_missing_in_every_format(tmp_path):
    rows = [{"question": f"q{k}", "answer": float("nan")} for k in range(3)]
    assert "is missing or empty in 3 of 3 rows, this one first (lines 1, 2, 3)" in refusal(tmp_path, TEXTS, rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "benchmark.yaml").write_text(TEXTS.replace("rows.jsonl", "rows.parquet"))
    with pytest.raises(ConfigError, match="missing or empty in 3 of 3 rows"):
        load_benchmark(str(tmp_path)).count(Split.DEV, None)


def test_a_question_that_comes_twice_is_refused_or_dropped_but_never_with_another_answer(tmp_path):
    rows = [{"question": q, "answer": a} for q, a in (("x", "1"), ("y", "2"), ("x", "1"), ("x", "1"))]
    message = refusal(tmp_path, TEXTS, rows)
    assert "rows.jsonl:3: asks the same as line 1; remove one" in message and "(2 such rows; repeats: drop" in message
    assert len(items_of(tmp_path, TEXTS + "repeats: drop\n", rows)) == 2
    rows[2]["answer"] = "3"
    assert "asks the same as line 1 with another answer" in refusal(tmp_path, TEXTS, rows)
    assert "line 1 and has another answer" in refusal(tmp_path, TEXTS + "repeats: drop\n", rows)


def test_mixed_types_in_a_column_are_counted(tmp_path):
    rows = [GRASS | {"question": f"{k}?", "answer": 1 if k % 3 == 0 else "B"} for k in range(9)]
    assert "is a number, which may be a place or an option's text, in 3 of 9 rows" in refusal(tmp_path, CHOICE, rows)
    rows = [{"question": ["a"] if k == 2 else "a" * (k + 1), "answer": "x"} for k in range(5)]
    message = refusal(tmp_path, TEXTS, rows)
    assert "variable {question} of the prompt is missing, or neither text nor a number, in 1 of 5 rows" in message


def test_columns_of_another_case_are_named(tmp_path):
    message = refusal(tmp_path, TEXTS, [json.loads('{"Question": "a", "Answer": "b"}')])
    assert "unknown field 'answer'; did you mean 'Answer'?" in message
