"""What `agent2 benchmarks new FILE` takes columns for, in the usual layouts, and what it refuses to guess."""

import json

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from agent2.benchmarks.declaration import OptionBy, Portion
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.detection import draft_benchmark
from agent2.evaluation.check import check_benchmark
from detection_builders import N_NEEDED, draft, four, questions, refusal, write_table
from plugin_builders import worked, write_rows


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def test_gpqa_has_the_right_answer_in_a_column_among_the_wrong_ones(tmp_path):
    header = ["Pre-Revision Question", "Pre-Revision Correct Answer", "Question", "Correct Answer"]
    header += ["Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Explanation", "Record ID"]
    rows = [["old", "x", f"Q{k}?\nSay.", f"r{k}\n", f"a{k}", f"b{k}", f"c{k}", "why", f"rec{k}"] for k in range(198)]
    keys, written = draft(tmp_path, write_table(tmp_path / "gpqa.csv", header, rows), "gpqa.csv")
    assert keys["options"] == ["Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"]
    assert (keys["answer"], keys["scorer"], keys["files"]) == ("Correct Answer", "choice", {"test_public": "gpqa.csv"})
    assert keys["prompt"].startswith("{Question}\n{options}\n") and "\n\n" not in written.example.prompt
    check = check_benchmark(DeclaredBenchmark(tmp_path))
    assert check.is_sound and check.counts["test_public"] == 198


@pytest.mark.parametrize("wrong", ["incorrect_answers", "distractors"])
def test_wrong_answers_may_be_a_list_beside_the_right_one(tmp_path, wrong):
    rows = [{"question": f"Q{k}?", "correct_answer": f"r{k}", wrong: [f"a{k}", f"b{k}", f"c{k}"]} for k in range(200)]
    keys, written = draft(tmp_path, rows)
    assert keys["options"] == ["correct_answer", wrong] and keys["answer"] == "correct_answer"
    assert sorted(written.example.payload["options"]) == ["a0", "b0", "c0", "r0"]
    check = check_benchmark(DeclaredBenchmark(tmp_path))
    assert check.is_sound
    message = refusal(tmp_path, [{"question": "Q?", "correct_answer": "r", wrong: ["r", "x"]}])
    assert "the right option comes twice among the options" in message


def test_wrong_answers_in_one_text_are_no_option(tmp_path):
    header = ["Question", "Best Answer", "Correct Answers", "Incorrect Answers"]
    rows = [[f"Q{k}?", f"best {k}", f"best {k}; right {k}", f"wrong {k}; bad {k}"] for k in range(30)]
    keys, _ = draft(tmp_path, write_table(tmp_path / "own.csv", header, rows), "own.csv")
    assert keys["answer"] == "Best Answer" and keys["scorer"] == {"name": "exact", "plain": True}


def test_constraints_are_checked_as_ifeval_has_them(tmp_path):
    fixed = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    rows = [{"prompt": f"Write {k} words."} | fixed for k in range(9)]
    keys, _ = draft(tmp_path, rows)
    assert keys["scorer"] == "constraints" and keys["payload"] == ["instruction_id_list", "kwargs"]
    unknown = [row | {"instruction_id_list": ["own:rule"]} for row in rows]
    assert "own:rule" in refusal(tmp_path, unknown)


def test_a_body_is_shown_before_its_question(tmp_path):
    rows = [{"Body": f"{k} jars.", "Question": "How many?", "Answer": float(k)} for k in range(30)]
    keys, written = draft(tmp_path, rows)
    assert keys["prompt"].startswith("{Body}\n{Question}") and keys["scorer"] == "final_answer"
    assert written.detected["question"] == "columns 'Body', 'Question'"


