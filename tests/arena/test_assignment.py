import json
import re
from dataclasses import replace

import pytest

from agent2.arena.assignment import InsidePaths, assignment_text, visible_gpus
from agent2.arena.plan import clear_unstarted, create_workspace
from agent2.arena.spec import ScoringMachine, SplitSizes, TrialConfig
from agent2.arena.tasks import load_task
from agent2.arena.trial_folder import TrialPaths
from agent2.benchmarks import load_benchmark
from agent2.records import SamplingSettings
from hostile_builders import nest

INSIDE = InsidePaths("/workspace", "/model", "/agent", 8000)


def test_what_a_harness_left_that_died_before_the_agent_was_recorded_is_cleared_and_scores_are_kept(tmp_path):
    paths = TrialPaths(tmp_path)
    for folder in (paths.workspace / "output", paths.snapshot(1), paths.revisions_git, paths.root / "cards"):
        folder.mkdir(parents=True)
    nest(paths.workspace / "output", 1_200)  # deeper than Python recurses, and longer than a path may be
    nest(paths.snapshot(1), 1_200)
    paths.grader_db.write_text("a submission of an agent that is not known to have been started")
    paths.events.mkdir()
    for log in (paths.revisions_log, paths.processes_log, paths.trial_log):
        log.write_text("{}\n")
    clear_unstarted(paths)
    clear_unstarted(paths)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cards", "events"]
    assert [path.name for path in paths.events.iterdir()] == ["trial.jsonl"]


def config_of(name: str, **sizes: int) -> TrialConfig:
    task = load_task(name).model_copy(update={"n_items": SplitSizes(**sizes)})
    return TrialConfig(
        trial_id="t",
        task=task,
        agent="nop",
        seed=0,
        sandbox="bubblewrap",
        budget=task.budget,
        base_model=task.base_model,
    )


@pytest.mark.engine
def test_a_workspace_of_games_holds_what_is_needed_to_play_and_says_how(tmp_path):
    config = config_of("household", train=3, dev=2, test_public=1, test_private=1)
    benchmark = load_benchmark("household")
    create_workspace(tmp_path / "w", config, benchmark, INSIDE)
    rows = [json.loads(line) for line in (tmp_path / "w" / "data" / "train.jsonl").read_text().splitlines()]
    assert [sorted(row) for row in rows] == [["game", "id", "prompt", "task_type"]] * 3
    assert sorted(path.name for path in (tmp_path / "w" / "data").iterdir()) == ["dev.jsonl", "train.jsonl"]
    text = (tmp_path / "w" / "ASSIGNMENT.md").read_text()
    assert "`id`, `prompt`, `task_type`, `game`" in text
    assert "at most 12 messages of the model, each at most 12 new" in text
    assignment = json.loads((tmp_path / "w" / "assignment.json").read_text())
    assert (assignment["environment"], assignment["benchmark"], assignment["scoring"]["max_turns"]) == (
        "household",
        "household",
        12,
    )
    assert assignment["structural_requirement"] == "trajectories must be collected online"


def test_gpu_hours_are_told_where_a_task_has_them():
    for hours, sentence in ((12.0, "- GPU-hours: 12 for all that you run"), (None, None)):
        config = config_of("household", train=3, dev=2, test_public=1, test_private=1)
        config = config.model_copy(update={"budget": config.budget.model_copy(update={"gpu_hours": hours})})
        text = assignment_text(config, INSIDE, SamplingSettings())
        assert ("GPU-hours" in text) == (sentence is not None) and (sentence or "") in text


@pytest.mark.engine
def test_gpus_are_told_by_the_names_that_the_agent_uses_and_by_those_of_the_machine():
    config = config_of("household", train=3, dev=2, test_public=1, test_private=1)
    owned = config.model_copy(update={"gpus": (2, 5), "sandbox": "bubblewrap"})
    text = assignment_text(owned, INSIDE, SamplingSettings())
    assert "| GPUs | `cuda:0`, `cuda:1` (number 2, 5 of the machine); your submissions are scored elsewhere |" in text
    shared = owned.model_copy(update={"scoring": ScoringMachine(gpu=2)})
    assert "your submissions are scored on one of them, too |" in assignment_text(shared, INSIDE, SamplingSettings())
    assert "| GPUs | none |" in assignment_text(config, INSIDE, SamplingSettings())
    assert visible_gpus(owned) == [0, 1] and visible_gpus(config) == []
    assert visible_gpus(owned.model_copy(update={"sandbox": "none"})) == [2, 5]


def test_the_program_in_the_assignment_runs_as_it_stands(tmp_path):
    config = config_of("household", train=3, dev=2, test_public=1, test_private=1)
    inside = replace(INSIDE, workspace=str(tmp_path / "w"))
    create_workspace(tmp_path / "w", config, load_benchmark("household"), inside)
    text = (tmp_path / "w" / "ASSIGNMENT.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, object] = {}
    exec(program, names)
    assert names["step"].observation
    assert str(names["advice"]).split()[0] in {"go", "take", "open"}
    assert names["score"] == 0.0


def test_a_workspace_of_questions_holds_their_answers_and_a_reward(tmp_path):
    config = config_of("arithmetic", train=2, dev=1, test_public=1, test_private=1)
    inside = replace(INSIDE, workspace=str(tmp_path / "w"))
    create_workspace(tmp_path / "w", config, load_benchmark("arithmetic"), inside)
    rows = [json.loads(line) for line in (tmp_path / "w" / "data" / "train.jsonl").read_text().splitlines()]
    assert [sorted(row) for row in rows] == [["answer", "id", "payload", "prompt"]] * 2
    text = (tmp_path / "w" / "ASSIGNMENT.md").read_text()
    assert "from one user message that holds the prompt" in text
    assert "Playing" not in text and "There are no solutions" not in text
    program = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, object] = {}
    exec(re.sub(r"\b42\b", rows[0]["answer"], program), names)
    assert names["score"] == 1.0
