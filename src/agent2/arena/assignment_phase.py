"""The parts of a trial that only a task with an `assignment` of its own has: files for the agent, and a verdict.

Programs that an agent wrote run here as it ran them: in the sandbox, without network, on the base model and the train
rows, with nothing of the first workspace but the program's files.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent2 import installation
from agent2.arena.agent_files import read_beneath
from agent2.arena.assignments import answers_hidden, package_hidden, trainers_hidden
from agent2.arena.assignments.pipeline_variants import ENTRY
from agent2.arena.assignments.programs import PATIENCE
from agent2.arena.assignments.records import Bench, ProgramAnswer, ProgramRun
from agent2.arena.grader.evaluator import evaluation_environment
from agent2.arena.grader.submission import ContainedAdmission, snapshot_limits, take_snapshot
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import AssignmentSpec, TrialConfig, limits_of
from agent2.arena.trial_folder import TrialPaths
from agent2.benchmarks.home import visible_row
from agent2.errors import SubmissionError
from agent2.files import remove_tree
from agent2.foreign_files import read_limited
from agent2.models.checkpoint import CheckpointInfo
from agent2.records import Item, Score, Split
from agent2.sandbox.backends import Contained, EndedBy, Sandbox, run_contained
from agent2.sandbox.processor_time import ProcessorLimit
from agent2.sandbox.spec import MIB, Mount
from agent2.scorers.page_checks import PageChecksScorer
from agent2.scorers.sandboxed import SandboxRunner

MAX_LOG = 4 * MIB
CALL_S = 60.0
"""Processor seconds of a call without model and rows, start of Python included."""
TAIL = 300
"""Characters of what a program that crashed printed last."""


def make_bench(
    config: TrialConfig,
    spec: AssignmentSpec,
    paths: TrialPaths,
    task: LoadedTask,
    base: CheckpointInfo,
    sandbox: Sandbox,
) -> Bench:
    """What the trial lends to its assignment."""
    grounds = Grounds(config, paths, task, base, sandbox, spec.run_s)
    cache = installation.home() / "assignments"
    cache.mkdir(parents=True, exist_ok=True)
    return Bench(
        config,
        spec,
        task.secret,
        task.benchmark.sampling.max_tokens,
        paths.workspace,
        paths.root / "assignment",
        cache,
        lambda files, folder: train_with(files, folder, grounds),
        lambda files, entry, folder: answer_of(files, entry, folder, grounds),
        lambda files, entry, folder: answer_of(files, entry, folder, replace(grounds, limit_s=CALL_S), is_bare=True),
        lambda item, files, folder: look_at(item, files, folder, grounds),
    )


@dataclass(frozen=True, slots=True)
class Grounds:
    """Where programs of an agent run."""

    config: TrialConfig
    paths: TrialPaths
    task: LoadedTask
    base: CheckpointInfo
    sandbox: Sandbox
    limit_s: float
    """Processor seconds of each thread of one run."""

    @property
    def hidden(self) -> tuple[Path, ...]:
        """What no program may reach."""
        return (installation.home() / "secret", self.paths.grader_db, self.paths.events, self.paths.llm)

    @property
    def processor(self) -> ProcessorLimit:
        """What one run may use, however busy the machine is; a program that does nothing ends after `limit_s`."""
        return ProcessorLimit(cpu_s=self.limit_s * self.config.threads, idle_s=self.limit_s)


def train_with(files: Mapping[str, bytes], folder: Path, grounds: Grounds) -> ProgramRun:
    """Run a training program to its end, or to its limit, and take in the checkpoint that it leaves."""
    reason, cpu_s = _run_entry(files, ENTRY, folder, grounds)
    scratch = folder / "workspace"
    if reason:
        return ProgramRun(None, reason, cpu_s)
    try:
        copy = take_snapshot(scratch, "output/model", folder / "checkpoint", snapshot_limits(grounds.base.path))
        admission = ContainedAdmission(grounds.sandbox, grounds.hidden)(copy, grounds.base, "output/model")
    except SubmissionError as error:
        return ProgramRun(None, str(error), cpu_s)
    log = read_beneath(scratch, "pipeline/logs/train.jsonl", MAX_LOG) or b""
    if admission.is_base_copy:
        return ProgramRun(None, "its checkpoint is the base model, unchanged", cpu_s, log)
    return ProgramRun(folder / "checkpoint", "", cpu_s, log)


def answer_of(
    files: Mapping[str, bytes], entry: str, folder: Path, grounds: Grounds, *, is_bare: bool = False
) -> ProgramAnswer:
    """Run a program for what it writes to $OUTPUT_DIR/answers.json.

    is_bare: without base model and train rows, and without this package, which has both.
    """
    reason, cpu_s = _run_entry(files, entry, folder, grounds, is_bare=is_bare)
    if reason:
        return ProgramAnswer(b"", reason, cpu_s)
    content = read_beneath(folder / "workspace", "output/answers.json", MAX_LOG) or b""
    return ProgramAnswer(content, "" if content else "it ended without an answer", cpu_s)


def look_at(item: Item, files: Mapping[str, str], folder: Path, grounds: Grounds) -> Score:
    """The verdict on a web page, whose pictures are left in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    runner = SandboxRunner(grounds.sandbox, folder, grounds.hidden)
    return PageChecksScorer(screenshots=folder).score_pages(runner, [(item, files, 0)])[0]


