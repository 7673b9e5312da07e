"""The pipelines of `debug-training` alone: each cause broken, fixed naively, and repaired, over seeds.

python benchmarks/debug_pipelines.py --out DIR [--seeds 3] [--cause kl ...] [--player broken ...]
    [--task debug-training] [--print]

Runs what the grader of a trial runs, as it runs it (sandbox, limits, base model, train rows, private items), without
the trial around it: the healthy pipeline of a seed once; for each cause the broken one, what `debug-naive` and
`debug-oracle` make of it. A repair that is the healthy pipeline again (the same programs, the same settings but for
those that no program reads) is that run, marked =. Cells that are finished in DIR are not run again. --print: only the
table of what is there.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from agent2 import installation
from agent2.arena.agents import load_agent
from agent2.arena.assignment_phase import make_bench
from agent2.arena.assignments.broken_pipeline import PIPELINE, judge_diagnosis
from agent2.arena.assignments.pipeline_variants import CONFIG, FAULTS, draw_variant
from agent2.arena.assignments.records import Bench
from agent2.arena.base_cards import fill_base_card
from agent2.arena.grader.evaluator import (
    CheckpointEvaluator,
    ChildEvaluator,
    EvaluationRequest,
    GraderSettings,
    score_of,
)
from agent2.arena.plan import draft_trial
from agent2.arena.scoring import NOISE_REPLICATES, LoadedTask, card_key, log_task_access, measure_noise, paired_gain
from agent2.arena.spec import AssignmentSpec, Deadline
from agent2.arena.trial_folder import TrialPaths
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.files import remove_tree, write_json
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from agent2.sandbox.backends import find_sandbox

WORST_FIRST = ("kl", "loss-mask", "learning-rate", "template", "stale-logprobs", "truncation", "reward", "advantages")
"""Causes in the order of doubt: where half the learning rate could help, or the pipeline could gain although broken."""
PLAYERS = ("broken", "debug-naive", "debug-oracle")
CELL = "cell.json"
ENOUGH = 0.8


@dataclass(frozen=True)
class Cell:
    """One pipeline, run and scored."""

    gain: float | None
    """Private, a share; None: it made nothing to score."""
    low: float | None
    high: float | None
    cpu_s: float
    """Processor seconds of the training."""
    seconds: float
    """On the clock: training and scoring."""
    weights: str
    reason: str
    named: bool | None
    """Whether the diagnosis names the cause; None: there is none."""
    is_healthy_run: bool
    """It is the healthy pipeline again, whose run this is."""


class Ground:
    """Runs and scores the pipelines of one seed."""

    def __init__(self, task_name: str, seed: int, out: Path):
        self.out, self.seed = out / f"seed-{seed}", seed
        self.config = draft_trial(task_name, "nop", seed)
        task = self.config.task
        self.task = LoadedTask(task, load_benchmark(task.benchmark), installation.secret())
        self.base = inspect_checkpoint(ensure_base_model(task.base_model, BASE_MODELS))
        self.paths = TrialPaths(self.out / "ground")
        self.paths.root.mkdir(parents=True, exist_ok=True)
        self.sandbox = find_sandbox()
        spec = task.assignment or AssignmentSpec(kind="debug")
        self.bench: Bench = make_bench(self.config, spec, self.paths, self.task, self.base, self.sandbox)
        log_task_access(self.task, "benchmarks/debug_pipelines.py", str(self.out), self.base.weights_digest)
        settings = GraderSettings(
            paths=self.paths,
            base=self.base.path,
            benchmark=task.benchmark,
            items={Split.TEST_PRIVATE: self.task.items(Split.TEST_PRIVATE)},
            deadline=Deadline(time.time(), 0.0),
            threads=self.config.threads,
        )
        hidden = (installation.home() / "secret",)
        child = ChildEvaluator(self.config.evaluation_timeout_s, self.sandbox, hidden, benchmark=self.task.benchmark)
        self.evaluator = CheckpointEvaluator(settings, child, threading.Event())
        self.base_card = self._base_card("base", self.task.benchmark.attempts)
        self.noise = measure_noise(self._base_card("noise", NOISE_REPLICATES)).half_width

    def _base_card(self, name: str, attempts: int) -> Path:
        card = self.paths.root / name
        key = card_key(self.task, self.base, Split.TEST_PRIVATE, attempts)
        request = EvaluationRequest(self.base.path, Split.TEST_PRIVATE, card, "base", attempts)
        fill_base_card(card, self.task, Split.TEST_PRIVATE, key, lambda: score_of(self.evaluator.evaluate(request)))
        return card

    def measure(self, files: Mapping[str, bytes], folder: Path, named: bool | None) -> Cell:
        """Train with the files as the grader does, and score what comes out."""
        started = time.monotonic()
        run = self.bench.run(files, folder / "run")
        if run.checkpoint is None:
            cell = Cell(None, None, None, run.cpu_s, time.monotonic() - started, "", run.reason, named, False)
        else:
            card = folder / "card"
            outcome = self.evaluator.evaluate(EvaluationRequest(run.checkpoint, Split.TEST_PRIVATE, card, folder.name))
            score_of(outcome)
            change = paired_gain(self.base_card, card).change
            weights = inspect_checkpoint(run.checkpoint).weights_digest
            seconds = time.monotonic() - started
            cell = Cell(change.value, change.low, change.high, run.cpu_s, seconds, weights, "", named, False)
        (folder / "train.jsonl").write_bytes(run.log)
        remove_tree(folder / "run")
        return cell


def main() -> None:
    """Run what is missing and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cause", action="append", choices=list(FAULTS))
    parser.add_argument("--player", action="append", choices=list(PLAYERS), help="what to run now; default: all three")
    parser.add_argument("--task", default="debug-training")
    parser.add_argument("--print", action="store_true", dest="is_print")
    arguments = parser.parse_args()
    causes = arguments.cause or list(WORST_FIRST)
    for seed in range(arguments.seeds):
        if not arguments.is_print:
            run_seed(arguments.task, seed, causes, arguments.player or list(PLAYERS), arguments.out.resolve())
    print_table(arguments.out, causes, arguments.seeds)


