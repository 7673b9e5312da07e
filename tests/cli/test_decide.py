"""`agent2 decide`, `compare` and `regress` as a user meets them: output, exit codes 0, 1 and 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agent2.analysis.outcome import read_outcome
from agent2.cli import app
from agent2.contract.report_file import read_report
from agent2.contract.suite_files import freeze, load_suite
from agent2.errors import Agent2Error
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.models.sources import find_checkpoint
from agent2.reports.eval_pages import write_eval_report
from contract_card_builders import verdicts, write_card
from evidence_builders import EXAMPLES
from suite_fakes import find_benchmark, make_suite, write_players

LLM = "llm_core_regression"
KEPT = (("63.0% -> 57.2% (-5.8)", "63.0% -> 62.8% (-0.2)"), ("612 -> 941 (+53.8%)", "612 -> 630 (+2.9%)"))

WITHOUT_TORCH = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "trl"}:
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbidden())
try:
    import torch
except ImportError:
    print("no torch", file=sys.stderr)
from agent2.cli import main
main()
"""


def run(*arguments, code=0):
    """The output of a command that must end with this exit code; the sentence of the error for code 2."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if code == 2:
        assert isinstance(result.exception, Agent2Error), result.output
        return str(result.exception)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def good_report(tmp_path: Path) -> Path:
    text = (EXAMPLES / f"{LLM}.yaml").read_text()
    for old, new in KEPT:
        text = text.replace(old, new)
    path = tmp_path / "report.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "release", "action"),
    [
        ("llm_core_regression", "block", "continue"),
        ("vlm_reasoning_regression", "block_for_chart_tasks", "continue"),
        ("agent_tool_regression", "research_only", "pause_human_review"),
    ],
)
def test_the_published_reports_are_refused_with_exit_code_1(name, release, action):
    output = run("decide", EXAMPLES / f"{name}.yaml", "--suite", f"{name}_v1", code=1)
    assert f"release decision  {release}\n" in output
    assert f"training action   {action}\n" in output
    assert "FIRED" in output
    assert "no item counts: point rule used" in output
    assert "was ignored; this decision is recomputed" in output


def test_a_candidate_ends_with_exit_code_0_and_json_holds_every_gate(tmp_path):
    printed = run("decide", good_report(tmp_path), "--suite", f"{LLM}_v1", "--json")
    decision = json.loads(printed)
    assert decision["release"] == "candidate"
    gates = {gate["gate"] for gate in decision["gates"]}
    assert {"primary_holds", "instructions_hold", "length", "safety", "historical_best"} <= gates
    assert all(gate["rule"] and gate["evidence"] for gate in decision["gates"])


def test_history_reaches_the_gate(tmp_path):
    history = tmp_path / "history.yaml"
    history.write_text("gsm8k_exact_match: [70.1%, 79.1%, 77.9%]\n")
    output = run("decide", good_report(tmp_path), "--suite", f"{LLM}_v1", "--history", history)
    assert "training action   pause\n" in output


def test_the_written_report_gives_the_same_decision_again(tmp_path):
    out = tmp_path / "decided.yaml"
    run("decide", EXAMPLES / f"{LLM}.yaml", "--suite", f"{LLM}_v1", "--out", out, code=1)
    assert yaml.safe_load(out.read_text())["release_decision"] == "block"
    run("decide", out, "--suite", f"{LLM}_v1", code=1)


def test_a_report_of_another_suite_is_said_to_be_one(tmp_path):
    path = good_report(tmp_path)
    path.write_text(f"suite: my_own-v1.0\n{path.read_text()}")
    assert "the report was made under suite my_own-v1.0" in run("decide", path, "--suite", f"{LLM}_v1")
    path.write_text(path.read_text().replace("my_own-v1.0", f"{LLM}-v1.0"))
    assert "was made under suite" not in run("decide", path, "--suite", f"{LLM}_v1")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("gsm8k_exact_mach: 70% -> 71% (+1.0)", "did you mean 'gsm8k_exact_match'"),
        ("helpfulness: 70% -> 71% (+1.0)", "unknown report field"),
        ("safety_violation_rate: 30 -> 90", "a rate is between 0 and 100%"),
    ],
)
def test_a_report_with_a_field_that_is_no_metric_is_bad_input(tmp_path, line, sentence):
    path = good_report(tmp_path)
    path.write_text(f"{path.read_text()}{line}\n")
    error = run("decide", path, "--suite", f"{LLM}_v1", code=2)
    assert sentence in error
    assert f"{path}:13" in error


def test_unknown_suites_and_missing_files_are_bad_input(tmp_path):
    assert "did you mean" in run("decide", good_report(tmp_path), "--suite", "llm_core_regresion_v1", code=2)
    assert "cannot be read" in run("decide", tmp_path / "none.yaml", "--suite", f"{LLM}_v1", code=2)
    (tmp_path / "bare").mkdir()
    run("decide", tmp_path / "bare", "--suite", f"{LLM}_v1", code=2)


def test_a_decision_is_computed_where_torch_cannot_be_imported():
    command = ["decide", str(EXAMPLES / "agent_tool_regression.yaml"), "--suite", "agent_tool_regression_v1", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *command], capture_output=True, text=True, check=False, timeout=600
    )
    assert "no torch" in done.stderr
    assert done.returncode == 1, done.stderr
    decision = json.loads(done.stdout)
    assert (decision["release"], decision["training_action"]) == ("research_only", "pause_human_review")


def test_a_report_cannot_write_to_the_terminal(tmp_path):
    path = good_report(tmp_path)
    path.write_text(
        path.read_text().replace("checkpoint: qwen", 'checkpoint: "\\e[2Jqwen').replace("1800\n", '1800"\n', 1)
    )
    assert "\x1b" not in run("decide", path, "--suite", f"{LLM}_v1")


def test_every_example_report_is_one_of_its_suite():
    for name in (LLM, "vlm_reasoning_regression", "agent_tool_regression"):
        suite = load_suite(f"{name}_v1")
        report = read_report(EXAMPLES / f"{name}.yaml", suite.metrics, suite.baseline)
        required = {metric.name for metric in suite.metrics if metric.is_required}
        assert required <= report.metrics.keys(), name
        assert report.checkpoint == suite.model


def cards(tmp_path: Path, **patterns: str) -> dict[str, Path]:
    return {name: write_card(tmp_path / name, verdicts(pattern), name) for name, pattern in patterns.items()}


def test_compare_prints_one_row_for_each_candidate(tmp_path):
    folders = cards(tmp_path, base="1" * 50 + "0" * 50, up="1" * 80 + "0" * 20, same="1" * 50 + "0" * 50)
    output = run("compare", folders["base"], folders["up"], folders["same"])
    assert "better" in output
    assert "unclear" in output
    assert "p corrected for 2 comparisons (Holm)" in output
    rows = json.loads(run("compare", folders["base"], folders["up"], "--json"))["rows"]
    assert rows[0]["score"]["paired"]["n_won"] == 30


def test_compare_and_regress_take_the_folder_of_an_evaluation(tmp_path):
    for side, name, pattern in (("baseline", "sft", "1110"), ("checkpoint", "rl", "1011")):
        write_card(tmp_path / "out" / "cards" / side / "fake-dev", verdicts(pattern), name)
    assert "against sft" in run("compare", tmp_path / "out")
    output = run("regress", tmp_path / "out", code=1)
    assert "sft -> rl: 1 lost, 0 weakened and 1 won of 4 items" in output


def test_regress_lists_lost_and_won_items_and_exits_1_beyond_the_allowance(tmp_path):
    folders = cards(tmp_path, old="110", new="101")
    output = run("regress", folders["old"], folders["new"], code=1)
    assert "lost: 1" in output
    assert "item-001" in output
    assert "answer 0" in output
    assert "won: 1" in output
    run("regress", folders["old"], folders["new"], "--allow", "1")
    lost = json.loads(run("regress", folders["old"], folders["new"], "--json", code=1))["lost"]
    assert lost[0]["item_id"] == "item-001"


def test_regress_lists_twenty_items_a_group_and_says_where_the_others_are(tmp_path):
    folders = cards(tmp_path, old="1" + "0" * 25, new="0" + "1" * 25)
    output = run("regress", folders["old"], folders["new"], code=1)
    assert "won: 25" in output and "5 more; --json lists all of them" in output
    assert "item-020" in output and "item-021" not in output
    assert len(json.loads(run("regress", folders["old"], folders["new"], "--json", code=1))["won"]) == 25


def test_cards_of_other_protocols_are_bad_input_and_the_field_is_named(tmp_path):
    old = write_card(tmp_path / "old", verdicts("10"), "old")
    new = write_card(tmp_path / "new", verdicts("10"), "new", dtype="bfloat16")
    for command in ("compare", "regress"):
        assert "dtype 'float32' against 'bfloat16'" in run(command, old, new, code=2)


def test_one_card_alone_is_bad_input(tmp_path):
    card = write_card(tmp_path / "card", verdicts("10"))
    assert "nothing to compare it with" in run("compare", card, code=2)
    assert "nothing to compare it with" in run("regress", card, code=2)


def test_a_folder_without_cards_is_named_before_a_missing_candidate(tmp_path):
    for command in ("compare", "regress"):
        assert "nowhere: no cards there" in run(command, tmp_path / "nowhere", code=2)


def test_the_folder_of_an_evaluation_is_decided_from_its_cards_not_from_what_its_report_says(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    players = write_players(tmp_path)
    suite = make_suite(tmp_path)
    sides = [find_checkpoint(f"scripted:{players}:{name}") for name in ("strong", "weak")]
    request = SuiteRequest(suite, *sides, tmp_path / "out", find_benchmark=find_benchmark)
    run_suite(request)
    write_eval_report(read_outcome(request.out), request.out)
    file = request.out / "report.yaml"
    frozen = freeze(suite, tmp_path)
    first = json.loads(run("decide", request.out, "--suite", frozen, "--json", code=1))
    assert first["release"] == "block"
    from_file = json.loads(run("decide", file, "--suite", frozen, "--json", code=1))
    assert from_file["gates"] == first["gates"]

    document = yaml.safe_load(file.read_text())
    document["evidence"]["sums_accuracy"] = {"n_items": 60}
    document["sums_accuracy"] = "50.0% -> 90.0% (+40.0)"
    file.write_text(yaml.safe_dump(document))
    again = json.loads(run("decide", request.out, "--suite", frozen, "--json", code=1))
    assert again["gates"] == first["gates"]


def test_a_folder_is_decided_by_the_contract_that_was_played_and_by_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    players = write_players(tmp_path)
    suite = make_suite(tmp_path)
    sides = [find_checkpoint(f"scripted:{players}:{name}") for name in ("strong", "weak")]
    request = SuiteRequest(suite, *sides, tmp_path / "out", find_benchmark=find_benchmark)
    run_suite(request)
    write_eval_report(read_outcome(request.out), request.out)
    played = freeze(suite, tmp_path / "played")
    lax = suite.model_copy(update={"version": "9.9"})
    other = freeze(lax, tmp_path / "lax")

    by_itself = json.loads(run("decide", request.out, "--json", code=1))
    assert by_itself == json.loads(run("decide", request.out, "--suite", played, "--json", code=1))
    assert by_itself["release"] == "block"
    error = run("decide", request.out, "--suite", other, code=2)
    assert suite.digest[:12] in error and lax.digest[:12] in error and "leave --suite out" in error

    report = request.out / "report.yaml"
    note = f"(digest {suite.digest[:12]}) and decided under {lax.id} (digest {lax.digest[:12]})"
    assert note in " ".join(CliRunner().invoke(app, ["decide", str(report), "--suite", str(other)]).output.split())
    assert "no suite to decide by" in run("decide", report, code=2)
    assert "nowhere: no such file or folder" in run("decide", request.out / "nowhere", code=2)

    stored = json.loads((request.out / "suite.json").read_text())
    (request.out / "suite.json").write_text(json.dumps({**stored, "version": "9.9"}))
    assert "the evaluation was begun under" in run("decide", request.out, code=2)


@pytest.mark.parametrize("count", ["1e26", "1.0e+26", "10000000000", ".inf", ".nan", "-1", "'many'", "1.5", "[1]"])
@pytest.mark.parametrize("key", ["n_items: {}", "n_missing_new: {}", "paired: {{n: {}, n_won: 1, n_lost: 0}}"])
def test_a_count_that_no_suite_has_is_refused_with_its_line(tmp_path, key, count):
    path = good_report(tmp_path)
    path.write_text(f"{path.read_text()}\nevidence:\n  gsm8k_exact_match: {{{key.format(count)}}}\n")
    output = run("decide", path, "--suite", f"{LLM}_v1", code=2)
    n_lines = len(path.read_text().splitlines())
    assert output.startswith(f"{path}:{n_lines}: evidence.gsm8k_exact_match.")


def test_the_largest_count_is_decided_on(tmp_path):
    path = good_report(tmp_path)
    path.write_text(f"{path.read_text()}\nevidence:\n  gsm8k_exact_match: {{n_items: 1000000000}}\n")
    assert "a candidate; release needs" in run("decide", path, "--suite", f"{LLM}_v1", code=0)


def test_compare_tells_what_changed_beside_the_score_and_what_is_not_measured(tmp_path):
    folders = cards(tmp_path, base="10" * 30, up="11" * 30)
    output = " ".join(run("compare", folders["base"], folders["up"]).split())
    assert "refusal rate" in output and "not measured: no score has a view" in output
    (changed,) = json.loads(run("compare", folders["base"], folders["up"], "--json"))["behaviour"]
    assert {measure["name"]: measure["change"] is None for measure in changed["measures"]}["Brier score"]
    refused = run("compare", folders["base"], folders["up"], "--reworded", folders["base"], code=2)
    assert "needs the ids of the original one" in " ".join(refused.split())
