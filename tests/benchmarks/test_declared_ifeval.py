"""IFEval on small files of our own in the official layout."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.declaration import Portion
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split, digest_of

SECRET = b"s" * 32
ROW = {
    "key": 1001,
    "prompt": "Name a colour in fewer than five words, without commas.",
    "instruction_id_list": ["length_constraints:number_words", "punctuation:no_comma"],
    "kwargs": [{"num_words": 5, "relation": "less than"}, {}],
}
NULLS = {"keywords": None, "num_words": None, "relation": None, "language": None}


def read(folder, *rows):
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "input_data.jsonl").write_text("\n".join(lines))
    return load_benchmark("ifeval", folder).questions_in_file(Portion.TEST)


def test_a_row_in_the_official_shape_loads_and_scores(tmp_path):
    read(tmp_path, *(ROW | {"key": key} for key in range(1000, 1005)))
    benchmark = load_benchmark("ifeval", tmp_path)
    item = benchmark.items(Split.DEV, 2, None)[0]
    assert (item.id, item.prompt) == ("ifeval-1001", ROW["prompt"])
    score = score_messages(benchmark, item, ["red, of course"])
    assert (score.value, score.views["instruction_level"]) == (0.0, 0.5)
    assert score_messages(benchmark, item, ["red"]).value == 1.0
    assert score_messages(benchmark, item, [""]).value == 0.0


def test_two_of_five_prompts_are_visible_and_the_secret_divides_the_others(tmp_path):
    read(tmp_path, *(ROW | {"key": key} for key in range(541)))
    benchmark = load_benchmark("ifeval", tmp_path)
    n_items = {split: benchmark.count(split, SECRET) for split in Split}
    assert n_items == {Split.TRAIN: 0, Split.DEV: 216, Split.TEST_PUBLIC: 162, Split.TEST_PRIVATE: 163}
    members = [item.id for split, n in n_items.items() for item in benchmark.items(split, n, SECRET)]
    assert len(set(members)) == 541
    with pytest.raises(ConfigError, match="only the grader"):
        benchmark.count(Split.TEST_PRIVATE, None)


def test_items_and_protocol_are_those_of_version_1_0(tmp_path):
    """Whatever is written otherwise in the file: scores of two releases stay comparable."""
    read(tmp_path, *(ROW | {"key": key} for key in range(541)))
    benchmark = load_benchmark("ifeval", tmp_path)
    items = [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]
    assert digest_of(items) == "9cefb257fb695d8f716ebd19debd4d8e1230f264b0ac7e1d2efbc3c3424e1733"
    assert benchmark.version == "1.0"
    assert benchmark.prompt_digest == ""


def test_the_null_arguments_of_the_copy_on_the_hub_are_left_out(tmp_path):
    hub = ROW | {"kwargs": [NULLS | {"num_words": 5, "relation": "less than"}, NULLS]}
    assert read(tmp_path / "hub", hub)[0].payload == read(tmp_path / "official", ROW)[0].payload


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"input_data.jsonl:2: not valid JSON"),
        ({"key": 1}, r":2: field 'prompt' is missing or not str; restore the file"),
        (ROW | {"instruction_id_list": ["keywords:existance", "punctuation:no_comma"]}, "did you mean 'keywords:exist"),
        (ROW | {"instruction_id_list": [["punctuation:no_comma"], 3]}, "has to hold names"),
        (ROW | {"kwargs": [{"num_word": 5, "relation": "less than"}, {}]}, "did you mean 'num_words'"),
        (
            ROW | {"kwargs": [{"num_words": 5}, {}]},
            "lacks its argument 'relation'; give one of 'less than', 'at least'",
        ),
        (ROW | {"kwargs": [{}]}, "2 instructions with 1 sets of arguments"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_its_line(tmp_path, row, message):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, ROW, row)


def test_a_missing_file_says_what_to_get_and_where_it_is_looked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"no input_data.jsonl .* download it from github.com.* set IFEVAL_DATA"):
        load_benchmark("ifeval", tmp_path).questions_in_file(Portion.TEST)