def run_seed(task: str, seed: int, causes: list[str], players: list[str], out: Path) -> None:
    """All cells of one seed that are not finished, the healthy pipeline first."""
    ground = Ground(task, seed, out)
    folder = out / f"seed-{seed}"
    write_json(folder / "noise.json", {"noise": ground.noise})
    benchmark, max_tokens = ground.task.benchmark.name, ground.task.benchmark.sampling.max_tokens
    variants = {
        cause: draw_variant(ground.task.secret, seed, ground.config.task.benchmark, max_tokens, cause)
        for cause in causes
    }
    healthy_files = next(iter(variants.values())).healthy
    healthy = finish(ground, healthy_files, folder / "healthy", None)
    print(f"{benchmark}, seed {seed}, healthy: {told(healthy)}", file=sys.stderr, flush=True)
    for cause in causes:
        variant = variants[cause]
        if variant.healthy != healthy_files:
            raise SystemExit(f"seed {seed}: {cause} has another healthy pipeline")
        for player in players:
            place = folder / cause / player
            files, named = played(player, variant.broken, place, cause)
            if as_read(files) == as_read(healthy_files) and not (place / CELL).is_file():
                place.mkdir(parents=True, exist_ok=True)
                write_json(place / CELL, asdict(healthy) | {"named": named, "is_healthy_run": True})
            cell = finish(ground, files, place, named)
            print(f"{benchmark}, seed {seed}, {cause}, {player}: {told(cell)}", file=sys.stderr, flush=True)


