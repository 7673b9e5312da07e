"""Tasks that a trial's task holds out: which are refused, what a trial records of them, and what they show."""

import shutil
from pathlib import Path

import pytest
import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, held_out_claim
from agent2.arena.analysis.verdicts import Verdict
from agent2.arena.evidence import HeldOutScore, MarkState
from agent2.arena.plan import new_trial, resolve_trial
from agent2.arena.spec import config_digest
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.arena.trial_mark import read_mark
from agent2.benchmarks import task_files
from agent2.errors import ConfigError
from agent2.reports.pages import write_report
from agent2.stats.comparisons import Claim
from agent2.stats.estimates import wilson
from builders import make_evidence, make_gain, make_task
from chaos.run import PROGRAM
from trial_builders import SUBMIT_NOISY, quiet, write_agent, write_task

EXAMPLES = Path(__file__).parents[2] / "examples" / "held-out"


def a_score(task="functions", base=100, final=150, change=0.25, half_width=0.05, **fields) -> HeldOutScore:
    values = {"benchmark": "pyfunc-v1.0", "base": wilson(base, 200), "final": wilson(final, 200)}
    return HeldOutScore(task=task, change=make_gain(change, half_width), **values | fields)


def a_loss() -> HeldOutScore:
    return a_score("sums", final=50, change=-0.25)


def nothing(task="functions") -> HeldOutScore:
    return a_score(task, base=0, final=0, change=0.0)


def fifth(*scores: HeldOutScore, held_out=None):
    names = [score.task for score in scores] if held_out is None else held_out
    task = make_task().model_copy(update={"held_out": names})
    return analyse(make_evidence(task=task, held_out=scores)).criteria[4]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([a_score()], Verdict.PASS),
        ([a_score(), a_loss()], Verdict.PARTIAL),
        ([a_loss()], Verdict.FAIL),
        ([a_score(change=0.02)], Verdict.FAIL),
        ([nothing()], Verdict.UNKNOWN),
        ([a_score(), nothing("sums")], Verdict.PARTIAL),
        ([HeldOutScore("functions", "", None, None, None, "there is no such file")], Verdict.UNKNOWN),
    ],
)
def test_the_fifth_criterion_is_what_the_held_out_tasks_show(scores, verdict):
    criterion = fifth(*scores)
    assert criterion.verdict is verdict
    assert all(score.task in criterion.reason for score in scores)


def test_a_task_that_the_base_cannot_do_is_said_so_and_a_first_solution_counts():
    assert "solves none of 200 items" in fifth(nothing()).reason
    assert held_out_claim(nothing()) is None
    assert held_out_claim(a_score(base=0, final=60, change=0.3)) is Claim.BETTER


def test_a_held_out_task_without_a_result_does_not_pass():
    assert fifth(held_out=["functions"]).verdict is Verdict.UNKNOWN
    criterion = fifth(a_score(), held_out=["functions", "sums"])
    assert criterion.verdict is Verdict.PARTIAL and "1 not scored" in criterion.reason


def write_tasks(folder, **held_out):
    """Task files by name, on different packaged benchmarks, each with what it holds out; returns their paths."""
    paths = {}
    for (name, names), source in zip(held_out.items(), ("arithmetic", "pyfunc", "household"), strict=False):
        record = yaml.safe_load(task_files()[source].read_text()) | {"name": name, "held_out": names}
        paths[name] = folder / f"{name}.yaml"
        paths[name].write_text(yaml.safe_dump(record))
    return paths


def test_held_out_tasks_are_found_beside_the_file_and_by_name(tmp_path):
    paths = write_tasks(tmp_path, one=["./two.yaml", "household"], two=[])
    assert load_task(str(paths["one"])).held_out == [str(paths["two"]), "household"]


@pytest.mark.parametrize(
    ("held_out", "sentence"),
    [
        ({"one": ["pyfunk"]}, "did you mean 'pyfunc'"),
        ({"one": ["./none.yaml"]}, r"held_out: .*none\.yaml"),
        ({"one": ["./one.yaml"]}, "is the task itself"),
        ({"one": ["arithmetic"]}, r"has the items of the task itself \(arithmetic\)"),
        ({"one": ["pyfunc", "pyfunc"]}, "is named twice"),
        ({"one": ["./two.yaml"], "two": ["./one.yaml"]}, "leads back here"),
        ({"one": ["./two.yaml"], "two": ["./three.yaml"], "three": ["./one.yaml"]}, "leads back here"),
    ],
)
def test_unknown_repeated_and_circular_held_out_tasks_are_refused(tmp_path, held_out, sentence):
    path = write_tasks(tmp_path, **held_out)["one"]
    with pytest.raises(ConfigError, match=sentence):
        load_task(str(path))


def test_held_out_tasks_that_an_override_names_are_checked_and_change_no_assignment(home):
    with pytest.raises(ConfigError, match="has the name of the task itself"):
        resolve_trial("arithmetic", "nop", 0, overrides=["task.held_out=[arithmetic]"])
    plain = resolve_trial("arithmetic", "nop", 0)
    config = resolve_trial("arithmetic", "nop", 0, overrides=["task.held_out=[pyfunc]"])
    assert config.task.held_out == ["pyfunc"]
    assert config_digest(config) == config_digest(plain)


@pytest.mark.slow
def test_base_and_final_are_scored_once_on_a_held_out_task_of_another_world(home, tmp_path):
    (tmp_path / "other").mkdir()
    n_items = {"train": 4, "dev": 4, "test_public": 4, "test_private": 6}
    other = write_task(tmp_path / "other", name="word-sums", benchmark="mini_math", n_items=n_items)
    gone = tmp_path / "gone.yaml"
    shutil.copy(task_files()["household"], gone)
    task = write_task(tmp_path, held_out=[str(other), str(gone)])
    root = new_trial(
        str(task), str(write_agent(tmp_path / "agent", SUBMIT_NOISY)), 0, tmp_path / "trials", trial_id="one"
    )
    gone.unlink()
    run_trial(root, quiet, PROGRAM)
    evidence = read_evidence(root)
    assert evidence.final_submission is not None
    scored, lost = evidence.held_out
    assert scored.task == "word-sums" and scored.benchmark.startswith("mini_math-v")
    assert scored.base.n == scored.final.n == scored.change.change.n == 6
    assert lost.base is None and "gone.yaml" in lost.problem
    assert read_mark(TrialPaths(root)).state is MarkState.OWN
    assignment = (root / "workspace" / "ASSIGNMENT.md").read_text()
    assignment += (root / "workspace" / "assignment.json").read_text()
    assert "word-sums" not in assignment and "held_out" not in assignment
    assert read_config(TrialPaths(root).trial_json).task.held_out == [str(other), str(gone)]
    page = write_report(evidence, analyse(evidence), tmp_path / "report").markdown.read_text()
    assert "On held-out tasks" in page and "word-sums" in page


@pytest.mark.parametrize("name", ["sums", "functions", "tool-calls"])
def test_the_examples_hold_out_tasks_that_their_base_model_was_made_for(name):
    task = load_task(str(EXAMPLES / f"{name}.yaml"))
    held_out = [load_task(other) for other in task.held_out]
    assert held_out and all(other.benchmark != task.benchmark for other in held_out)
    known = {
        "tiny-arithmetic-pyfunc": {"arithmetic", "pyfunc"},
        "tiny-mini": {"mini_functions", "mini_apis", "mini_math"},
    }
    assert {task.benchmark, *(other.benchmark for other in held_out)} <= known[task.base_model]
