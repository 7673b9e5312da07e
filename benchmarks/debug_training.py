"""The ladder of `debug-training`: each cause, several seeds, three agents; gains, credit, minutes.

python benchmarks/debug_training.py --out DIR [--seeds 3] [--cause kl ...]

Plays trials through `agent2.cli.run` and reads their verdicts. A trial that is finished in DIR is not played again,
and one that was cut short is resumed.
"""

import argparse
import time
from pathlib import Path

import yaml

from agent2.arena.analysis.read import read_evidence
from agent2.arena.assignments.pipeline_variants import FAULTS
from agent2.arena.evidence import AssignmentVerdict
from agent2.arena.tasks import load_task
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.cli.run import play_new_trial, play_resumed

AGENTS = ("nop", "debug-naive", "debug-oracle")


def main() -> None:
    """Play and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cause", action="append", choices=list(FAULTS))
    arguments = parser.parse_args()
    print("| cause | seed | agent | gain, points | healthy | noise | credit | passed | minutes |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for cause in arguments.cause or FAULTS:
        task = task_with(cause, arguments.out)
        for seed in range(arguments.seeds):
            for agent in AGENTS:
                print(row_of(cause, seed, agent, *play(task, cause, seed, agent, arguments.out)), flush=True)


def task_with(cause: str, out: Path) -> Path:
    """A task file whose cause is fixed."""
    record = load_task("debug-training").model_dump(mode="json")
    record["assignment"]["case"] = cause
    path = out / f"{cause}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(record), encoding="utf-8")
    return path.resolve()


def play(task: Path, cause: str, seed: int, agent: str, out: Path) -> tuple[AssignmentVerdict | None, float]:
    """The verdict and the minutes of one trial, its evaluations included."""
    name = f"{cause}-{agent}-s{seed}"
    folder, started = out / "trials" / name, time.monotonic()
    if not TrialPaths(folder).trial_json.is_file():
        play_new_trial(str(task), agent, seed, out / "trials", [f"trial_id={name}"])
    elif read_events(TrialPaths(folder).trial_log).last("finished") is None:
        play_resumed(folder, restarts_agent=True)
    return read_evidence(folder).assignment, (time.monotonic() - started) / 60


def row_of(cause: str, seed: int, agent: str, verdict: AssignmentVerdict | None, minutes: float) -> str:
    """One line of the table; what was not measured is a dash."""
    figures = verdict.figures if verdict is not None else {}

    def points(name: str) -> str:
        value = figures.get(name)
        return f"{100 * value:+.1f}" if isinstance(value, float) else "-"

    credit = f"{verdict.credit:.2f}" if verdict is not None and verdict.credit is not None else "-"
    passed = "yes" if verdict is not None and verdict.passed else "no"
    shares = f"{points('gain')} | {points('healthy_gain')} | {points('noise')}"
    return f"| {cause} | {seed} | {agent} | {shares} | {credit} | {passed} | {minutes:.1f} |"


if __name__ == "__main__":
    main()
