"""Cells as pandas and numpy print them, read as values and in tables of own data."""

import csv
import math

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.printed_values import parse_printed, with_arrays_read
from agent2.records import Split
from detection_builders import draft, four, write_table

N = 60


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("['a', \"it's\"]", ["a", "it's"]),
        ("array(['a', 'b'], dtype=object)", ["a", "b"]),
        ("array([\"it's\",\n       'b'], dtype=object)", ["it's", "b"]),
        ("{'text': array(['a'], dtype=object), 'answer_start': array([515], dtype=int32)}",
         {"text": ["a"], "answer_start": [515]}),
        ("array([{'role': 'user', 'content': 'x'}], dtype=object)", [{"role": "user", "content": "x"}]),
        ("array([list([1, -2.5]), None], dtype=object)", None),
        ("array([[1, -2.5], [None, True]], dtype=object)", [[1, -2.5], [None, True]]),
        ("array([], dtype=object)", []),
    ],
)  # fmt: skip
def test_what_python_and_numpy_print_is_read(text, value):
    if value is None:
        with pytest.raises(ValueError, match="no part of a value"):
            parse_printed(text)
        return
    assert parse_printed(text) == value


def test_a_missing_number_is_nan():
    assert math.isnan(parse_printed("[nan, 1.0]")[0])


@pytest.mark.parametrize(
    "text",
    [
        "plain words",
        "['a' 'b']",
        "[x for x in range(9)]",
        "array([__import__('os').system('true')], dtype=object)",
        "array(['a'], dtype=object, copy=open('f'))",
        "{1: 'a'}",
        "['a'",
        "(5)",
        "[" * 5000,
        f"['{'a' * (1 << 20)}']",
    ],
)
def test_what_shows_no_value_is_refused_and_nothing_is_run(text):
    with pytest.raises(ValueError):
        parse_printed(text)


@pytest.mark.parametrize("text", ["array([1, 2])", "use dtype=object here", "np.array(['a'], dtype=object).shape"])
def test_words_about_arrays_stay_words(text):
    assert with_arrays_read(text) == text


def references(folder):
    items = load_benchmark(str(folder)).items(Split.TEST_PUBLIC, N, b"s" * 32)
    return {item.prompt.split("?")[0]: item.payload["options"]["ABCDEFG".index(item.reference)] for item in items}


def printed(options):
    return f"array({options!r}, dtype=object)"


def test_arc_in_a_table_of_pandas_is_drafted_and_read(tmp_path):
    rows = [
        [f"Question {k}?", f"{{'text': {printed(four(k))}, 'label': {printed(list('ABCD'))}}}", "ABCD"[k % 4]]
        for k in range(N)
    ]
    keys, written = draft(
        tmp_path, write_table(tmp_path / "own.csv", ["question", "choices", "answerKey"], rows), "own.csv"
    )
    assert (keys["options"], keys["scorer"], written.n_rows) == ("choices", "choice", N)
    assert references(tmp_path) == {f"Question {k}": four(k)[k % 4] for k in range(N)}


def test_mmlu_in_a_table_of_pandas_is_read_by_place(tmp_path):
    rows = [[f"Question {k}?", printed(four(k)), k % 4] for k in range(N)]
    keys, _ = draft(tmp_path, write_table(tmp_path / "own.csv", ["question", "choices", "answer"], rows), "own.csv")
    assert keys["answer"] == {"field": "answer", "option_by": "place_from_0"}
    assert references(tmp_path) == {f"Question {k}": four(k)[k % 4] for k in range(N)}


def test_squad_in_a_table_of_pandas_has_answers_in_words(tmp_path):
    cells = "{{'text': array(['town {k}'], dtype=object), 'answer_start': array([{k}], dtype=int32)}}"
    rows = [[f"Context {k}.", f"Which town {k}?", cells.format(k=k)] for k in range(N)]
    table = write_table(tmp_path / "own.csv", ["context", "question", "answers"], rows)
    keys, _ = draft(tmp_path, table, "own.csv")
    items = load_benchmark(str(tmp_path)).items(Split.TEST_PUBLIC, N, b"s" * 32)
    assert {item.reference for item in items} == {f"town {k}" for k in range(N)}, keys


@pytest.mark.parametrize("show", [repr, printed], ids=["python", "numpy"])
def test_a_chat_in_a_table_of_pandas_is_asked(tmp_path, show):
    chats = [
        [{"role": "user", "content": f"What's {k}?"}, {"role": "assistant", "content": f"It is {k}."}] for k in range(N)
    ]
    keys, written = draft(
        tmp_path, write_table(tmp_path / "own.csv", ["messages"], [[show(chat)] for chat in chats]), "own.csv"
    )
    assert keys["chat"] == {"messages": "messages"} and written.n_rows == N


def test_a_table_is_as_long_as_before_and_other_cells_stay_text(tmp_path):
    table = write_table(tmp_path / "own.csv", ["question", "answer"], [[f"{k}?", "array([1, 2])"] for k in range(N)])
    with table.open() as file:
        assert len(list(csv.reader(file))) == N + 1
    draft(tmp_path, table, "own.csv")
    items = load_benchmark(str(tmp_path)).items(Split.TEST_PUBLIC, N, b"s" * 32)
    assert {item.reference for item in items} == {"array([1, 2])"}
