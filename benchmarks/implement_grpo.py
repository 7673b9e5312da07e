"""The ladder of `implement-grpo`: three agents, several seeds; hidden tests, gains, credit, minutes.

python benchmarks/implement_grpo.py --out DIR [--seeds 1]

Plays trials through `agent2.cli.run` and reads their verdicts. A trial that is finished in DIR is not played again,
and one that was cut short is resumed.
"""

import argparse
import time
from pathlib import Path

from agent2.arena.analysis.read import read_evidence
from agent2.arena.assignments.hidden_cases import STAGES
from agent2.arena.evidence import AssignmentVerdict
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.cli.run import play_new_trial, play_resumed

AGENTS = ("nop", "implement-naive", "implement-oracle")


def main() -> None:
    """Play and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--agent", action="append", help="instead of the three")
    arguments = parser.parse_args()
    print(
        f"Hidden tests: stages passed of {len(STAGES)}. Gains: private, over the base model, in points; by chance: "
        "with the same rewards dealt out by chance. Minutes: wall clock of the whole trial, shared machine.\n"
    )
    print("| seed | agent | tests | gain | reference | by chance | noise | credit | passed | minutes |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in range(arguments.seeds):
        for agent in arguments.agent or AGENTS:
            print(row_of(seed, agent, *play(agent, seed, arguments.out)), flush=True)


def play(agent: str, seed: int, out: Path) -> tuple[AssignmentVerdict | None, float]:
    """The verdict and the minutes of one trial, its evaluations included."""
    name = f"{Path(agent).name}-s{seed}"
    folder, started = out / name, time.monotonic()
    if not TrialPaths(folder).trial_json.is_file():
        play_new_trial("implement-grpo", agent, seed, out, [f"trial_id={name}"])
    elif read_events(TrialPaths(folder).trial_log).last("finished") is None:
        play_resumed(folder, restarts_agent=True)
    return read_evidence(folder).assignment, (time.monotonic() - started) / 60


def row_of(seed: int, agent: str, verdict: AssignmentVerdict | None, minutes: float) -> str:
    """One line of the table; what was not measured is a dash."""
    figures = verdict.figures if verdict is not None else {}

    def points(name: str) -> str:
        value = figures.get(name)
        return f"{100 * value:+.1f}" if isinstance(value, float) else "-"

    n_passed = sum(part.credit == 1.0 for part in verdict.parts if part.name in STAGES) if verdict is not None else 0
    gains = " | ".join(points(name) for name in ("gain", "reference_gain", "gain_by_chance", "noise"))
    credit = f"{verdict.credit:.2f}" if verdict is not None and verdict.credit is not None else "-"
    passed = "yes" if verdict is not None and verdict.passed else "no"
    return f"| {seed} | {Path(agent).name} | {n_passed} | {gains} | {credit} | {passed} | {minutes:.1f} |"


if __name__ == "__main__":
    main()