@pytest.mark.parametrize("is_published", [True, False])
def test_arc_as_published_and_as_on_the_hub(tmp_path, is_published):
    rows = []
    for k in range(240):
        labels = ["1", "2", "3", "4"] if k % 5 == 0 else ["A", "B", "C", "D"]
        published = [{"text": text, "label": label} for text, label in zip(four(k), labels, strict=True)]
        right = labels[k % 4]
        if is_published:
            rows.append({"id": f"m{k}", "question": {"stem": f"Q{k}?", "choices": published}, "answerKey": right})
        else:
            choices = {"text": four(k), "label": labels}
            rows.append({"id": f"m{k}", "question": f"Q{k}?", "choices": choices, "answerKey": right})
    keys, written = draft(tmp_path, rows)
    assert keys["options"] == ("question.choices" if is_published else "choices") and keys["answer"] == "answerKey"
    assert written.example.prompt.startswith("Q0?\nA. alder 0\nB. birch 0") and written.example.reference == "A"
    assert keys["files"] == {"test": "own.jsonl"}


def test_the_place_of_an_option_is_taken_for_one_where_the_data_leave_nothing_else(tmp_path):
    keys, _ = draft(tmp_path, questions(40, choices=four, answer=lambda k: k % 4))
    assert keys["answer"] == {"field": "answer", "option_by": "place_from_0"}
    keys, _ = draft(tmp_path, questions(40, choices=four, answer=lambda k: 1 + k % 4))
    assert keys["answer"] == {"field": "answer", "option_by": "place_from_1"}
    keys, _ = draft(
        tmp_path, questions(40, option1=lambda k: f"x{k}", option2=lambda k: f"y{k}", answer=lambda k: str(1 + k % 2))
    )
    assert keys["options"] == ["option1", "option2"] and keys["answer"]["option_by"] == "place_from_1"


def test_a_number_that_could_be_two_things_is_not_guessed(tmp_path):
    message = refusal(tmp_path, questions(40, choices=four, answer=lambda k: 1 + k % 3))
    assert "the numbers in 'answer' can be read as place_from_0 or place_from_1; say which with --option-by" in message
    numbers = questions(40, options=lambda k: [1, 2, 3, 4], answer=lambda k: 1 + k % 4)
    assert "can be read as text or place_from_1" in refusal(
        tmp_path, [row | {"options": [2, 1, 3, 4]} for row in numbers]
    )
    keys, _ = draft(tmp_path, questions(40, choices=four, answer=lambda k: 1 + k % 3), option_by=OptionBy.PLACE_FROM_0)
    assert keys["answer"]["option_by"] == "place_from_0"


def test_a_text_that_an_option_has_is_that_option_and_short_names_are_understood(tmp_path):
    keys, written = draft(
        tmp_path, questions(40, options=lambda k: ["4", "3", "2", "1"], answer=lambda k: str(1 + k % 4))
    )
    assert keys["answer"] == "answer" and written.example.reference == "D"
    keys, _ = draft(tmp_path, [{"q": f"{k}?", "a": f"word {k}"} for k in range(30)])
    assert keys["prompt"].startswith("{q}") and keys["answer"] == "a"
    rows = [{"q": f"{k}?", "a": "x", "b": "y", "c": f"z{k}", "key": "ABC"[k % 3]} for k in range(30)]
    assert "no column is the answer" in refusal(tmp_path, rows)
    keys, _ = draft(tmp_path, rows, answer="key")
    assert keys["options"] == ["a", "b", "c"]


def test_readings_that_name_the_same_options_are_no_riddle(tmp_path):
    keys, _ = draft(tmp_path, questions(40, options=lambda k: [1, 2, 3, 4], answer=lambda k: 1 + k % 4))
    assert keys["options"] == "options" and keys["answer"]["field"] == "answer"


def test_columns_of_letters_are_the_options(tmp_path):
    names = dict(zip("ABCD", range(4), strict=True))
    rows = [
        {"question": f"Q{k}?", **{n: four(k)[i] for n, i in names.items()}, "answer": "ABCD"[k % 4]} for k in range(40)
    ]
    keys, _ = draft(tmp_path, rows)
    assert keys["options"] == ["A", "B", "C", "D"]


def test_a_right_option_that_is_always_in_one_place_is_shuffled(tmp_path):
    keys, written = draft(tmp_path, questions(60, choices=four, answer=lambda k: "A"))
    assert keys["shuffle"] is True and "A is right in 100% of the rows" in written.detected["shuffle"]
    assert check_benchmark(DeclaredBenchmark(tmp_path)).is_sound


