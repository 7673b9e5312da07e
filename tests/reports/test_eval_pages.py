import json
import re
from dataclasses import replace

import pytest
import yaml

from agent2.analysis.outcome import read_outcome
from agent2.contract.decision import decide
from agent2.contract.decision_sentences import decision_text
from agent2.contract.findings import GateState, Improvement
from agent2.contract.metrics import Direction, Role, change_kind
from agent2.contract.report_file import read_report
from agent2.contract.suite import EvaluationRole
from agent2.errors import ConfigError, Fault
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.models.sources import ScriptedSampler, find_checkpoint
from agent2.records import Item, Score, Split
from agent2.reports.eval_charts import change_svg
from agent2.reports.eval_pages import eval_summary, eval_view, write_eval_report
from agent2.stats.comparisons import judge
from spot_check_builders import fill_forms
from suite_fakes import Sums, find_benchmark, make_suite, write_players

HOSTILE = "<script>alert(1)</script> | [x](http://evil) \x1b[31m"


@pytest.fixture
def evaluated(tmp_path, monkeypatch):
    """An evaluation's outcome and folder; the checkpoint, `strong` unless named, may answer what it likes."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    players = write_players(tmp_path)

    def evaluate(*changes, old="weak", new="strong", reply=None, known_benchmarks=None, **fields):
        sides = [find_checkpoint(f"scripted:{players}:{name}") for name in (old, new)]
        if reply is not None:
            sides[1] = replace(sides[1], opener=lambda: ScriptedSampler(reply))
        request = SuiteRequest(make_suite(tmp_path, *changes), *sides, tmp_path / "e", find_benchmark=find_benchmark)
        request = replace(request, **fields)
        run_suite(request)
        return read_outcome(request.out, known_benchmarks), request.out

    return evaluate


def test_the_report_has_the_known_fields_in_the_known_form(evaluated):
    outcome, out = evaluated()
    paths = write_eval_report(outcome, out)
    report = yaml.safe_load(paths.yaml.read_text())
    assert (report["checkpoint"], report["baseline"], report["suite"]) == ("strong", "weak", "quiz_regression-v1.0")
    assert re.fullmatch(r"\d+\.\d% -> \d+\.\d% \(\+\d+\.\d\)", report["sums_accuracy"])
    assert report["release_decision"] == "candidate"
    assert report["badcase_top"] == [{"wordy": "20 cases"}, {"wrong_sum": "20 cases"}]
    assert json.loads(paths.json.read_text()) == report
    assert report["evaluation"]["benchmarks"]["sums"]["checkpoint"]["rollouts"] == 60


@pytest.mark.parametrize("new", ["strong", "one_sided", "broken"])
def test_a_report_says_once_why_and_what_would_change_it(evaluated, new):
    view = eval_view(evaluated(new=new)[0])
    assert view.reasons and not set(view.reasons) & set(view.would_change)
    for sentence in view.would_change:
        assert not any(sentence in reason for reason in view.reasons)


@pytest.mark.parametrize("new", ["strong", "one_sided", "broken"])
def test_the_decision_is_the_same_when_it_is_made_again_from_the_report_file(evaluated, new):
    outcome, out = evaluated(new=new)
    paths = write_eval_report(outcome, out)
    decision = outcome.decision
    for path in (paths.yaml, paths.json):
        again = decide(outcome.suite.metrics, outcome.suite.gates, read_report(path, outcome.suite.metrics))
        assert (again.release, again.training_action) == (decision.release, decision.training_action)
        assert [finding.state for finding in again.findings] == [finding.state for finding in decision.findings]


def test_pages_answer_the_six_questions_and_show_every_gate(evaluated):
    outcome, out = evaluated(new="one_sided")
    paths = write_eval_report(outcome, out)
    for page in (paths.html.read_text(), paths.markdown.read_text()):
        for question in ("Did capabilities improve?", "Is the reward distorted?", "May training continue?"):
            assert question in page
        assert "block" in page and "fired" in page
        assert "worse by more than 20 points" in page
        assert "What the numbers do not cover" in page
    assert "doubles_hold" in paths.markdown.read_text()
    assert paths.figure.read_text().startswith("<svg")


def test_pages_say_what_was_skipped_and_do_not_draw_it(evaluated):
    outcome, out = evaluated(new="broken")
    paths = write_eval_report(outcome, out)
    assert "doubles was skipped: sums scored 0.0%" in paths.html.read_text()
    assert "doubles_accuracy" not in paths.figure.read_text()
    row = next(row for row in eval_view(outcome).metrics.cells() if row[0] == "doubles_accuracy")
    assert "missing" in row[2] and row[3] == "no pairs"


def test_the_share_of_missing_rollouts_stands_beside_every_score(evaluated):
    outcome, out = evaluated()
    benchmark = outcome.benchmarks[0]
    half = replace(benchmark.summaries["checkpoint"], n_missing=benchmark.summaries["checkpoint"].n_rollouts // 2)
    lossy = replace(benchmark, summaries={**benchmark.summaries, "checkpoint": half})
    outcome = replace(outcome, benchmarks=[lossy, *outcome.benchmarks[1:]])
    row = next(row for row in eval_view(outcome).metrics.cells() if row[0] == f"{benchmark.name}_accuracy")
    assert "0.0% -> 50.0%" in row
    record = json.loads(write_eval_report(outcome, out).json.read_text())
    assert record["evaluation"]["benchmarks"][benchmark.name]["checkpoint"]["missing_share"] == 0.5


def test_a_gate_that_was_not_evaluated_is_not_counted_as_one_that_held(evaluated):
    outcome, _ = evaluated(new="broken")
    n_open = sum(finding.state is GateState.NOT_EVALUATED for finding in outcome.decision.findings)
    n_judged = len(outcome.decision.findings) - n_open
    gates_tile = next(tile for tile in eval_view(outcome).tiles if tile.name == "gates")
    assert n_open > 0
    assert gates_tile.detail == f"of {n_judged} evaluated; {n_open} not evaluated"


def test_page_chart_and_answers_say_the_same_of_a_change(evaluated):
    outcome, _ = evaluated(new="one_sided")
    answers = decision_text(outcome.decision).answers.capabilities_improved
    for spec, row in zip(outcome.suite.metrics, eval_view(outcome).metrics.cells(), strict=True):
        evidence = outcome.evidence.metrics.get(spec.name)
        if evidence is None or evidence.paired is None or spec.direction is Direction.NONE:
            continue
        word = judge(evidence.paired, evidence.noise, is_higher_better=spec.direction is Direction.HIGHER).claim.value
        assert row[5] == change_kind(spec, evidence) == word
        if spec.role is not Role.DIAGNOSTIC and evidence.old != evidence.new:
            assert spec.name in answers.partition(f"{word}: ")[2]


def test_what_a_model_says_is_shown_as_text_and_nothing_else(evaluated):
    outcome, out = evaluated(reply=lambda messages: HOSTILE)
    paths = write_eval_report(outcome, out)
    html, text = paths.html.read_text(), paths.markdown.read_text()
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "[x](http" not in text and "\x1b" not in text + html


def test_answers_to_hidden_items_are_not_shown(evaluated):
    outcome, out = evaluated(role=EvaluationRole.CANDIDATE)
    paths = write_eval_report(outcome, out)
    assert outcome.benchmarks[0].lost[0].new_answer is None
    everything = "".join(path.read_text() for path in (paths.yaml, paths.json, paths.markdown, paths.html))
    assert "no idea" not in everything
    assert outcome.benchmarks[0].lost[0].item_id in everything
    assert "the access log has this one" in everything


class Poem(Sums):
    """Items of several lines; a hidden one can't be judged, and the reason quotes it."""

    def item(self, item_id, split, number):
        return Item(item_id, split, f"verse {number}\n    and <b>then</b> {number} + 1", f"line one\n{number + 1}")

    def scorer(self):
        return QuotingScorer()


