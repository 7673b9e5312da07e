import csv
import itertools
import json
import math
import runpy
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from typer.testing import CliRunner

from agent2.cli import app
from agent2.errors import ConfigError
from agent2.reports.radar import actions_of, radar_csv, radar_page, read_radar, safety_score, scaled
from agent2.reports.radar_figure import figure_size, plot_paper_radar, radar_figure, write_radar
from agent2.reports.style import DASHES, FILE_COLOURS, MARKERS, STYLE, drawing

MMBENCH_AXES = [
    "Identity Reasoning", "Future Prediction", "Function Reasoning", "Celebrity Recognition", "Attribute Recognition",
    "Attribute Comparison", "Action Recognition", "Struct. Img-Text Understanding", "Spatial Relationship",
    "Social Relation", "Physical Relation", "Physical Property", "OCR", "Object Localization", "Natural Relation",
    "Image Topic", "Image Style", "Image Scene", "Image Quality", "Image Emotion",
]  # fmt: skip
MMBENCH = {
    "VLM-SFT": [68, 48, 61, 55, 66, 50, 74, 31, 38, 44, 55, 37, 62, 49, 60, 78, 64, 69, 35, 54],
    "VLM-RL": [72, 52, 66, 58, 70, 55, 78, 40, 47, 49, 60, 43, 55, 53, 64, 80, 66, 73, 38, 58],
    "VLM-RL + OCR mix": [73, 56, 67, 60, 72, 57, 79, 48, 51, 52, 63, 46, 69, 56, 66, 81, 68, 74, 45, 60],
}
AGENTBENCH_AXES = ["OS", "DB", "KG", "DCG", "LTP", "HH", "WS", "WB"]
AGENTBENCH = {
    "Agent-SFT": [28, 41, 32, 45, 35, 22, 31, 18],
    "Agent-RL": [46, 49, 38, 43, 42, 20, 39, 24],
    "Agent-RL + guard": [43, 52, 45, 48, 51, 29, 44, 33],
}
REFERENCES = [
    ("mmbench", MMBENCH_AXES, MMBENCH, "MMBench-style 20-ability VLM radar", "radar-llm-core-regression"),
    ("agentbench", AGENTBENCH_AXES, AGENTBENCH, "AgentBench-style environment radar", "radar-code-agent-tool-bench"),
]
AXES = ["one", "two", "three", "four"]


def write(tmp_path, text, name="radar.yaml"):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return str(path)


def make(tmp_path, **fields):
    return read_radar(write(tmp_path, {"title": "A radar", "axes": AXES, "series": {"m": [10, 20, 30, 40]}, **fields}))


def run(*arguments):
    return CliRunner().invoke(app, ["chart", "radar", *map(str, arguments)])


@pytest.mark.parametrize(("name", "axes_names", "series", "title", "file"), REFERENCES)
def test_a_reference_figure_is_drawn_as_described(name, axes_names, series, title, file):
    chart = scaled(read_radar(name))
    assert chart.radar.file == file
    with drawing(*figure_size(chart), is_file=True, layout=None) as figure:
        radar_figure(chart, figure)
        (axes,) = figure.axes
        assert figure.get_size_inches().tolist() == [7.6, 6.4]
        assert axes.name == "polar"
        assert axes.get_theta_offset() == pytest.approx(math.pi / 2) and axes.get_theta_direction() == -1
        assert axes.get_ylim() == (0, 100)
        assert list(axes.get_yticks()) == [20, 40, 60, 80, 100]
        assert [label.get_text() for label in axes.get_yticklabels()] == ["20", "40", "60", "80", "100"]
        assert [label.get_text().replace("\n", " ") for label in axes.get_xticklabels()] == axes_names
        n = len(axes_names)
        assert axes.get_xticks() == pytest.approx([2 * math.pi * k / n for k in range(n)])
        assert [line.get_label() for line in axes.lines] == list(series)
        for line, colour in zip(axes.lines, ("#2b6cb0", "#c53030", "#2f855a"), strict=True):
            values = series[line.get_label()]
            assert line.get_ydata().tolist() == [*values, values[0]], "closed"
            assert line.get_xdata() == pytest.approx([*axes.get_xticks(), 0.0])
            assert (line.get_linewidth(), line.get_linestyle(), line.get_color()) == (2.4, "-", colour)
            assert (line.get_marker(), line.get_markersize()) == ("o", 3.2)
        assert [patch.get_alpha() for patch in axes.patches] == [0.08] * 3
        assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == ["#2b6cb0", "#c53030", "#2f855a"]
        for patch, values in zip(axes.patches, series.values(), strict=True):
            assert patch.get_xy()[:n, 1].tolist() == values
        legend = axes.get_legend()
        assert [text.get_text() for text in legend.get_texts()] == list(series)
        assert legend._ncols == 3 and not legend.get_frame_on()
        figure.draw_without_rendering()
        assert legend.get_window_extent().y1 <= axes.get_window_extent().y0, "below"
        texts = [text.get_text() for text in axes.texts]
        assert title in texts and any("hypothetical" in text for text in texts)