@pytest.mark.parametrize(
    ("answer", "scorer", "prompt"),
    [
        (lambda k: f"Aa{k}", {"name": "exact", "plain": True}, "{question}\nAnswer with the answer alone."),
        (lambda k: 3 * k, "final_answer", "{question}\nWork it out step by step."),
        (lambda k: f"{k},000.50", "final_answer", "{question}\nWork it out step by step."),
        (lambda k: f"so\n#### {k}", "final_answer", "{question}\nWork it out step by step."),
        (
            lambda k: f"\\frac{{{k}}}{{7}}" if k % 2 else "x^2",
            "math_answer",
            "{question}\nWork it out step by step. Put",
        ),
        (lambda k: f"So it is $\\boxed{{{k}}}$.", "math_answer", "{question}\nWork it out step by"),
        (lambda k: k % 2 == 0, {"name": "exact", "plain": True}, "{question}\nAnswer with one of: false, true."),
        (
            lambda k: "yes" if k % 3 else "no",
            {"name": "exact", "plain": True},
            "{question}\nAnswer with one of: no, yes.",
        ),
        (lambda k: f"word{k} " * 30, "token_f1", "{question}"),
        (lambda k: [f"Aa{k}", f"a{k}"], {"name": "exact", "plain": True}, "{question}\nAnswer with the answer alone."),
    ],
)
def test_the_kind_of_answers_decides_the_scorer(tmp_path, answer, scorer, prompt):
    keys, _ = draft(tmp_path, questions(60, answer=answer))
    assert keys["scorer"] == scorer and keys["prompt"].startswith(prompt)
    assert check_benchmark(DeclaredBenchmark(tmp_path)).is_sound


def test_a_passage_and_an_input_are_shown_with_their_question(tmp_path):
    keys, _ = draft(tmp_path, questions(30, passage=lambda k: f"P{k}", answer=lambda k: f"word {k}"))
    assert keys["prompt"].startswith("{passage}\n{question}")
    rows = [{"instruction": f"Do {k}", "input": f"{k}" if k % 2 else "", "output": f"done {k}"} for k in range(30)]
    keys, _ = draft(tmp_path, rows)
    assert keys["prompt"].startswith("{instruction}\n{input}") and keys["answer"] == "output"


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def chat(k, *further):
    call = {"type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": f"C{k}"})}}
    ask = {"role": "user", "content": f"Weather in C{k}?"}
    return [ask, {"role": "assistant", "content": None, "tool_calls": [call]}, *further]


def test_chats_with_tools_ask_for_the_call(tmp_path):
    keys, _ = draft(tmp_path, [{"messages": chat(k), "tools": [WEATHER]} for k in range(120)])
    assert keys["chat"] == {"messages": "messages", "tools": "tools"} and keys["scorer"] == "chat_calls"
    assert check_benchmark(DeclaredBenchmark(tmp_path)).is_sound
    ended = ({"role": "tool", "content": "rain"}, {"role": "assistant", "content": "It rains."})
    keys, written = draft(tmp_path, [{"messages": chat(k, *ended), "tools": [WEATHER]} for k in range(120)])
    assert keys["chat"]["ask"] == "last_call" and "most chats end in words" in written.detected["asked"]


def test_a_query_with_tools_and_answers_is_a_chat(tmp_path):
    call = [{"name": "weather", "arguments": {}}]
    rows = [{"query": f"Q{k}?", "tools": json.dumps([WEATHER]), "answers": json.dumps(call)} for k in range(30)]
    keys, _ = draft(tmp_path, rows)
    assert keys["chat"] == {"messages": "query", "tools": "tools"} and keys["answer"] == "answers"


def test_chats_in_words_are_scored_by_words(tmp_path):
    rows = [
        {"conversations": [{"from": "human", "value": f"Q{k}?"}, {"from": "gpt", "value": f"a{k}"}]} for k in range(30)
    ]
    keys, _ = draft(tmp_path, rows)
    assert keys["chat"] == {"messages": "conversations"} and keys["scorer"] == {"name": "exact", "plain": True}


def test_a_parquet_file_is_read_as_any_other(tmp_path):
    table = pyarrow.Table.from_pylist(questions(900, choices=four, answer=lambda k: k % 4))
    pyarrow.parquet.write_table(table, tmp_path / "own.parquet")
    keys, _ = draft(tmp_path, tmp_path / "own.parquet", "own.parquet")
    assert keys["files"] == {"all": "own.parquet"} and keys["answer"]["option_by"] == "place_from_0"