class QuotingScorer:
    name, version = "equal", "1.0"

    def score(self, item, rollout):
        number = int(item.prompt.split()[1])
        if item.split is not Split.DEV and number % 20 == 0:
            return Score(None, f"the reference of {item.prompt!r} is odd", Fault.JUDGE)
        is_right = rollout.answer == f"right\n  {number % 7}" or number % 5 == 0
        return Score(float(is_right), "compared", views={"is_wordy": 0.0}, labels=() if is_right else ("wrong_sum",))


def answered_in_lines(messages):
    number = int(messages[-1].content.split()[1])
    return f"right\n  {number % 7}" if number % 2 else "wrong " + "word " * 400


def test_an_item_is_shown_with_question_reference_and_both_answers_line_by_line(evaluated):
    outcome, out = evaluated(old="broken", reply=answered_in_lines, find_benchmark=lambda name: Poem())
    sums = next(benchmark for benchmark in outcome.benchmarks if benchmark.name == "sums")
    (won, *_), example = sums.won, eval_view(outcome).examples[0]
    paths = write_eval_report(outcome, out)
    html, text = paths.html.read_text(), paths.markdown.read_text()
    number = int(re.search(r"verse (\d+)", sums.texts[won.item_id].question)[1])
    section = html[html.index("Items lost and won") :]
    for part in (
        f"verse {number}\n    and &lt;b&gt;then&lt;/b&gt; {number} + 1",
        f"line one\n{number + 1}",
        "right\n  ",
    ):
        assert f'<dd class="text">{part}' in section, "with its line ends, in an element that keeps them"
    assert re.search(r"\.text \{ white-space: pre-wrap", html)
    assert f"reference answer: line one\\\n      {number + 1}" in text
    assert example.label == "wrong_sum" and [text_view.name for text_view in example.items[0].texts] == [
        "question", "reference answer", "baseline answered", "checkpoint answered"
    ]  # fmt: skip
    long = example.items[0].texts[3]
    assert (long.head + long.tail).replace(" ", "") == "wrong" + "word" * 400 and len(long.head) <= 600
    assert "more characters</summary>" in html