def test_the_fourth_reference_colour_is_purple_and_two_series_have_two_columns(tmp_path):
    series = {f"m{k}": [k, k, k, k] for k in range(4)}
    for n, columns in ((4, 3), (2, 2)):
        chosen = dict(list(series.items())[:n])
        chart = scaled(make(tmp_path, style="reference", series=chosen))
        with drawing(*figure_size(chart), is_file=True, layout=None) as figure:
            radar_figure(chart, figure)
            assert figure.axes[0].get_legend()._ncols == columns
            if n == 4:
                assert figure.axes[0].lines[3].get_color() == "#6b46c1"


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """What the command writes of the reference figures."""
    folder = tmp_path_factory.mktemp("figures")
    for name, *_, file in REFERENCES:
        result = run(name, "--out", folder)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == f"figure: {folder / file}.png"
    return folder


def test_the_command_writes_the_files_of_the_reference_figures(figures):
    names = {path.name for path in figures.iterdir()}
    for *_, file in REFERENCES:
        assert {f"{file}.{kind}" for kind in ("png", "svg", "pdf", "csv", "md")} <= names
    assert "radar-code-agent-tool-bench-overall.png" in names
    assert matplotlib.image.imread(figures / "radar-llm-core-regression.png").shape[0] > 5 * 180


def test_equal_numbers_give_equal_files(figures, tmp_path):
    for kind in ("png", "svg", "pdf"):
        (again, *_) = write_radar(read_radar("agentbench"), tmp_path, [kind])
        assert again.read_bytes() == (figures / again.name).read_bytes()


def test_the_page_has_the_excerpt_and_what_to_do_next():
    page = radar_page(scaled(read_radar("mmbench")))
    assert "| Model | Action | OCR | Spatial | Physical Relation | Identity | Image Quality |" in page
    assert "| VLM-RL | 78 | 55 | 47 | 60 | 72 | 38 |" in page
    suggested = {(a.series, a.do.split()[0], "OCR" in a.why) for a in actions_of(scaled(read_radar("mmbench")))}
    assert ("VLM-RL", "add", True) in suggested and ("VLM-RL", "split", True) in suggested
    assert ("VLM-RL", "add", False) in suggested, "image quality is short"
    assert ("VLM-SFT", "split", True) not in suggested, "nothing comes before the first series"
    agents = [(a.series, a.do) for a in actions_of(scaled(read_radar("agentbench")))]
    of_rl = " ".join(do for series, do in agents if series == "Agent-RL")
    assert "keep this data" in of_rl and "multi-turn" in of_rl and "game, planning" in of_rl
    assert "game, planning" not in " ".join(do for series, do in agents if series == "Agent-RL + guard"), "DCG rose"


def test_actions_follow_from_the_numbers_not_from_the_names(tmp_path):
    rules = [{"fell": ["one"], "do": "mend one"}, {"rose": ["two"], "fell": ["three"], "do": "both"}]
    series = {"a": [50, 50, 50, 50], "b": [47, 50, 40, 50], "c": [48, 60, 30, 50]}
    suggested = actions_of(scaled(make(tmp_path, steps=True, actions=rules, series=series)))
    assert [(a.series, a.do) for a in suggested] == [
        ("b", "mend one"),
        ("b", "see which items of three were lost"),
        ("c", "both"),
    ]
    assert "three 40 -> 30 (-10)" in suggested[-1].why
    untrained = actions_of(scaled(make(tmp_path, actions=rules, series=series)))
    assert [(a.series, a.why) for a in untrained] == [("c", "shortest: three 30")], (
        "series without an order do not move"
    )


