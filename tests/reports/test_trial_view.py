"""Tables of a trial's pages: task types, LLM calls, commands, conduct."""

from dataclasses import replace

import pytest

from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd, CommandLine, LlmCall, LlmRecord, TypeScore
from agent2.arena.sweep_records import row_of
from agent2.llm.records import LlmTotals, TokenCounts
from agent2.reports.charts import llm_svg
from agent2.reports.headline import cost_words, llm_words
from agent2.reports.pages import report_record, write_report
from agent2.reports.sweep_pages import sweep_report, write_sweep_report
from agent2.reports.text import dollars
from agent2.reports.trial_view import command_table, conduct_fields, llm_view, sweep_type_table, type_table
from agent2.stats.estimates import Estimate
from builders import START, make_evidence


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


def test_a_void_trial_and_one_with_nothing_submitted_count_with_the_base_and_a_lost_one_not_at_all():
    void = replace(row(HEAT, agent="cheat"), result="void", gain=Estimate(0.0, None, None, 0))
    nothing = {"submissions": [], "processes": [], "metrics": [], "revisions": []}
    empty = row(HEAT, agent="nop", **nothing)
    lost = row(HEAT, agent="lost", agent_end=AgentEnd.INFRASTRUCTURE, **nothing)
    assert sweep_type_table([void, empty, lost]).cells() == [
        [f"{agent} · arithmetic", "pick_heat", "10.0%", "10.0%", "1", "10"] for agent in ("cheat", "nop")
    ]


def test_a_sweeps_report_shows_kinds_and_is_silent_without(tmp_path):
    paths = write_sweep_report(sweep_report([row(HEAT, agent="grpo")], []), tmp_path / "a")
    assert "Success by task type" in paths.markdown.read_text() and "Success by task type" in paths.html.read_text()
    assert "by task type" not in write_sweep_report(sweep_report([row()], []), tmp_path / "b").markdown.read_text()


TOTALS = LlmTotals(
    calls=2, tokens=TokenCounts(1200, 60, 200, 10), dollars=0.0123, n_unknown_cost=0, n_failed=1, n_partial=0, n_lost=0,
    n_refused=0, n_uncounted=0, n_replayed=0, retries=3, by_model={"gpt": TokenCounts(1200, 60, 200, 10)},
)  # fmt: skip
CALL = LlmCall(
    number=1, t=START + 5, seconds=2.5, protocol="openai-chat", asked_model="small", model="gpt", outcome="ok",
    status=200, tokens=TokenCounts(1200, 60, 200, 10), is_counted=True, dollars=0.0123, retries=0, fault="",
)  # fmt: skip
FAILED = replace(
    CALL, number=2, t=START + 8, outcome="failed", status=500, dollars=None, fault="<i>overloaded", retries=3
)


def llm_record(**changes):
    return LlmRecord(TOTALS, (CALL, FAILED), None, None, **changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "$0.0123"),
        ({"n_unknown_cost": 1}, "$0.0123, and 1 call of unknown cost"),
        ({"dollars": None, "n_unknown_cost": 2}, "cost unknown: the price of the model is not known"),
    ],
)
def test_a_cost_that_is_not_known_is_never_a_zero(changes, text):
    assert cost_words(LlmRecord(replace(TOTALS, **changes), (), None, None)) == text
    assert dollars(None) == "unknown"


def test_calls_tokens_cost_and_budget_stand_in_one_line():
    budgeted = replace(llm_record(), max_tokens=50_000, max_dollars=2.5)
    assert llm_words(budgeted) == "2 calls, 1,200 tokens in, 60 out, $0.0123 (budget 50,000 tokens, $2.5)"


def test_a_replay_says_that_nothing_was_paid():
    assert cost_words(llm_record(replay_of="trial-1")) == "$0.0123 when it was recorded, nothing now"


def test_every_call_has_a_row_on_the_page_and_its_texts_are_harmless(tmp_path):
    evidence = make_evidence(llm=llm_record(), driver="lab/gpt", commands=[CommandLine("rm <b>x", START + 4, 1, True)])
    written = write_report(evidence, analyse(evidence), tmp_path)
    page, text = written.html.read_text(), written.markdown.read_text()
    assert "small → gpt" in page
    assert "&lt;i&gt;overloaded" in page and "<i>overloaded" not in page
    assert "rm &lt;b&gt;x" in page
    assert r"rm \<b>x" in text
    assert "driven by lab/gpt" in page
    label = 'aria-label="2 LLM calls over time, 2520 tokens"'
    assert label in page and label in (tmp_path / "llm.svg").read_text()


def test_commands_tell_their_outcome_where_it_is_known():
    evidence = make_evidence(commands=[CommandLine("ls"), CommandLine("make", START + 61, 2, True)])
    assert command_table(evidence).cells() == [["1", "ls", "–", "–", "–"], ["2", "make", "61 s", "failed", "2"]]


def test_an_agent_without_a_driver_has_no_llm_section(tmp_path):
    evidence = make_evidence()
    assert llm_view(evidence) is None
    assert llm_svg(evidence) is None
    assert "<h2>LLM</h2>" not in write_report(evidence, analyse(evidence), tmp_path).html.read_text()


def test_conduct_tells_mode_autonomy_and_recovery():
    rows = conduct_fields(analyse(make_evidence())).lines()
    assert rows["mode"] == "free, kept: any route was allowed"
    assert rows["task"] == "completed, by the agent alone"
    assert rows["human interventions"] == "none reported"
    assert rows["recovery rate"] == "–"
