from dataclasses import replace

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import TypeScore
from agent2.arena.sweep_records import row_of
from agent2.reports.comparison_pages import sweep_report, write_sweep_report
from agent2.reports.pages import report_record, write_report
from agent2.reports.trial_view import sweep_type_table, type_table
from agent2.stats.estimates import Estimate
from builders import make_evidence


def score(value: float, n: int = 10) -> Estimate:
    return Estimate(value, 0.0, 1.0, n)


HEAT = TypeScore("pick_heat", score(0.1), score(0.6))
LOOK = TypeScore("look_<b>", score(0.2), None)


def with_types(*scores: TypeScore, **changes):
    return replace(make_evidence(**changes), by_type=scores)


def row(*scores: TypeScore, **changes):
    evidence = with_types(*scores, **changes)
    return row_of(evidence, analyse(evidence))


def test_each_kind_is_told_for_base_and_final_with_its_difference():
    heat, look = type_table([HEAT, LOOK]).cells()
    assert heat == ["pick_heat", "10.0% [0.0, 100.0] (n = 10)", "60.0% [0.0, 100.0] (n = 10)", "+50.0"]
    assert look[2:] == ["the base model itself", "–"]


def test_the_pages_of_a_trial_have_the_table_only_where_items_have_kinds(tmp_path):
    evidence = with_types(HEAT, LOOK)
    paths = write_report(evidence, analyse(evidence), tmp_path / "with")
    assert "Private scores by task type" in paths.markdown.read_text()
    html = paths.html.read_text()
    assert "pick_heat" in html and "look_&lt;b&gt;" in html
    assert report_record(evidence, analyse(evidence))["trial"]["by_type"] == (HEAT, LOOK)
    plain = make_evidence()
    assert "by task type" not in write_report(plain, analyse(plain), tmp_path / "without").html.read_text()


def test_a_sweep_averages_each_kind_over_the_trials_that_have_a_result():
    better = TypeScore("pick_heat", score(0.1), score(0.8))
    rows = [row(HEAT, agent="grpo", seed=0), row(better, agent="grpo", seed=1), row(LOOK, agent="sft")]
    assert sweep_type_table(rows).cells() == [
        ["grpo · arithmetic", "pick_heat", "10.0%", "70.0%", "2", "10"],
        ["sft · arithmetic", "look_<b>", "20.0%", "20.0%", "1", "10"],
    ]


def test_a_void_trial_counts_with_the_base_and_one_without_a_result_not_at_all():
    void = replace(row(HEAT, agent="cheat"), result="void", gain=Estimate(0.0, None, None, 0))
    empty = row(HEAT, agent="nop", submissions=[], processes=[], metrics=[], revisions=[])
    assert sweep_type_table([void, empty]).cells() == [["cheat · arithmetic", "pick_heat", "10.0%", "10.0%", "1", "10"]]


def test_a_sweeps_report_shows_kinds_and_is_silent_without(tmp_path):
    paths = write_sweep_report(sweep_report([row(HEAT, agent="grpo")], []), tmp_path / "a")
    assert "Success by task type" in paths.markdown.read_text() and "Success by task type" in paths.html.read_text()
    assert "by task type" not in write_sweep_report(sweep_report([row()], []), tmp_path / "b").markdown.read_text()