def test_items_that_both_sides_fail_are_listed_with_their_texts(evaluated):
    outcome, out = evaluated(old="broken", reply=answered_in_lines, find_benchmark=lambda name: Poem())
    sums = next(benchmark for benchmark in outcome.benchmarks if benchmark.name == "sums")
    n_both = len(sums.both_failed)
    assert n_both and n_both + len(sums.lost) == sums.summaries["checkpoint"].n_items - sums_solved(sums)
    paths = write_eval_report(outcome, out)
    shown = f"{len(sums.lost)} lost, {len(sums.won)} won, {n_both} failed on both sides, of 60 items"
    assert shown in paths.html.read_text() and shown in paths.markdown.read_text()
    failed = sums.both_failed[0].item_id
    assert f"failed on both sides {failed}" in paths.markdown.read_text()
    assert f"failed on both sides: {min(20, n_both)}" in paths.html.read_text()
    record = json.loads(paths.json.read_text())["evaluation"]["benchmarks"]["sums"]
    assert failed in record["items_both_failed"] and failed not in record["items_lost"]


def sums_solved(benchmark):
    return round(sum(benchmark.summaries["checkpoint"].item_scores.values()))


def test_an_item_without_a_kept_reference_says_so(evaluated):
    _, out = evaluated()
    assert json.loads((out / "references.json").read_text())["sums"]
    (out / "references.json").unlink()
    again = read_outcome(out)
    assert "(none is kept for this item)" in write_eval_report(again, out).html.read_text()
    (out / "references.json").write_text("[")
    with pytest.raises(ConfigError, match=r"references\.json: cannot be read .* run the evaluation again"):
        read_outcome(out)


