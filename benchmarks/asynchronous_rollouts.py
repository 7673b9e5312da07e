"""Asynchronous against synchronous rollouts at equal wall clock, on `household`.

    python benchmarks/asynchronous_rollouts.py [--seeds 0 1 2] [--seconds 120] [--staleness 2 4] [--out FOLDER]

Every run starts from the same player, which imitated games with clumsy actions for a fixed number of steps, and has so
many seconds of `train_online_grpo` with the rates of the packaged agent `grpo`. Measured are 200 dev items before and
after, the batches that fitted, the share of the time in which the trainer waited for episodes (synchronous: in which it
played), the staleness and the ratios. One torch thread a side ($AGENT2_THREADS for more). The paired difference of the
gains has an interval over seeds (Student's t). The machine should have a core for each side; its load is printed.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.household import Household
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.models.bases import ensure_base_model
from agent2.models.hf import HfSampler
from agent2.records import Split, derive_seed
from agent2.training.offline import SftSettings, train_sft
from agent2.training.online_grpo import OnlineGrpoHooks, OnlineGrpoSettings, train_online_grpo
from agent2.training.running import LogLine, use_threads
from agent2.training.visible import TraceSettings, collect_traces

N_DEV, N_TRAIN, N_WARM = 200, 600, 300
SETTINGS = OnlineGrpoSettings(batches=10_000, learning_rate=8e-4, kl_episodes=0)
"""Ends by its seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one training showed."""

    name: str
    seed: int
    before: float
    after: float
    """Mean score on the dev items."""
    n_batches: int
    seconds: float
    processor_s: float
    """Of both sides together, for training alone."""
    idle_share: float
    """Of the time, in which the trainer waited for episodes or played them itself."""
    staleness: float
    importance_max: float | None


def warm_player(folder: Path, world: Household) -> Path:
    """The base model after a few games of the expert with clumsy actions: one that wins now and then."""
    base = ensure_base_model("tiny-household", BASE_MODELS)
    games = world.items(Split.TRAIN, N_TRAIN + N_WARM, None)[N_TRAIN:]
    traces = TraceSettings(episodes_per_item=1, clumsy_share=1.0, clumsy_rate=0.3, learn_clumsy=True)
    rows = collect_traces(games, world.environment, traces).rows
    settings = SftSettings(epochs=2, batch_size=16, learning_rate=2e-3, warmup_steps=10, max_tokens=512)
    return train_sft(base, rows, folder / "warm" / "model", settings).checkpoint


def dev_score(checkpoint: Path, world: Household) -> float:
    """Mean score on the dev items, each played once."""
    attempts = [Attempt(i, 0, derive_seed("asynchronous", i.id)) for i in world.items(Split.DEV, N_DEV, None)]
    sampler = HfSampler(checkpoint, max_batch=128)
    try:
        settings = PlaySettings(world.sampling, world.max_turns)
        scores = [done.score.value for done in play(attempts, sampler, world.environment, world.scorer(), settings)]
    finally:
        sampler.close()
    return float(np.mean([score for score in scores if score is not None]))


def trained(name: str, start: Path, before: float, world: Household, settings: OnlineGrpoSettings, out: Path) -> Run:
    """One training and its figures."""
    lines: list[LogLine] = []
    items = world.items(Split.TRAIN, N_TRAIN, None)
    began = time.process_time()
    report = train_online_grpo(start, items, world.environment, out, settings, OnlineGrpoHooks(on_log=lines.append))
    processor_s = time.process_time() - began
    after = dev_score(report.checkpoint, world)
    idle = [
        float(line["trainer_idle_s"])
        if "trainer_idle_s" in line
        else float(line["environment_s"]) + float(line["generation_s"])
        for line in lines
    ]
    largest = [float(line["importance_max"]) for line in lines if "importance_max" in line]
    return Run(
        name, settings.seed, before, after, len(lines), float(lines[-1]["seconds"]),
        processor_s, sum(idle) / float(lines[-1]["seconds"]),
        float(np.mean([float(line["staleness"]) for line in lines])),
        float(np.median(largest)) if largest else None,
    )  # fmt: skip


def interval(values: list[float]) -> str:
    """Mean with its 95% interval by Student's t; one value has none."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = float(student.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def main() -> None:
    """Train, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--staleness", type=int, nargs="+", default=[2])
    parser.add_argument("--prompts", type=int, default=32, help="items of a batch, eight episodes each")
    parser.add_argument("--start", type=Path, help="a player to start from; one is warmed up by default")
    parser.add_argument("--out", type=Path, help="folder for models and table; a temporary one by default")
    options = parser.parse_args()
    use_threads()
    out = options.out or Path(tempfile.mkdtemp(prefix="asynchronous-"))
    world = Household()
    start = options.start or warm_player(out, world)
    before = dev_score(start, world)
    bounds = {"synchronous": None, **{f"asynchronous, {bound}": bound for bound in options.staleness}}
    runs: list[Run] = []
    for seed in options.seeds:
        for name, bound in bounds.items():
            settings = replace(
                SETTINGS,
                prompts_per_batch=options.prompts,
                max_seconds=options.seconds,
                max_staleness=bound,
                seed=seed,
            )
            began = time.monotonic()
            run = trained(name, start, before, world, settings, out / f"{name}-{seed}".replace(", ", "-") / "model")
            runs.append(run)
            print(f"{run} load {os.getloadavg()[0]:.1f} {time.monotonic() - began:.0f} s", flush=True)
            out.mkdir(parents=True, exist_ok=True)
            with (out / "runs.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({field: getattr(run, field) for field in Run.__slots__}) + "\n")
    print(
        "| run | gain, points [95% over seeds] | beside synchronous | batches | "
        "processor s a batch | trainer idle | staleness | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    base = {run.seed: run for run in runs if run.name == "synchronous"}
    for name in bounds:
        own = [run for run in runs if run.name == name]
        gains = [100 * (run.after - run.before) for run in own]
        differences = [100 * (run.after - base[run.seed].after) for run in own]
        largest = [run.importance_max for run in own if run.importance_max is not None]
        print(
            f"| {name} | {interval(gains)} | {interval(differences) if name != 'synchronous' else ''} | "
            f"{np.mean([run.n_batches for run in own]):.0f} | "
            f"{sum(run.processor_s for run in own) / sum(run.n_batches for run in own):.1f} | "
            f"{np.mean([run.idle_share for run in own]):.0%} | "
            f"{np.mean([run.staleness for run in own]):.1f} | {f'{np.mean(largest):.1f}' if largest else ''} |"
        )


if __name__ == "__main__":
    main()
