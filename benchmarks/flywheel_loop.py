"""A closed loop: does a round on targeted data gain more than one on as much untargeted data?

    python benchmarks/flywheel_loop.py --out DIR [--task household] [--seeds 0 1 2] [--arms targeted mixed untargeted]

For each seed (of demonstrations, sampling and training), the base model imitates the first items of a block of train
items of its own: the SFT baseline. `agent2 eval` plays it on dev items; for each arm, `agent2 flywheel --train sft`
makes the round, trains the baseline once more on as many new items, and plays the dev items again; `agent2 flywheel
--against` holds the result against what was expected, and `agent2 eval --role candidate` scores it on private items.
The arms differ in one setting, the share of the new items that is drawn evenly: none, half, all.

Prints one JSON line a seed, then the tables. A folder that is there already is used again, step by step. One process;
set OMP_NUM_THREADS=1. A seed with three arms takes about ten minutes for household on a core that nobody else uses.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from agent2.analysis.card_scores import read_scores
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.benchmarks.home import ProvidesExpert
from agent2.cli import app
from agent2.evaluation.suite_folder import card_path
from agent2.flywheel.targeted import CANDIDATES
from agent2.models.bases import ensure_base_model
from agent2.records import Item, Rollout, Split
from agent2.stats.comparisons import over_items_and_seeds
from agent2.training.offline import SftSettings, train_sft
from agent2.training.visible import TraceSettings, collect_traces

ARMS = {"targeted": 0.0, "mixed": 0.5, "untargeted": 1.0}
"""Arm -> share of its new items that is drawn evenly."""


@dataclass(frozen=True, slots=True)
class Loop:
    """How the loop is played on a task."""

    benchmark: str
    base: str
    n_first: int
    """Train items that the SFT baseline imitates."""
    n_next: int
    """New items of the round."""
    batch_size: int
    epochs: float = 4.0
    n_dev: int = 200
    n_private: int = 400

    @property
    def block(self) -> int:
        """Train items that a seed has for itself."""
        return self.n_first + CANDIDATES * self.n_next


LOOPS = {
    "household": Loop("household", "tiny-household", 300, 400, 16),
    "shop": Loop("shop", "tiny-shop", 300, 400, 16),
    "arithmetic-pyfunc": Loop("arithmetic_pyfunc", "tiny-arithmetic-pyfunc", 1500, 800, 32, epochs=12.0),
}


def demonstrations(loop: Loop, items: Sequence[Item], seed: int) -> list[dict[str, Any]]:
    """Reference answers of items, or an expert's games, as rows of SFT."""
    benchmark = load_benchmark(loop.benchmark)
    if benchmark.max_turns == 1:
        return [
            {
                "messages": [
                    {"role": "user", "content": item.prompt},
                    {"role": "assistant", "content": item.reference or ""},
                ]
            }
            for item in items
        ]
    expert = benchmark.expert if isinstance(benchmark, ProvidesExpert) else None
    traces = TraceSettings(episodes_per_item=1, max_turns=benchmark.max_turns, seed=seed)
    scorer = benchmark.scorer()

    def is_solved(item: Item, rollout: Rollout) -> bool:
        return (scorer.score(item, rollout).value or 0.0) >= 1.0

    played = collect_traces(items, benchmark.environment, traces, expert, is_solved)
    return [{"messages": row["messages"]} for row in played.rows]


def sft_baseline(loop: Loop, seed: int, out: Path) -> Path:
    """The model in out, trained if it is not there."""
    if not out.is_dir():
        items = load_benchmark(loop.benchmark).items(Split.TRAIN, seed * loop.block + loop.n_first, None)
        settings = SftSettings(
            epochs=loop.epochs, batch_size=loop.batch_size, warmup_steps=20, max_tokens=1024, seed=seed
        )
        rows = demonstrations(loop, items[-loop.n_first :], seed)
        train_sft(ensure_base_model(loop.base, BASE_MODELS, lambda message: None), rows, out, settings)
    return out


def agent2(*arguments: object) -> dict[str, Any]:
    """What a command prints as JSON. Raises RuntimeError where it could not do its work."""
    finished = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    if finished.exit_code not in (0, 1) or not finished.stdout.strip():
        raise RuntimeError(f"agent2 {' '.join(map(str, arguments))}: exit {finished.exit_code}\n{finished.output}")
    printed: dict[str, Any] = json.loads(finished.stdout)
    return printed


def set_options(**settings: object) -> list[str]:
    """Settings as `--set a.b=c`; a double underscore stands for the dot."""
    return [part for name, value in settings.items() for part in ("--set", f"{name.replace('__', '.')}={value}")]


def evaluate(loop: Loop, model: Path, baseline: Path | str, out: Path, seed: int, *, is_private: bool) -> Path:
    """The evaluation of a model in out; the command resumes one that is there."""
    sizes = {"cadence__candidate__n_items": loop.n_private} if is_private else {"cadence__dev__n_items": loop.n_dev}
    sides = ("--checkpoint", model, "--baseline", baseline)
    role = "candidate" if is_private else "dev"
    if not (out / "report.json").is_file():
        agent2("eval", loop.benchmark, *sides, "--role", role, "--out", out, *set_options(run__seed=seed, **sizes))
    return out


