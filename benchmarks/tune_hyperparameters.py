"""The ladder of `tune-hyperparameters`: four agents, several seeds; shares, regret, overfit, credit, minutes.

python benchmarks/tune_hyperparameters.py --out DIR [--seeds 1]

Plays trials through `agent2.cli.run` and reads their verdicts. A trial that is finished in DIR is not played again,
and one that was cut short is resumed.
"""

import argparse
import time
from pathlib import Path

from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import AssignmentVerdict
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.cli.run import play_new_trial, play_resumed

AGENTS = ("nop", "tune-naive", "tune-random", "tune-oracle")


def main() -> None:
    """Play and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--agent", action="append", help="instead of the four")
    arguments = parser.parse_args()
    print(
        "Share: mean of what the three choices gain over the default, of what the grid's best gains. Regret, overfit "
        "and gains on private items in points. Minutes: wall clock of the whole trial, shared machine.\n"
    )
    titles = "seed|agent|share|regret|of random search|of halving|overfit|again|best again|noise|credit|passed|minutes"
    print(f"| {titles.replace('|', ' | ')} |\n{'|---' * (titles.count('|') + 1)}|", flush=True)
    for seed in range(arguments.seeds):
        for agent in arguments.agent or AGENTS:
            print(row_of(seed, agent, *play(agent, seed, arguments.out)), flush=True)


def play(agent: str, seed: int, out: Path) -> tuple[AssignmentVerdict | None, float]:
    """The verdict and the minutes of one trial, its evaluations included."""
    name = f"{Path(agent).name}-s{seed}"
    folder, started = out / name, time.monotonic()
    if not TrialPaths(folder).trial_json.is_file():
        play_new_trial("tune-hyperparameters", agent, seed, out, [f"trial_id={name}"])
    elif read_events(TrialPaths(folder).trial_log).last("finished") is None:
        play_resumed(folder, restarts_agent=True)
    return read_evidence(folder).assignment, (time.monotonic() - started) / 60


def row_of(seed: int, agent: str, verdict: AssignmentVerdict | None, minutes: float) -> str:
    """One line of the table; what was not measured is a dash."""
    figures = verdict.figures if verdict is not None else {}

    def points(name: str, less: str = "") -> str:
        value, other = figures.get(name), figures.get(less, 0.0)
        return f"{100 * (value - other):.1f}" if isinstance(value, float) and isinstance(other, float) else "-"

    credits = {part.name: part.credit for part in verdict.parts} if verdict is not None else {}
    share = credits.get("search")
    cells = [
        f"{100 * share:.0f}%" if share is not None else "-",
        *(points(name) for name in ("regret", "random_regret", "halving_regret", "overfit")),
        points("chosen_gain", "default_gain"),
        points("best_gain", "default_gain"),
        points("noise"),
        f"{verdict.credit:.2f}" if verdict is not None and verdict.credit is not None else "-",
        "yes" if verdict is not None and verdict.passed else "no",
        f"{minutes:.1f}",
    ]
    return f"| {seed} | {Path(agent).name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