def _run_entry(
    files: Mapping[str, bytes], entry: str, folder: Path, grounds: Grounds, *, is_bare: bool = False
) -> tuple[str, float]:
    """Run one of the files in a fresh workspace below the folder.

    Returns why it did not end well, else nothing, and its processor seconds. A program is ended when these are used
    up, when it stands idle, or after `PATIENCE` times as long on the clock.
    """
    config, task = grounds.config, grounds.task
    if folder.exists():
        remove_tree(folder)
    scratch, rows = folder / "workspace", folder / "data"
    for path in (scratch / "pipeline", scratch / "output", rows):
        path.mkdir(parents=True)
    for name, content in files.items():
        (scratch / "pipeline" / name).write_bytes(content)
    mounts = package_hidden(grounds.paths.root)
    if not is_bare:
        items = task.benchmark.items(Split.TRAIN, config.task.n_items.train, secret=None)
        lines = (json.dumps(visible_row(task.benchmark, item)) + "\n" for item in items)
        (rows / "train.jsonl").write_text("".join(lines), encoding="utf-8")
        root = grounds.paths.root
        material = (Mount(grounds.base.path, "/model"), Mount(rows, "/data"))
        mounts = (*material, *answers_hidden(root), *trainers_hidden(root))
    request = Contained(
        command=("python", f"/workspace/pipeline/{entry}"),
        scratch=scratch,
        log=folder / "run.log",
        mounts=mounts,
        environment={
            **evaluation_environment("/workspace", config.threads),
            "MODEL_PATH": "/model",
            "DATA_PATH": "/data",
            "OUTPUT_DIR": "/workspace/output",
            "AGENT2_SEED": str(config.seed),
        },
        limits=limits_of(config),
        hidden=grounds.hidden,
    )
    started_at = time.monotonic()
    wall_s = PATIENCE * grounds.limit_s
    end = run_contained(request, grounds.sandbox, timeout_s=wall_s, processor=grounds.processor)
    # a back end that cannot look into its processes leaves the clock, of which no more than all threads can be used
    cpu_s = (time.monotonic() - started_at) if end.used_s is None else end.used_s
    if end.ended_by is EndedBy.PROCESSOR:
        return f"it did not end: {end.reason}", cpu_s
    if end.ended_by is EndedBy.TIMEOUT:
        return f"it did not end within {wall_s:.0f} s", cpu_s
    if end.code != 0:
        last = _read(folder / "run.log")[-TAIL:].decode(errors="replace").strip()
        return f"it ended with exit code {end.code}: {end.broke or last}", cpu_s
    return "", cpu_s


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_LOG)
    except OSError:  # what a program wrote is not to be relied on
        return b""