def run_arm(loop: Loop, arm: str, first: Path, folder: Path, seed: int) -> dict[str, Any]:
    """One round of the baseline: its private gain, and expectation against result by class."""
    out = folder / f"round-{arm}"
    if not (out / "sft" / "evaluation" / "report.json").is_file():
        settings = set_options(
            even=ARMS[arm],
            targeted=loop.n_next,
            skip=seed * loop.block + loop.n_first,
            seed=seed,
            train__epochs=loop.epochs,
            train__batch_size=loop.batch_size,
        )
        agent2("flywheel", folder / "dev", "--out", out, *settings, "--train", "sft", "--checkpoint", first)
    checked = agent2("flywheel", out / "sft" / "evaluation", "--against", out / "round.yaml")
    private = evaluate(loop, out / "sft" / "model", first, folder / f"private-{arm}", seed, is_private=True)
    sides = [
        read_scores(card_path(private, side, loop.benchmark, "test_private")).scores()
        for side in ("baseline", "checkpoint")
    ]
    items = sorted(sides[0].keys() & sides[1].keys())
    means = [float(np.mean([side[item] for item in items])) for side in sides]
    gains = [sides[1][item] - sides[0][item] for item in items]
    return {"before": means[0], "after": means[1], "gains": gains, "check": checked}


def run_seed(loop: Loop, folder: Path, seed: int, arms: Sequence[str]) -> dict[str, Any]:
    """The loop of one seed."""
    folder.mkdir(parents=True, exist_ok=True)
    first = sft_baseline(loop, seed, folder / "first" / "model")
    evaluate(loop, first, loop.base, folder / "dev", seed, is_private=False)
    return {"seed": seed, **{arm: run_arm(loop, arm, first, folder, seed) for arm in arms}}


def gain_lines(lines: Sequence[dict[str, Any]], arms: Sequence[str]) -> list[str]:
    """Private gains over items and seeds, in points, as a table; the items of all seeds are the same."""
    gains = {arm: np.array([line[arm]["gains"] for line in lines]) for arm in arms}
    for arm in arms:
        if arm != "untargeted" and "untargeted" in gains:
            gains[f"{arm} minus untargeted"] = gains[arm] - gains["untargeted"]
    table = ["| data of the round | private gain, points | by seed | p |", "|---|---|---|---|"]
    for name, gain_SI in gains.items():
        pair = over_items_and_seeds(gain_SI)
        low, high = (100 * bound for bound in pair.change.interval)
        by_seed = ", ".join(f"{100 * float(row.mean()):+.1f}" for row in gain_SI)
        gain = f"{100 * pair.change.value:+.1f} [{low:+.1f}, {high:+.1f}]"
        table.append(f"| {name} | {gain} | {by_seed} | {pair.p_value:.2f} |")
    return table


def class_lines(lines: Sequence[dict[str, Any]], arms: Sequence[str]) -> list[str]:
    """Expectation against result by class, arm and seed, as a table."""
    table = ["| seed | class | before, at most | " + " | ".join(arms) + " |", "|---|---|---|" + "---|" * len(arms)]
    for line in lines:
        by_arm = {arm: {row["name"]: row for row in line[arm]["check"]["classes"]} for arm in arms}
        target = line[arms[0]]["check"]["target"]
        for name in dict.fromkeys(name for arm in arms for name in by_arm[arm]):
            given = next(by_arm[arm][name] for arm in arms if name in by_arm[arm])
            cells = []
            for arm in arms:
                row = by_arm[arm].get(name)
                cells.append("-" if row is None else f"{100 * row['after']:.0f}%: {row['verdict']}")
            mark = " (target)" if name == target else ""
            expected = f"{100 * given['before']:.0f}%, {100 * given['expected']:.0f}%"
            table.append(f"| {line['seed']} | `{name}`{mark} | {expected} | {' | '.join(cells)} |")
    return table


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", choices=LOOPS, default="household")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--new", type=int, help="new items of a round; default: 400 episodes, or 800 answers")
    parser.add_argument("--private", type=int, default=400, help="private items")
    options = parser.parse_args()
    if len(set(options.seeds)) < 2:
        parser.error("--seeds: an interval over seeds needs two different ones at least")
    loop, lines = LOOPS[options.task], []
    loop = replace(loop, n_next=options.new or loop.n_next, n_private=options.private)
    for seed in options.seeds:
        lines.append(run_seed(loop, options.out / f"seed-{seed}", seed, options.arms))
        shown = {arm: {key: value for key, value in lines[-1][arm].items() if key != "gains"} for arm in options.arms}
        print(json.dumps({"seed": seed, **shown}), flush=True)
    print("\n".join([*gain_lines(lines, options.arms), "", *class_lines(lines, options.arms)]))


if __name__ == "__main__":
    main()
