import json

from agent2.arena.analysis.analyse import analyse
from agent2.arena.sweep_records import AgentComparison, SweepRow, row_of
from agent2.reports.sweep_pages import comparison_table, row_cells, row_table, write_sweep_report
from builders import make_evidence, make_gain, make_submission


def row(**changes):
    evidence = make_evidence(**changes)
    return row_of(evidence, analyse(evidence))


ROWS = [
    row(agent="nop", submissions=[], processes=[], metrics=[], revisions=[]),
    row(agent="base-copy", submissions=[make_submission(1, score=0.3, is_base_copy=True)]),
    row(agent="grpo", seed=0),
    row(agent="grpo", seed=1, gain=make_gain(0.01)),
    SweepRow("arithmetic", "grpo", 2, "t", "failed: <b>disk</b> full"),
]
COMPARISON = AgentComparison("arithmetic", "grpo", "nop", 28.0, 24.0, 32.0, 1e-6, 600, 1, "paired bootstrap")


def test_a_sweep_report_has_rows_agents_and_comparisons(tmp_path):
    paths = write_sweep_report(ROWS, [COMPARISON], tmp_path / "out", title="My <sweep>")
    record = json.loads(paths.json.read_text())
    assert [r["agent"] for r in record["rows"]] == ["nop", "base-copy", "grpo", "grpo", "grpo"]
    assert [a["n_with_gain"] for a in record["agents"]] == [0, 1, 2]
    assert record["comparisons"][0]["delta_points"] == 28.0
    html, text = paths.html.read_text(), paths.markdown.read_text()
    assert "grpo minus nop · arithmetic" in html and "grpo minus nop · arithmetic" in text
    assert "My &lt;sweep&gt;" in html and "<b>disk" not in html and r"\<b\>disk" in text
    assert "forest.svg" in text and paths.figure.read_text().startswith("<svg")


def test_a_trial_without_a_gain_is_named_and_not_drawn_as_a_number(tmp_path):
    figure = write_sweep_report(ROWS[:1], [], tmp_path).figure.read_text()
    assert "no submission" in figure
    assert row_cells(ROWS[0])[5] == "no submission"


def test_cells_say_what_kind_of_zero_a_zero_is():
    assert row_cells(ROWS[1])[5] == "0.0 (copy of base)"
    assert row_cells(ROWS[2])[5:7] == ("+28.0 [+24.0, +32.0]", "beyond")
    assert row_cells(ROWS[3])[6] == "within"
    assert row_cells(ROWS[4])[-1] == "failed: <b>disk</b> full"


def test_a_sweep_of_nothing_still_has_a_report(tmp_path):
    paths = write_sweep_report([], [], tmp_path)
    assert "0 trials (0 finished)" in paths.html.read_text()


def test_tables_for_the_terminal_have_a_cell_for_every_column():
    names, cells = row_table(ROWS)
    assert {len(row) for row in cells} == {len(names)}
    assert cells[0][2:6] == ("30.0%", "–", "–", "no submission")
    assert cells[4][-1] == "failed: <b>disk</b> full"
    names, cells = comparison_table([COMPARISON])
    assert {len(row) for row in cells} == {len(names)}
    assert cells[0][:4] == ("grpo minus nop · arithmetic", "+28.0", "[+24.0, +32.0]", "p < 0.0001")
