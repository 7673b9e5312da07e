"""The workspace of a trial, as the agent finds it: assignment, visible data, empty code and output folders."""

import json
import shutil
from pathlib import Path

from agent2.arena.assignment import InsidePaths, TrialConfig, assignment_json, assignment_text
from agent2.arena.paths import TrialPaths
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, Split

VISIBLE_SPLITS = tuple(split for split in Split if split not in HIDDEN_SPLITS)


def create_workspace(workspace: Path, config: TrialConfig, benchmark: Benchmark, inside: InsidePaths) -> None:
    """Write everything that the agent is given; the base model is bound read-only beside it, not copied."""
    (workspace / "data").mkdir(parents=True)
    (workspace / "code").mkdir()
    (workspace / "output").mkdir()
    (workspace / "ASSIGNMENT.md").write_text(assignment_text(config, inside, benchmark.sampling), encoding="utf-8")
    assignment = assignment_json(config, inside, benchmark.sampling)
    (workspace / "assignment.json").write_text(json.dumps(assignment, indent=2) + "\n", encoding="utf-8")
    for split in VISIBLE_SPLITS:
        items = benchmark.items(split, config.task.n_items[split], secret=None)
        _write_items(workspace / "data" / f"{split.value}.jsonl", items)


def clear_unstarted(paths: TrialPaths) -> None:
    """Remove what a harness left that died before it recorded the start of the agent."""
    folders = (paths.workspace, paths.revisions_git, paths.root / "submissions", paths.llm, paths.launch)
    database = (paths.grader_db.with_name(paths.grader_db.name + ending) for ending in ("", "-wal", "-shm"))
    logs = (paths.revisions_log, paths.processes_log, paths.commands_log, paths.gpu_log, paths.agent_log)
    for path in (*folders, *database, *logs):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _write_items(path: Path, items: list[Item]) -> None:
    rows = ({"id": item.id, "prompt": item.prompt, "answer": item.reference} for item in items)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