def test_every_scale_points_outwards():
    assert safety_score(0.0, 0.02) == 100 and safety_score(0.02, 0.02) == 0 and safety_score(0.03, 0.02) == -50
    assert safety_score(0.005, 0.02) == 75


def test_raw_numbers_are_brought_to_the_axes_and_kept_in_the_table(tmp_path):
    axes = [
        {"name": "accuracy", "scale": "rate"},
        {"name": "violations", "scale": "bad_rate", "max_bad_rate": 0.02},
        {"name": "tokens", "scale": "range", "worst": 1000, "best": 200, "unit": "tokens"},
        {"name": "latency", "scale": "min_max", "lower_is_better": True},
        {"name": "OS", "scale": "relative"},
        {"name": "DB", "scale": "relative", "best": 50},
    ]
    series = {"old": [0.5, 0.0, 1000, 8.0, 12, 40], "new": [0.74, 0.015, 400, 2.0, 48, 25]}
    chart = scaled(make(tmp_path, axes=axes, series=series))
    assert [p.value for p in chart.points["old"]] == [50, 100, 0, 0, 25, 80]
    assert [p.value for p in chart.points["new"]] == pytest.approx([74, 25, 75, 100, 100, 50])
    rows = list(csv.DictReader(radar_csv([chart]).splitlines()))
    (tokens,) = [row for row in rows if row["axis"] == "tokens" and row["series"] == "new"]
    assert (tokens["raw"], tokens["unit"], tokens["value"]) == ("400.0", "tokens", "75.0")
    assert tokens["scale"] == 'range {"worst": 1000.0, "best": 200.0}'


def test_a_missing_number_is_a_gap_never_a_zero(tmp_path):
    chart = scaled(make(tmp_path, series={"m": [10, None, 30, 40], "n": {"one": 5, "three": 9}}))
    with drawing(5, 5, is_file=True, layout=None) as figure:
        radar_figure(chart, figure)
        (axes,) = figure.axes
        assert np.isnan(axes.lines[0].get_ydata()).tolist() == [False, True, False, False, False]
        assert any("no value: m on two" in text.get_text() for text in axes.texts)
        assert len(axes.patches) == 1, "n has no two neighbours, so no area"
        assert sorted(axes.patches[0].get_xy()[:, 1].tolist())[-3:] == [10, 30, 40]
    assert chart.overall("m") is None and "| two | missing | missing |" in radar_page(chart)
    row = list(csv.DictReader(radar_csv([chart]).splitlines()))[1]
    assert (row["raw"], row["value"], row["drawn"], row["note"]) == ("", "", "", "missing")


def test_a_number_beyond_its_axis_is_drawn_at_its_end_and_told(tmp_path):
    axes = [{"name": "violations", "scale": "bad_rate", "max_bad_rate": 0.02}, "two", "three"]
    chart = scaled(make(tmp_path, axes=axes, series={"m": [0.03, 130, -4]}))
    assert [p.drawn for p in chart.points["m"]] == [0, 100, 0]
    assert chart.overall("m") == pytest.approx(100 / 3)
    with drawing(5, 5, is_file=True, layout=None) as figure:
        radar_figure(chart, figure)
        text = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert "m on violations: 0.03 is beyond the axis (-50.0), drawn at 0" in text
    assert "| violations | 0 (-50.0) |" in radar_page(chart)


def test_an_axis_without_a_scale_is_a_gap(tmp_path):
    axes = [{"name": "a", "scale": "min_max"}, {"name": "b", "scale": "relative"}, "three"]
    chart = scaled(make(tmp_path, axes=axes, series={"m": [3, 0, 1]}))
    assert [p.value for p in chart.points["m"]] == [None, None, 1]
    assert "m on a: all series have 3, so min_max has no scale" in chart.notes


