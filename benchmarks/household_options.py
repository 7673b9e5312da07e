"""Online training in the household world with one switch at a time the wrong way: what happens, who says so.

    python benchmarks/household_options.py [--base DIR | --start DIR] [--batches 20] [--only NAME ...]

A weak player (the base model after a few expert games) is trained on the real engine with settings that work, and
then with each switch turned. For each run the table says what happened to success, messages and divergence, and which
detector of `agent2.monitor` fired on the run's own log, at which update. About two minutes a run on an idle core.

Exit code 1 if a failure was named by none of its detectors, or a detector fired where none was expected.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import datasets
from transformers.utils import logging as transformers_logging

from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.household import Household
from agent2.errors import Agent2Error
from agent2.models.bases import ensure_base_model
from agent2.monitor.readers import read_log
from agent2.monitor.series import TrainingLog
from agent2.monitor.signals import Danger, MonitoredRun, MonitorSettings, Signal
from agent2.monitor.watch import watch
from agent2.records import Item, Split
from agent2.training.offline import SftSettings, train_sft
from agent2.training.online_grpo import OnlineGrpoHooks, OnlineGrpoSettings, train_online_grpo
from agent2.training.running import LogLine
from agent2.training.visible import TraceSettings, collect_traces

ENDS = 5
"""Batches at either end that the table's figures are means of."""


@dataclass(frozen=True, slots=True)
class Option:
    """One run."""

    description: str
    settings: OnlineGrpoSettings
    expected: frozenset[Danger]
    """Detectors one of which has to name the failure; empty: none may."""


def options(batches: int, seed: int) -> dict[str, Option]:
    """The runs, the right way first."""
    right = OnlineGrpoSettings(batches=batches, prompts_per_batch=16, seed=seed)
    fast = replace(right, learning_rate=2e-3)
    return {
        "right": Option("as recommended", right, frozenset()),
        "observations": Option(
            "observations not masked", replace(right, mask_observations=False), frozenset({Danger.FOREIGN_TOKENS})
        ),
        "capped": Option(
            "cap-reached episodes masked", replace(right, mask_capped=True), frozenset({Danger.SIGNAL_LOST})
        ),
        "token": Option(
            "token-normalised loss at twelve times the rate",
            replace(right, learning_rate=5e-3, normalise="token"),
            frozenset({Danger.FORMAT_COLLAPSE}),
        ),
        "no-kl": Option(
            "no KL term at five times the rate", fast, frozenset({Danger.POLICY_DRIFT, Danger.FORMAT_COLLAPSE})
        ),
        "kl": Option("... and the same with KL weight 0.1", replace(fast, kl_weight=0.1), frozenset()),
    }


def warm_up(base: Path, folder: Path, n_games: int, epochs: float) -> Path:
    """The base model after a few expert games."""
    household = Household()
    games = household.items(Split.TRAIN, n_games, None)
    rows = collect_traces(games, household.environment, TraceSettings(episodes_per_item=1, clumsy_share=0.0)).rows
    settings = SftSettings(epochs=epochs, batch_size=32, learning_rate=2e-3, max_tokens=512)
    return train_sft(base, rows, folder / "warm" / "model", settings).checkpoint


def run(name: str, option: Option, start: Path, items: list[Item], folder: Path) -> list[str]:
    """One run; returns its row of the table."""

    def print_line(line: LogLine) -> None:
        names = ("success", "invalid_share", "unterminated_share", "kl_initial", "signal_share")
        figures = ", ".join(f"{key} {float(line[key]):.3f}" for key in names if key in line)
        print(f"  {name} update {line['step']}: {figures}", flush=True)

    out = folder / name / "model"
    ended = ""
    try:
        train_online_grpo(
            start, items, Household().environment, out, option.settings, OnlineGrpoHooks(on_log=print_line)
        )
    except Agent2Error as error:
        ended = f"; ended: {error}"
    log = read_log(out.parent / "train_log.jsonl")
    signals = watch(
        MonitoredRun(log, MonitorSettings(), [])
    ).signals  # success on the batches themselves is not a benchmark
    named = any(signal.danger in option.expected for signal in signals)
    verdict = "NO"
    if named if option.expected else not signals:
        verdict = "yes" if option.expected else "none expected"
    return [option.description, happened(log) + ended, "; ".join(map(describe_signal, signals)) or "none", verdict]


def happened(log: TrainingLog) -> str:
    """Means of the first and the last batches."""
    names: Mapping[str, str] = {
        "success": "success",
        "invalid_share": "invalid",
        "unterminated_share": "unterminated",
        "signal_share": "groups with signal",
        "kl_initial": "KL",
    }
    parts = []
    for name, label in names.items():
        series = log.get(name)
        if series is not None:
            parts.append(f"{label} {series.values[:ENDS].mean():.2f} -> {series.values[-ENDS:].mean():.2f}")
    return ", ".join(parts)


def describe_signal(signal: Signal) -> str:
    """A detector and when it spoke."""
    return f"`{signal.danger.value}` at update {signal.step} ({signal.evidence})"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, help="folder of the base model; default: tiny-household")
    parser.add_argument("--start", type=Path, help="folder of a player that is warm already; default: warm one up")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--warm-games", type=int, default=600)
    parser.add_argument("--warm-epochs", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="names of runs")
    arguments = parser.parse_args()
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    items = Household().items(Split.TRAIN, 1000, None)[arguments.warm_games :]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        start = arguments.start
        if start is None:
            base = arguments.base or ensure_base_model("tiny-household", BASE_MODELS)
            start = warm_up(base, Path(folder), arguments.warm_games, arguments.warm_epochs)
        for name, option in options(arguments.batches, arguments.seed).items():
            if not arguments.only or name in arguments.only:
                rows.append(run(name, option, start, items, Path(folder)))
                print(f"| {' | '.join(rows[-1])} |", flush=True)
    print("\n| option | what happened | detectors that fired | named |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    if any(row[-1] == "NO" for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
