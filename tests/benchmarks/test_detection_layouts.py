"""Further layouts of own data: one-hot labels, options in one text, several splits in a file, no header."""

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.option_texts import options_in_text
from agent2.evaluation.engine import score_messages
from agent2.records import Split
from detection_builders import draft, four, questions, refusal, write_table

N = 60


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def references(folder):
    items = load_benchmark(str(folder)).items(Split.TEST_PUBLIC, N, b"s" * 32)
    return {item.prompt.split("?")[0]: item.payload["options"]["ABCDEFG".index(item.reference)] for item in items}


def one_hot(k):
    return {"choices": four(k), "labels": [int(place == k % 4) for place in range(4)]}


def test_truthfulqa_marks_the_right_option_with_a_one(tmp_path):
    rows = questions(N, mc1_targets=one_hot, mc2_targets=lambda k: {"choices": four(k), "labels": [1, 1, 0, 0]})
    keys, written = draft(tmp_path, rows)
    assert keys["options"] == "mc1_targets.choices"
    assert keys["answer"] == {"field": "mc1_targets.labels", "option_by": "one_hot"}
    assert keys["scorer"] == "choice" and written.n_rows == N
    assert references(tmp_path) == {f"Question {k}": four(k)[k % 4] for k in range(N)}


def test_one_hot_labels_beside_the_options_are_read_from_text_too(tmp_path):
    header = ["question", "choices", "labels"]
    rows = [[f"Question {k}?", str(four(k)), str(one_hot(k)["labels"])] for k in range(N)]
    keys, _ = draft(tmp_path, write_table(tmp_path / "own.csv", header, rows), "own.csv")
    assert keys["answer"] == {"field": "labels", "option_by": "one_hot"}
    assert references(tmp_path) == {f"Question {k}": four(k)[k % 4] for k in range(N)}


@pytest.mark.parametrize("labels", [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0], [2, 0, 0, 0], "1000"])
def test_labels_that_do_not_mark_one_option_are_refused(tmp_path, labels):
    rows = questions(N, targets=lambda k: {"choices": four(k), "labels": labels if k == 7 else one_hot(k)["labels"]})
    assert "targets.labels" in refusal(tmp_path, rows, answer="targets.labels")


def test_options_in_one_text_are_divided_where_they_are_lettered(tmp_path):
    rows = questions(
        N,
        options=lambda k: " ".join(f"{letter}) {text}" for letter, text in zip("ABCD", four(k), strict=True)),
        answer=lambda k: "ABCD"[k % 4],
    )
    keys, _ = draft(tmp_path, rows)
    assert keys["options"] == "options"
    assert references(tmp_path) == {f"Question {k}": four(k)[k % 4] for k in range(N)}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("A) red B) dark blue C) green", ["red", "dark blue", "green"]),
        ("(A) red\n(B) blue", ["red", "blue"]),
        ("A. see Fig. 3\nB. none", ["see Fig. 3", "none"]),
        ("a ) 38 , b ) 27.675 , c ) 1,000", ["38", "27.675", "1,000"]),
        ("A) x, y, B) z", ["x, y", "z"]),
        ("['red', \"it's\"]", ["red", "it's"]),
        ("['red' 'blue'\n 'green']", ["red", "blue", "green"]),
        ("A) red C) green", []),
        ("A) red", []),
        ("B) red A) blue", []),
        ("Pick one: A) red B) blue", []),
        ("A) red b) blue", []),
        ("A) B) C)", []),
        ("[red blue]", []),
        ("['red', blue]", []),
        ("red, blue, green", []),
        ("['a' + 'b']", []),
    ],
)
def test_only_whole_texts_of_options_are_divided(text, options):
    assert options_in_text(text) == options


def test_a_file_with_several_splits_is_refused_with_what_to_write(tmp_path):
    rows = questions(N, answer=lambda k: f"word {k}", split=lambda k: "train" if k % 3 else "test")
    message = refusal(tmp_path, rows)
    assert "'split'" in message and "train 40" in message and "train.jsonl" in message and "test.jsonl" in message
    assert draft(tmp_path, questions(N, answer=lambda k: f"word {k}", split=lambda k: "test"))[1].n_rows == N
    assert draft(tmp_path, questions(N, answer=lambda k: f"word {k}", set=lambda k: f"algebra {k % 2}"))[1].n_rows == N