@pytest.mark.parametrize("n_axes", [3, 20, 21, 40])
def test_labels_do_not_cover_each_other(tmp_path, n_axes):
    axes = [f"ability number {k} of so many" for k in range(n_axes)]
    chart = scaled(make(tmp_path, axes=axes, series={"only": [50.0] * n_axes}))
    with drawing(*figure_size(chart), is_file=True, layout=None) as figure:
        radar_figure(chart, figure)
        figure.draw_without_rendering()
        (plot,) = figure.axes
        labels = [label for label in plot.get_xticklabels() if label.get_text()]
        labels = labels or [text for text in plot.texts if "ability" in text.get_text()]
        assert len(labels) == n_axes
        if n_axes <= 20:
            boxes = [label.get_window_extent() for label in labels]
            assert not any(box.overlaps(two) for box, two in itertools.pairwise([*boxes, boxes[0]]))
        else:  # each is turned with its axis: two lines of it fit into the arc between two axes
            radius = plot.get_window_extent().height / 2 * 1.03
            assert 2.5 * labels[0].get_fontsize() * figure.dpi / 72 < 2 * math.pi * radius / n_axes
            turns = [label.get_rotation() % 180 for label in labels]
            assert turns == pytest.approx([(90 - 360 * k / n_axes) % 180 for k in range(n_axes)])
        title = next(text for text in plot.texts if text.get_text() == "A radar").get_window_extent()
        assert not any(title.overlaps(label.get_window_extent()) for label in labels)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"axes": ["a", "b"]}, "at least 3"),
        ({"axes": [f"a{k}" for k in range(41)], "series": {"m": [1] * 41}}, "41 axes cannot be read"),
        ({"series": {f"m{k}": [1, 2, 3, 4] for k in range(60)}}, "60 series hide each other"),
        ({"series": {"m": [1, 2]}}, "'m' has 2 numbers for 4 axes"),
        ({"series": {"m": {"five": 1}}}, "names the axis 'five'"),
        ({"axes": ["one", "one", "two", "three"]}, "'one' occurs twice"),
        ({"series": {}}, "at least 1"),
        ({"axes": [{"name": "v", "scale": "bad_rate"}, "b", "c", "d"]}, "needs max_bad_rate"),
        ({"axes": [{"name": "v", "scale": "range", "worst": 1, "best": 1}, "b", "c", "d"]}, "no scale between"),
        ({"axes": [{"name": "v", "best": 3}, "b", "c", "d"]}, "has no best"),
        ({"actions": [{"rose": ["five"], "do": "x"}]}, "names the axis 'five'"),
        ({"actions": [{"do": "x"}]}, "has no condition"),
        ({"colour": "red"}, "colour"),
        ({"file": "../away"}, "file"),
    ],
)
def test_a_file_that_cannot_be_drawn_is_refused_in_one_line(tmp_path, fields, message):
    with pytest.raises(ConfigError, match=message) as error:
        make(tmp_path, **fields)
    assert "radar.yaml" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("axis", "raw", "message"),
    [
        ({"name": "v", "scale": "rate"}, 74, "write 0.74 for 74%"),
        ({"name": "v", "scale": "bad_rate", "max_bad_rate": 0.1}, -0.1, "rate of 0 to 1"),
        ({"name": "v", "scale": "relative"}, -1, "use scale range"),
    ],
)
def test_a_number_that_its_scale_does_not_know_is_refused(tmp_path, axis, raw, message):
    radar = make(tmp_path, axes=[axis, "b", "c"], series={"m": [raw, 1, 1]})
    with pytest.raises(ConfigError, match=message):
        scaled(radar)


