import json
from dataclasses import replace

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AssignmentPart, AssignmentVerdict
from agent2.arena.sweep_records import AgentComparison, Axis, PairEffect, SweepRow, axis_effects, row_of
from agent2.reports.charts import forest_svg
from agent2.reports.sweep_pages import (
    axis_table,
    comparison_table,
    narrow_trial_table,
    sweep_report,
    terminal_tables,
    trial_table,
    write_sweep_report,
)
from agent2.stats.estimates import Estimate, PairedDifference
from builders import make_evidence, make_gain, make_submission


def row_cells(row):
    return trial_table([row]).cells()[0]


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
COMPARISON = AgentComparison(
    "arithmetic",
    "grpo",
    "nop",
    PairedDifference(Estimate(0.28, 0.24, 0.32, 600, method="paired bootstrap"), 1e-6),
    "better",
    1,
)


def test_a_sweep_report_has_rows_agents_and_comparisons(tmp_path):
    paths = write_sweep_report(sweep_report(ROWS, [COMPARISON], "My <sweep>"), tmp_path / "out")
    record = json.loads(paths.json.read_text())
    assert [r["agent"] for r in record["rows"]] == ["nop", "base-copy", "grpo", "grpo", "grpo"]
    assert [(a["n_with_gain"], a["n_submitted"]) for a in record["agents"]] == [(1, 0), (1, 1), (2, 2)]
    assert record["comparisons"][0]["difference"]["change"]["value"] == 0.28
    html, text = paths.html.read_text(), paths.markdown.read_text()
    assert "grpo minus nop · arithmetic" in html and "grpo minus nop · arithmetic" in text
    assert "My &lt;sweep&gt;" in html and "<b>disk" not in html and r"\<b>disk" in text
    assert "forest.svg" in text and paths.figure.read_text().startswith("<svg")


def test_the_mean_of_an_agent_is_green_only_where_it_is_shown_to_be_better():
    report = sweep_report(ROWS, [COMPARISON])

    def colours(claim):
        svg = forest_svg(report.rows, [replace(summary, claim=claim) for summary in report.agents])
        return {name for name in ("--green", "--orange") if name in svg}

    assert colours("better") == {"--green"} and colours("worse") == {"--orange"}
    assert colours("unclear") == colours("") == set()


def test_a_trial_with_nothing_submitted_counts_with_the_base_and_says_so(tmp_path):
    figure = write_sweep_report(sweep_report(ROWS[:1], []), tmp_path).figure.read_text()
    assert "no submission" in figure
    assert row_cells(ROWS[0])[5] == "0.0 (no submission)"


def test_cells_say_what_kind_of_zero_a_zero_is():
    assert row_cells(ROWS[1])[5] == "0.0 (copy of base)"
    assert row_cells(ROWS[2])[5:8] == ["+28.0 [+24.0, +32.0]", "±3.0", "better"]
    assert row_cells(ROWS[3])[7] == "unclear"
    assert row_cells(ROWS[4])[6] == "–"
    assert row_cells(ROWS[4])[-1] == "failed: <b>disk</b> full"


def test_a_sweep_of_nothing_still_has_a_report(tmp_path):
    paths = write_sweep_report(sweep_report([], []), tmp_path)
    assert "0 trials (0 finished)" in paths.html.read_text()


def test_tables_for_the_terminal_have_a_cell_for_every_column():
    cells = narrow_trial_table(ROWS).cells()
    assert cells[0][2:6] == ["30.0%", "–", "–", "0.0 (no submission)"]
    assert cells[4][-1] == "failed: <b>disk</b> full"
    cells = comparison_table([COMPARISON]).cells()
    assert cells[0][:6] == ["grpo minus nop · arithmetic", "+28.0", "[+24.0, +32.0]", "items", "p < 0.0001", "better"]


def test_a_sweep_over_drivers_shows_what_each_part_is_worth(tmp_path):
    pair = PairEffect(
        axis=Axis.DRIVER, task="arithmetic", mode="free", fixed="codex", level_a="<b>weak", level_b="strong",
        difference=PairedDifference(Estimate(-0.78, -0.84, -0.71, 600, method="by hand"), 1e-9, "items and seeds"),
        over_runs=Estimate(-0.78, -0.9, -0.6, 3), claim="worse", p_adjusted=1e-9, n_seeds=3, n_missing=0, n_pairs=1,
    )  # fmt: skip
    paths = write_sweep_report(sweep_report(ROWS, [], effects=[pair]), tmp_path)
    record = json.loads(paths.json.read_text())
    assert record["effects"][0]["widest"]["level_a"] == "strong"
    assert record["pair_effects"][0]["difference"]["change"]["value"] == -0.78
    (widest,) = axis_table(axis_effects([pair])).cells()
    assert widest[:3] == ["driver", "codex · arithmetic", "2"]
    assert widest[3:8] == ["strong minus <b>weak", "+78.0", "[+71.0, +84.0]", "items and seeds", "[+60.0, +90.0]"]
    assert widest[-1] == "better"
    html = paths.html.read_text()
    assert "What the driver and the agent system are worth" in html
    assert "<b>weak" not in html
    assert "What the driver" in paths.markdown.read_text()


def test_a_sweep_without_drivers_says_nothing_of_them(tmp_path):
    assert "What the driver" not in write_sweep_report(sweep_report(ROWS, []), tmp_path).html.read_text()


def test_a_broken_mode_and_an_unknown_cost_are_told_in_the_row():
    driven = replace(ROWS[2], mode="rl-only", mode_kept="fail", llm_tokens=1234, llm_dollars=None)
    cells = row_cells(driven)
    assert cells[-3:] == ["1,234", "unknown", "finished, mode rl-only: fail"]
    assert row_cells(ROWS[2])[-3:] == ["–", "–", "finished"]


def judged(credit, *, passed, **changes):
    part = AssignmentPart("repair", credit, "80% of the gain")
    return row(assignment=AssignmentVerdict("debug", passed, credit, (part,)), **changes)


def test_an_assignment_has_a_column_of_its_own_and_other_tasks_have_none():
    nothing = {"submissions": [], "processes": [], "metrics": [], "revisions": []}
    rows = [
        judged(0.75, passed=True, agent="oracle", **nothing),
        judged(0.25, passed=False, agent="oracle", seed=1, **nothing),
        judged(None, passed=False, agent="unlucky"),
        row(agent="grpo"),
    ]
    report = sweep_report(rows, [])
    cells = dict(zip(trial_table(rows).names, zip(*trial_table(rows).cells(), strict=True), strict=True))
    assert cells["assignment"] == (
        "credit 0.75, passed",
        "credit 0.25, not passed",
        "no credit given, not passed",
        "\u2013",
    )
    trials, agents = list(terminal_tables(report))[:2]
    assert trials[0][-2:] == ["assignment", "route"]
    assert [line[-1] for line in agents[1]] == [
        "credit 0.50, 1 of 2 passed",
        "no credit given, 0 of 1 passed",
        "\u2013",
    ]
    assert "assignment" not in trial_table(rows[3:]).names