@pytest.mark.parametrize(
    ("names", "n", "portions"),
    [
        (["own.jsonl"], 200, {"test_public": "own.jsonl"}),
        (["own.jsonl"], 220, {"test": "own.jsonl"}),
        (["own.jsonl"], 660, {"all": "own.jsonl"}),
        (["train.jsonl"], 660, {"all": "train.jsonl"}),
        (["test.jsonl"], 660, {"test": "test.jsonl"}),
        (["train.jsonl", "test.jsonl"], 220, {"train": "train.jsonl", "test": "test.jsonl"}),
        (
            ["q_train.jsonl", "q_val.jsonl", "q_test.jsonl"],
            30,
            {"train": "q_train.jsonl", "dev": "q_val.jsonl", "test_public": "q_test.jsonl"},
        ),
    ],
)
def test_files_are_divided_so_that_they_can_decide(tmp_path, names, n, portions):
    files = [
        write_rows(tmp_path / name, [worked(1000 * index + k) for k in range(n)]) for index, name in enumerate(names)
    ]
    keys = yaml.safe_load(draft_benchmark(files, tmp_path / "own", "own", N_NEEDED).text)
    assert keys["files"] == {portion: f"../{name}" for portion, name in portions.items()}
    assert set(keys["files"]) <= set(Portion)


def test_repeated_rows_are_left_out_and_said(tmp_path):
    rows = questions(40, answer=lambda k: f"word {k}")
    keys, written = draft(tmp_path, [*rows, *rows[:3]])
    assert keys["repeats"] == "drop" and written.n_rows == 40
    assert written.detected["repeats"] == "3 rows repeat others and are left out"
    assert "line 1 and has another answer" in refusal(tmp_path, [*rows, rows[0] | {"answer": "another"}])


@pytest.mark.parametrize(
    ("rows", "hints", "message"),
    [
        (
            [{"a": "x", "answer": "b"}],
            {},
            "no column is the question (columns: a, answer); name it with --prompt COLUMN",
        ),
        (
            [{"question": "x", "b": "y"}],
            {},
            "no column is the answer (columns: question, b); name it with --answer COLUMN",
        ),
        (
            [{"question": "x", "answer": "b"}],
            {"prompt": "questin"},
            "unknown column 'questin'; did you mean 'question'?",
        ),
        ([{"question": "x", "answer": "b"}], {"answer": "anser"}, "unknown column 'anser'; did you mean 'answer'?"),
        ([{"question": "x", "answer": "b"}], {"prompt": "{questin}?"}, "unknown field 'questin'"),
        (
            [{"question": f"{k}", "answer": "b" if k else None} for k in range(9)],
            {},
            "is missing or empty in 1 of 9 rows",
        ),
        (
            [{"text": f"{k}", "label": k % 2} for k in range(60)],
            {},
            "column 'label' holds the numbers 0, 1, and nothing says what they mean; say it in the prompt",
        ),
        (
            [{"question": f"{k}", "choices": ["x", "y"], "answer": "z"} for k in range(9)],
            {},
            "neither the letter, the label nor the text of an option in 9 of 9 rows",
        ),
        ([{"prompt": "def f():", "entry_point": "f", "test": "x"}], {}, "the packaged benchmark humaneval plays files"),
        (
            [{"messages": [{"role": "user", "content": "x"}]}],
            {},
            "chat field 'messages' ends with the user in 1 of 1 rows",
        ),
    ],
)
def test_what_is_not_clear_is_refused_with_what_was_read_and_what_to_name(tmp_path, rows, hints, message):
    assert message in refusal(tmp_path, rows, **hints)


def test_a_prompt_that_says_what_numbers_mean_is_taken(tmp_path):
    rows = [{"text": f"{k}", "label": k % 2} for k in range(60)]
    keys, _ = draft(tmp_path, rows, prompt="{text}\nAnswer with 0 for bad, 1 for good.")
    assert keys["scorer"] == {"name": "exact", "plain": True} and keys["prompt"].endswith("1 for good.")