def test_a_table_and_a_leaderboard_can_be_drawn(tmp_path):
    table = write(tmp_path, "model,OS,DB,KG\na,10,,30\nb,1,2,3\n", "my table.csv")
    radar = read_radar(table)
    assert radar.raw("a") == [10, None, 30] and radar.file == "my-table"
    standings = [{"stack": "x", "final": 0.5}, {"stack": "y", "final": None}]
    tasks = [{"task": f"t{k}", "standings": standings[: 1 + k % 2]} for k in range(3)]
    board = write(tmp_path, {"format": "agent2-leaderboard-1", "tasks": tasks}, "board.json")
    radar = scaled(read_radar(board))
    assert [p.value for p in radar.points["x"]] == [50, 50, 50]
    assert [p.value for p in radar.points["y"]] == [None, None, None]
    two = write(tmp_path, {"format": "agent2-leaderboard-1", "tasks": tasks[:2]}, "two.json")
    with pytest.raises(ConfigError, match="has 2 tasks"):
        read_radar(two)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,a,b,c\n", "no row of numbers"),
        ("model,a,b,c\nm,1,2\n", "row 2 has 3 cells"),
        ("model,a,b,c\nm,1,x,3\n", "'x' is not a number"),
        ("model,a,b,c\nm,1,nan,3\n", "not finite"),
        ("model,a,b,c\nm,1,2,3\nm,1,2,3\n", "occurs twice"),
    ],
)
def test_a_broken_table_is_refused_with_its_row(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_radar(write(tmp_path, text, "table.csv"))


def test_two_radars_stand_side_by_side_with_their_sources(tmp_path):
    published = write(tmp_path, {"title": "Published", "axes": AXES, "source": "Paper, table 3",
                                 "series": {"theirs": [4, 3, 2, 1]}})  # fmt: skip
    ours = write(tmp_path, {"title": "Ours", "axes": AXES, "series": {"m": [1, 2, 3, 4]}, "file": "ours"}, "ours.yaml")
    result = run(ours, "--beside", published, "--out", tmp_path / "out", "--format", "svg")
    assert result.exit_code == 0, result.output
    svg = (tmp_path / "out" / "ours.svg").read_text()
    assert svg.index("Published") < svg.index("Ours") and "Paper, table 3" in svg
    assert {row["chart"] for row in csv.DictReader((tmp_path / "out" / "ours.csv").open())} == {"Published", "Ours"}
    result_of_other = run(ours, "--beside", "agentbench", "--out", tmp_path / "out")
    assert result_of_other.exit_code != 0 and "other axes" in str(result_of_other.exception)


def test_one_series_can_be_chosen_and_wrong_input_is_told(tmp_path):
    result = run("mmbench", "--only", "VLM-RL", "--out", tmp_path, "--format", "svg,png")
    assert result.exit_code == 0 and not list(tmp_path.glob("*.pdf"))
    for arguments, message in (
        (["nothing.yaml"], "no such file"),
        (["mmbench", "--only", "VLM"], "there is no such series"),
        (["mmbench", "--format", "jpeg"], "jpeg"),
        (["mmbench", "--out", write(tmp_path, "a file", "file.txt")], "pass a folder"),
    ):
        failed = run("--out", tmp_path, *arguments)
        assert failed.exit_code != 0 and message in str(failed.exception), arguments


def test_hostile_names_are_text_and_no_formula(tmp_path):
    series = {"=cmd()": [1, 2, 3, 4], "<b>$x_2$\x1b[31m": [4, 3, 2, 1]}
    write_radar(make(tmp_path, series=series, title="<script>"), tmp_path, ["svg"])
    svg = (tmp_path / "radar.svg").read_text()
    assert "<script>" not in svg and "\x1b" not in svg and "$x_2$" in svg
    assert "\n" not in (tmp_path / "radar.csv").read_text().splitlines()[1]
    assert all(not row["series"].startswith("=") for row in csv.DictReader((tmp_path / "radar.csv").open()))


def test_the_script_draws_both_reference_figures(tmp_path):
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "plot_paper_style_radar.py"))
    script["main"](tmp_path / "images")
    names = {path.name for path in (tmp_path / "images").iterdir()}
    assert names == {"radar-llm-core-regression.png", "radar-code-agent-tool-bench.png"}
    script["plot_paper_radar"]("Mine", ["a", "b", "c"], {"m": [1, None, 3]}, tmp_path / "mine.svg", subtitle="sub")
    assert "no value: m on b" in (tmp_path / "mine.svg").read_text()
    with pytest.raises(ConfigError, match="jpg"):
        plot_paper_radar("Mine", ["a", "b", "c"], {"m": [1, 2, 3]}, tmp_path / "mine.jpg")


def test_series_differ_for_the_colour_blind():
    """Simulated as Machado et al. 2009 do (severity 1); distance is CIE76 in Lab, where 10 is clear at a glance."""
    views = {
        "normal": np.eye(3),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    }
    for name, matrix in views.items():
        colours = [_lab(np.asarray(matrix) @ _linear(colour)) for colour in FILE_COLOURS[3:]]
        for colour, two in itertools.combinations(colours, 2):
            assert np.linalg.norm(colour - two) > 10, name
    looks = [(k % 4, MARKERS[k % len(MARKERS)], str(DASHES[k % len(DASHES)])) for k in range(8)]
    assert len({marker for _, marker, _ in looks}) == 8
    assert STYLE["text.parse_math"] is False


def _linear(colour):
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def _lab(linear):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear.clip(0, 1)
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-6))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