def as_read(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a pipeline without the settings that no program names."""
    programs = b"".join(content for name, content in files.items() if name.endswith(".py"))
    settings = json.loads(files[CONFIG])
    read = {name: value for name, value in settings.items() if f'"{name}"'.encode() in programs}
    return dict(files) | {CONFIG: json.dumps(read).encode()}


def finish(ground: Ground, files: Mapping[str, bytes], folder: Path, named: bool | None) -> Cell:
    """The cell, from disk or measured now."""
    path = folder / CELL
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(ground.measure(files, folder, named)))
    return read_cell(path)


def read_cell(path: Path) -> Cell:
    """A finished cell."""
    return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Cell)


def played(
    player: str, broken: Mapping[str, bytes], folder: Path, cause: str
) -> tuple[Mapping[str, bytes], bool | None]:
    """What a packaged agent makes of the broken pipeline, and whether its diagnosis is right."""
    if player == "broken":
        return broken, None
    workspace = folder / "workspace"
    if workspace.exists():
        remove_tree(workspace)
    pipeline = workspace / PIPELINE
    pipeline.mkdir(parents=True)
    (workspace / "output").mkdir()
    for name, content in broken.items():
        (pipeline / name).write_bytes(content)
    environment = os.environ | {"WORKSPACE": str(workspace), "OUTPUT_DIR": str(workspace / "output")}
    program = load_agent(player).folder / "main.py"
    subprocess.run([sys.executable, str(program)], env=environment, check=True, stdout=subprocess.DEVNULL)
    files = {name: (pipeline / name).read_bytes() for name in broken}
    return files, judge_diagnosis(workspace / "output" / "diagnosis.json", cause).credit == 1.0


def told(cell: Cell) -> str:
    """A cell in a few words."""
    if cell.gain is None:
        return f"nothing to score ({cell.reason})"
    return f"{100 * cell.gain:+.1f} points, {cell.cpu_s:.0f} s of processor, {cell.seconds:.0f} s on the clock"


def print_table(out: Path, causes: list[str], n_seeds: int) -> None:
    """Gains in points by cause and seed; a dash is a cell that was not run."""
    titles = "cause|seed|healthy|noise|broken|naive|repaired|broken: no gain|repaired: 80%|naive: not|processor, s"
    print(f"| {titles.replace('|', ' | ')} |\n{'|---' * (titles.count('|') + 1)}|")
    for cause in causes:
        for seed in range(n_seeds):
            folder = out / f"seed-{seed}"
            if not (folder / "healthy" / CELL).is_file():
                continue
            healthy = read_cell(folder / "healthy" / CELL)
            noise = float(json.loads((folder / "noise.json").read_text(encoding="utf-8"))["noise"])
            paths = {player: folder / cause / player / CELL for player in PLAYERS}
            cells = {player: read_cell(path) if path.is_file() else None for player, path in paths.items()}
            print(row_of(cause, seed, healthy, noise, cells))


def row_of(cause: str, seed: int, healthy: Cell, noise: float, cells: Mapping[str, Cell | None]) -> str:
    """One line of the table."""
    broken, naive, repaired = (cells[player] for player in PLAYERS)

    def points(cell: Cell | None) -> str:
        if cell is None:
            return "-"
        return "nothing made" if cell.gain is None else f"{100 * cell.gain:+.1f}" + " =" * cell.is_healthy_run

    def verdict(cell: Cell | None, *, is_repair: bool) -> str:
        if cell is None:
            return "-"
        gain = 0.0 if cell.gain is None else cell.gain
        is_repaired = gain > noise and gain >= ENOUGH * (healthy.gain or 0.0)
        return "yes" if is_repaired == is_repair else "NO"

    within = "-" if broken is None else "yes" if (broken.gain or 0.0) <= noise else "NO"
    seconds = [cell.cpu_s for cell in (broken, naive) if cell is not None]
    cells_of_row = [
        points(healthy),
        f"{100 * noise:.1f}",
        points(broken),
        points(naive),
        points(repaired),
        within,
        verdict(repaired, is_repair=True),
        verdict(naive, is_repair=False),
        f"{sum(seconds) / len(seconds):.0f}" if seconds else "-",
    ]
    return f"| {cause} | {seed} | {' | '.join(cells_of_row)} |"


if __name__ == "__main__":
    main()
