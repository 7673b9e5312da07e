"""What a trial's final checkpoint still does beside its task: which suite, whose weights, and what the report shows."""

from dataclasses import replace

import pytest
from safetensors.numpy import load_file, save_file

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, final_record
from agent2.arena.evidence import AnswerLengths, MarkState, RetainedSkill, Retention
from agent2.arena.plan import new_trial
from agent2.arena.retention import choose_suite, measure_retention, with_max_tokens
from agent2.arena.retention_log import read_retention, record_retention
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths
from agent2.arena.trial_mark import read_mark
from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError
from agent2.reports.pages import write_report
from agent2.reports.retention_view import retention_table
from agent2.reports.text import DASH
from agent2.stats.estimates import wilson
from builders import make_gain
from chaos.run import PROGRAM
from trial_builders import SUBMIT_NOISY, quiet, write_agent, write_task


def a_retention(**fields) -> Retention:
    skill = RetainedSkill(
        benchmark="mini_math",
        score="mini_math_exact_match",
        base=wilson(8, 10),
        final=wilson(5, 10),
        difference=make_gain(-0.3),
        base_answers=AnswerLengths(40.0, 0.1),
        final_answers=AnswerLengths(None, 0.5),
    )
    values = {"t": 5.0, "suite": "s-v1.0", "suite_digest": "d", "weights_digest": "w", "limit": 10, "seconds": 1.0}
    return Retention(**(values | {"skills": (skill,)} | fields))


def test_a_result_is_read_back_and_an_edited_one_is_not_our_own(home, tmp_path):
    paths, warnings = TrialPaths(tmp_path), []
    recorded = record_retention(paths, "one", a_retention())
    assert recorded.is_own
    assert read_retention(paths, "one", warnings) == (recorded,)
    assert not read_retention(paths, "two", warnings)[0].is_own
    text = paths.retention_log.read_text()
    assert '"value":0.5' in text
    paths.retention_log.write_text(text.replace('"value":0.5', '"value":0.9') + "{broken\n")
    (forged,) = read_retention(paths, "one", warnings)
    assert not forged.is_own
    assert warnings == ["events/retention.jsonl: 1 damaged line left out."]


def test_the_table_shows_both_sides_the_length_and_who_says_so():
    old, new = a_retention(is_own=True, t=1.0, skills=()), a_retention(is_own=True)
    (row,) = retention_table([old, new]).cells()
    assert row[3].startswith("80.0% [") and row[4].startswith("50.0% [")
    assert row[5].startswith("-30.0 [")
    assert row[6:] == [f"40 → {DASH}", "10.0% → 50.0%"]
    (foreign,) = retention_table([replace(new, is_own=False)]).cells()
    assert "says somebody else" in foreign[1]


def test_without_the_official_files_embedded_items_are_played_and_the_reason_is_said(tmp_path, monkeypatch):
    for name in ("GSM8K", "MMLU_PRO", "IFEVAL"):
        monkeypatch.setenv(f"{name}_DATA", str(tmp_path))
    suite, reason = choose_suite()
    assert suite.id == "llm_core_regression_mini-v1.0"
    assert str(tmp_path) in reason


def test_another_limit_of_tokens_is_another_suite():
    suite = load_suite("llm_core_regression_v1")
    shorter = with_max_tokens(suite, 256)
    assert shorter.protocol.sampling.max_tokens == 256
    assert shorter.digest != suite.digest


@pytest.mark.slow
def test_base_and_final_are_played_beside_the_task_and_the_report_shows_both(home, tmp_path):
    n_items = {"train": 10, "dev": 4, "test_public": 40, "test_private": 80}
    task = str(write_task(tmp_path, base_model="tiny-mini", n_items=n_items))
    root = new_trial(task, str(write_agent(tmp_path / "agent", SUBMIT_NOISY)), 0, tmp_path / "trials", trial_id="one")
    run_trial(root, quiet, PROGRAM)
    paths, suite = TrialPaths(root), load_suite("llm_core_regression_mini")
    result = measure_retention(root, suite, 3, quiet)
    assert {skill.benchmark for skill in result.skills} == {"mini_knowledge", "mini_math", "mini_ifeval"}
    assert all(skill.base.n <= 3 for skill in result.skills if skill.score != "mini_ifeval_instruction_accuracy")
    evidence = read_evidence(root)
    assert evidence.retention == (result,)
    assert read_mark(paths).state is MarkState.OWN
    page = write_report(evidence, analyse(evidence), tmp_path / "report").html.read_text().replace("<wbr>", "")
    assert "Beside the task" in page and "mini_math_exact_match" in page

    # weights that were put in the place of those that were scored
    weights = paths.snapshot(final_record(evidence).number) / "model.safetensors"
    weights.parent.chmod(0o755)
    weights.unlink()
    tensors = {
        name: 2 * tensor for name, tensor in load_file(paths.workspace / "output/model/model.safetensors").items()
    }
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(ConfigError, match="is not the checkpoint that the trial scored"):
        measure_retention(root, suite, 3, quiet)


@pytest.mark.slow
def test_a_trial_without_a_checkpoint_of_its_own_has_nothing_to_compare(home, tmp_path):
    task = str(write_task(tmp_path))
    root = new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one")
    run_trial(root, quiet, PROGRAM)
    with pytest.raises(ConfigError, match="no final checkpoint of its own"):
        measure_retention(root, load_suite("llm_core_regression_mini"), 3, quiet)