@pytest.mark.parametrize("role", [EvaluationRole.NIGHTLY, EvaluationRole.CANDIDATE])
def test_of_hidden_items_no_page_and_no_file_beside_the_cards_has_a_word(evaluated, role):
    outcome, out = evaluated(role=role, old="broken", reply=answered_in_lines, find_benchmark=lambda name: Poem())
    paths = write_eval_report(outcome, out)
    files = [path for path in out.iterdir() if path.is_file()]
    everything = "".join(path.read_text() for path in files)
    for secret in ("verse", "and <b>then", "and &lt;b&gt;", "line one", "is odd", "right\n", "wrong word"):
        assert secret not in everything
    ids = ", ".join(change.item_id for change in outcome.benchmarks[0].both_failed[:20])
    assert f"- failed on both sides: {ids}" in paths.markdown.read_text()
    assert not (out / "references.json").exists() and not any(benchmark.texts for benchmark in outcome.benchmarks)
    assert sum(len(benchmark.won) for benchmark in outcome.benchmarks) > 0 and eval_view(outcome).n_drops > 0
    html = paths.html.read_text()
    assert f"The items are hidden ({outcome.identity.split})" in html and "it may quote a hidden item" in html


def test_a_release_says_ships(evaluated, tmp_path):
    _, out = evaluated(role=EvaluationRole.CANDIDATE)
    fill_forms(out, tmp_path, ("Ada", "Ben"))
    view = eval_view(read_outcome(out))
    assert (view.release, view.passes, view.consequence) == ("release", True, "ships")
    shown = view.improvement == "improvement shown"
    assert view.verdict == ("pass" if shown else "unknown")


@pytest.mark.parametrize(
    ("release", "improvement", "colour"),
    [
        ("candidate", Improvement.SHOWN, "pass"), ("candidate", Improvement.NOT_SHOWN, "unknown"),
        ("candidate", Improvement.SEEN, "unknown"), ("block", Improvement.SHOWN, "fail"),
    ],
)  # fmt: skip
def test_a_decision_is_green_only_where_an_improvement_is_shown(evaluated, release, improvement, colour):
    outcome, _ = evaluated()
    decision = replace(outcome.decision, release=release, improvement=improvement)
    assert eval_view(replace(outcome, decision=decision)).verdict == colour


def test_several_attempts_have_a_table_of_their_own(evaluated):
    outcome, out = evaluated(("n: 1, max_tokens: 16", "n: 4, max_tokens: 16"))
    view = eval_view(outcome)
    assert [row[:3] for row in view.attempts.cells()][:2] == [["sums", "baseline", "4"], ["sums", "checkpoint", "4"]]
    assert all(row[3] == row[4] for row in view.attempts.cells()), "scripts answer the same each time"
    page = write_eval_report(outcome, out).markdown.read_text()
    assert "## Several attempts" in page and "best-of-4: no rollout has a view" in page


def test_the_terminal_gets_metrics_fired_gates_and_the_training_action(evaluated):
    outcome, _ = evaluated(new="one_sided")
    rows = eval_summary(outcome).lines()
    assert rows["gate doubles_hold"] == "fired"
    assert rows["training action"] == "continue"
    assert "->" in rows["sums_accuracy"]


def test_a_figure_without_numbers_is_no_figure(evaluated):
    outcome, _ = evaluated()
    assert change_svg(outcome.suite.metrics, replace(outcome.evidence, metrics={})) is None


def test_better_and_worse_are_said_only_beyond_the_interval_and_by_direction(evaluated):
    outcome, _ = evaluated()
    figure = change_svg(outcome.suite.metrics, outcome.evidence)
    assert "better" in figure and "worse" in figure, "words per answer rose, and fewer are better"
    assert "unclear" not in figure