def test_a_table_without_a_header_is_refused_with_a_header_to_write(tmp_path):
    rows = [[f"What is {k} + 1?", k, k + 1, k + 2, k + 3, "B"] for k in range(N)]
    path = write_table(tmp_path / "own.csv", rows[0], rows[1:])
    assert "the first line looks like data" in (message := refusal(tmp_path, path, name="own.csv"))
    assert "question,A,B,C,D,answer" in message
    path = write_table(tmp_path / "twice.csv", ["What is it?", "4", "4"], [["a", "b", "c"]])
    assert "put a line with the names above the data" in refusal(tmp_path, path, name="twice.csv")
    named = write_table(tmp_path / "named.csv", ["", "question", "answer"], [[k, f"Q{k}?", f"w{k}"] for k in range(N)])
    assert draft(tmp_path, named, "named.csv")[1].n_rows == N


def test_options_that_a_few_rows_lack_are_refused_and_never_a_question_without_them(tmp_path):
    rows = questions(N, choices=lambda k: four(k)[: 1 if k == 5 else 4], answer=lambda k: "A")
    message = refusal(tmp_path, rows)
    assert "own.jsonl:6: column 'choices' holds" in message and "in 1 of 60 rows" in message
    lists = questions(N, answers=lambda k: [f"name {k}"] if k % 9 else [f"name {k}", f"alias {k}"])
    assert draft(tmp_path, lists)[0]["answer"] == "answers", "accepted answers are no options"


def chat_of(ask):
    return [{"role": "user", "content": ask}]


def scored(folder, *replies):
    """Values of replies to the first item, whose right answer is 3."""
    benchmark = load_benchmark(str(folder))
    (item,) = (item for item in benchmark.items(Split.TEST_PUBLIC, N, b"s" * 32) if " 0 plus 3" in item.prompt)
    return [score_messages(benchmark, item, [reply]).value for reply in replies]


def test_verls_rows_are_chats_with_their_answer_in_another_column(tmp_path):
    ask = 'What is {k} plus 3? Let\'s think step by step and output the final answer after "####".'
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": chat_of(ask.format(k=k)),
            "reward_model": {"style": "rule", "ground_truth": str(k + 3)},
            "extra_info": {"index": k},
        }
        for k in range(N)
    ]
    keys, written = draft(tmp_path, rows)
    assert keys["chat"] == {"messages": "prompt"} and keys["scorer"] == "final_answer" and written.n_rows == N
    assert keys["answer"] == {"field": "reward_model.ground_truth", "form": "#### {answer}"}
    assert scored(tmp_path, "0 + 3 is\n#### 3", "#### 4", "") == [1.0, 0.0, 0.0]


def test_numbers_that_a_chat_does_not_ask_to_mark_are_read_as_mathematics(tmp_path):
    rows = [{"messages": chat_of(f"What is {k} plus 3?"), "ground_truth": str(k + 3)} for k in range(N)]
    keys, _ = draft(tmp_path, rows)
    assert keys["scorer"] == "math_answer"
    assert scored(tmp_path, "The answer is $\\boxed{3}$.", "The answer is 3.", "So it is 4.") == [1.0, 1.0, 0.0]


def test_a_chat_with_words_as_its_answer_is_compared_exactly_and_an_answered_chat_keeps_its_own(tmp_path):
    rows = [{"prompt": chat_of(f"Capital of {k}?"), "answer": f"Town {k}"} for k in range(N)]
    assert draft(tmp_path, rows)[0]["scorer"] == {"name": "exact", "plain": True}
    for row in rows:
        row["prompt"] = [*row["prompt"], {"role": "assistant", "content": "Another town"}]
    assert "answer" not in draft(tmp_path, rows)[0]
