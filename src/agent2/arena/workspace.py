"""The workspace of a trial, as the agent finds it: assignment, visible data, empty code and output folders."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from agent2.arena.assignment import InsidePaths, TrialConfig, World, assignment_json, assignment_text, world_of
from agent2.arena.paths import TrialPaths
from agent2.benchmarks import name_inside
from agent2.benchmarks.home import visible_row
from agent2.records import HIDDEN_SPLITS, Benchmark, JsonValue, Split

VISIBLE_SPLITS = tuple(split for split in Split if split not in HIDDEN_SPLITS)


def create_workspace(workspace: Path, config: TrialConfig, benchmark: Benchmark, inside: InsidePaths) -> None:
    """Write everything that the agent is given; the base model is bound read-only beside it, not copied."""
    (workspace / "data").mkdir(parents=True)
    (workspace / "code").mkdir()
    (workspace / "output").mkdir()
    world = world_told(config, benchmark, inside, workspace / "data")
    assignment = assignment_json(config, inside, benchmark.sampling, world)
    (workspace / "assignment.json").write_text(json.dumps(assignment, indent=2) + "\n", encoding="utf-8")
    for split in VISIBLE_SPLITS:
        items = benchmark.items(split, config.task.n_items[split], secret=None)
        world = replace(world, row_fields=tuple(visible_row(benchmark, items[0])))
        rows = (visible_row(benchmark, item) for item in items)
        _write_rows(workspace / "data" / f"{split.value}.jsonl", rows)
    text = assignment_text(config, inside, benchmark.sampling, world)
    (workspace / "ASSIGNMENT.md").write_text(text, encoding="utf-8")


def world_told(config: TrialConfig, benchmark: Benchmark, inside: InsidePaths, data: Path | None = None) -> World:
    """The world of a task as the agent is told of it, with a name by which it can load the benchmark.

    data: host's folder of the visible data, into which a user's own Python file, or `benchmark.yaml` without its data,
    is copied; None: that was done before. What lies beside a Python file is not shown.
    """

    def shown(path: Path) -> Path:
        if data is not None and path.parent != data:
            shutil.copyfile(path, data / path.name)
        return Path(inside.data) / path.name

    with tempfile.TemporaryDirectory() as scratch:
        name = name_inside(config.task.benchmark, data or Path(scratch), shown)
    return replace(world_of(benchmark), benchmark=name)


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


def _write_rows(path: Path, rows: Iterable[Mapping[str, JsonValue]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
