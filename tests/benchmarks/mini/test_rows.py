import json

import pytest

from agent2.benchmarks.mini.ifeval import read_ifeval_rows
from agent2.errors import ConfigError
from agent2.records import Rollout, RolloutStatus, Usage
from agent2.scorers.constraints.scorer import ConstraintScorer

ROW = {
    "key": 1001,
    "prompt": "Name a colour in fewer than five words, without commas.",
    "instruction_id_list": ["length_constraints:number_words", "punctuation:no_comma"],
    "kwargs": [{"num_words": 5, "relation": "less than"}, {}],
}
NULLS = {"keywords": None, "num_words": None, "relation": None, "language": None}


def write(tmp_path, *rows):
    path = tmp_path / "input_data.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_row_in_the_official_shape_loads_and_scores(tmp_path):
    (item,) = read_ifeval_rows(write(tmp_path, ROW))
    assert item.id == "ifeval-1001"
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), "red, of course", {}, Usage())
    score = ConstraintScorer().score(item, rollout)
    assert (score.value, score.views["instruction_level"]) == (0.0, 0.5)


def test_the_null_arguments_of_the_copy_on_the_hub_are_left_out(tmp_path):
    hub = ROW | {"kwargs": [NULLS | {"num_words": 5, "relation": "less than"}, NULLS]}
    assert read_ifeval_rows(write(tmp_path, hub)) == read_ifeval_rows(write(tmp_path, ROW))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"input_data.jsonl:2: is not a row"),
        ({"key": 1}, r":2: is not a row of IFEval's input_data.jsonl \(.*missing required field"),
        (ROW | {"instruction_id_list": ["keywords:existance", "punctuation:no_comma"]}, "did you mean 'keywords:exist"),
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
        read_ifeval_rows(write(tmp_path, ROW, row))


def test_a_missing_file_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match=r"none.jsonl: cannot be read .* give IFEval's input_data.jsonl"):
        read_ifeval_rows(tmp_path / "none.jsonl")
