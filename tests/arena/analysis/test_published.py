"""PostTrainBench's layout, in small: the aggregate, what it says of runs, and what it refuses."""

import json

import pytest

from agent2.arena.analysis.published import read_posttrainbench, read_published
from agent2.errors import ConfigError


def cells(*percents, fallback=False):
    return {
        f"model-{at}": {
            "a": {"value": value, "fallbackType": fallback},
            "b": {"value": 2 * value, "fallbackType": False},
        }
        for at, value in enumerate(percents)
    }


def write(folder, **changes):
    stored = {
        "benchmarkWeights": {"a": 0.25, "b": 0.75},
        "modelBenchmarkData": {
            "base-model": cells(4.0, 4.0),
            "strong": cells(20.0, 24.0),
            "weak": cells(6.0, 6.0),
            "lone": cells(16.0, 16.0, fallback="not_stored"),
        },
        "aggregatedScores": {"strong": {"avg": 38.5, "std": 1.0, "n": 3}, "weak": {"avg": 10.5, "std": 1.0, "n": 3}},
    }
    (folder / "scores.json").write_text(json.dumps(stored | changes))
    return folder


def test_the_aggregate_is_the_weighted_mean_and_ranks_come_from_several_runs(tmp_path):
    board = read_posttrainbench(write(tmp_path))
    rows = {row.name: row for row in board.rows}
    assert [row.name for row in board.rows] == ["strong", "lone", "weak", "base models, zero shot"]
    assert rows["strong"].score.value == pytest.approx(0.385)
    assert rows["strong"].score.low == pytest.approx(0.385 - 4.3027 * 0.01 / 3**0.5, abs=1e-5)
    assert (rows["strong"].place.text, rows["weak"].place.text) == ("1", "2")
    assert rows["lone"].runs == "one run"
    assert rows["lone"].score.low is None and rows["lone"].place is None
    assert rows["lone"].note == "2 of 4 cells are the base model's score"
    assert not rows["base models, zero shot"].is_agent


def test_an_aggregate_that_its_own_cells_do_not_give_is_refused(tmp_path):
    write(tmp_path, aggregatedScores={"strong": {"avg": 60.0, "std": 1.0, "n": 3}})
    with pytest.raises(ConfigError, match=r"aggregate of strong is 60.0, its cells give 38.500"):
        read_posttrainbench(tmp_path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"benchmarkWeights": {"a": 1.0, "b": 1.0}}, "sum to 2"),
        ({"modelBenchmarkData": {"x": {}}}, "is not the scores"),
    ],
)
def test_a_file_of_another_layout_is_refused(tmp_path, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_posttrainbench(write(tmp_path, **changes))


def test_figures_copied_from_a_paper_have_an_interval_only_with_several_runs(tmp_path):
    rows = "[{name: a, score: 50, runs: 4, std: 2}, {name: b, score: 40, runs: 4, std: 2}, {name: c, score: 45}]"
    (tmp_path / "published.yaml").write_text(f"title: t\nsource: s\nrows: {rows}\n")
    a, c, b = read_published(tmp_path).rows
    assert (a.name, c.name, b.name) == ("a", "c", "b")
    assert a.score.interval == pytest.approx((0.5 - 3.18245 * 0.01, 0.5 + 3.18245 * 0.01), abs=1e-5)
    assert (a.place.text, b.place.text, a.runs, c.place, c.runs) == ("1", "2", "4 runs", None, "one run")
    (tmp_path / "published.yaml").write_text("title: t\nsource: s\nrows: []\n")
    with pytest.raises(ConfigError, match="rows"):
        read_published(tmp_path)
