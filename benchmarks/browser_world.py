"""Web pages of MiniWoB++ played by their own players and at random, with turns and episodes per second.

    agent2 benchmarks install miniwob
    python benchmarks/browser_world.py [NAME] [--items N]

Plays the hidden items of `miniwob:NAME` (default `twenty`, all tasks) with `examples/browser_players.py`, those of
`NAME-screenshot` with the reference's clicks and at random points. Times are
wall clock and hold for pages that are open at once; opening the pages to list the items is timed apart.
"""

import argparse
import runpy
import time
from collections import defaultdict
from pathlib import Path

from agent2 import installation
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.bridges.episodes import BridgedEpisodes
from agent2.evaluation.check import play_items
from agent2.records import Split

PLAYERS = Path(__file__).parent.parent / "examples" / "browser_players.py"


def main() -> None:
    """Print a line for each player, and the random player's score by task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="twenty")
    parser.add_argument("--items", type=int, default=60, help="of both hidden splits together")
    arguments = parser.parse_args()
    players = runpy.run_path(str(PLAYERS))
    benchmark = load_benchmark(f"miniwob:{arguments.name}")
    if not isinstance(benchmark, BridgedEpisodes):
        raise SystemExit(f"miniwob:{arguments.name} has no episodes")
    started = time.perf_counter()
    secret = installation.secret()
    items = [
        item
        for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE)
        for item in benchmark.items(split, min(arguments.items // 2, benchmark.count(split, secret)), secret)
    ]
    print(f"{len(items)} items listed, {benchmark.environment_version()}: {time.perf_counter() - started:.1f} s")
    played = ("reference", "random_points") if arguments.name.endswith("-screenshot") else ("solver", "random_clicks")
    for name in played:
        started = time.perf_counter()
        records = play_items(
            benchmark,
            items,
            lambda item, world, chat, name=name: players[name](chat) if name in players else world.ask_expert(),
        )
        seconds = time.perf_counter() - started
        values = [record.score.value for record in records]
        n_turns = sum(len(record.rollout.turns) for record in records)
        known = [value for value in values if value is not None]
        print(
            f"{name}: mean score {sum(known) / len(known):.3f}, {values.count(1.0)} of {len(values)} score 1, "
            f"{values.count(None)} missing; {n_turns} turns in {seconds:.1f} s, {n_turns / seconds:.2f} turns/s",
            flush=True,
        )
        by_task = defaultdict(list)
        for item, value in zip(items, values, strict=True):
            by_task[item.prompt.partition(",")[0]].append(value)
        solved = [f"{task} {sum(map(bool, scores))}/{len(scores)}" for task, scores in sorted(by_task.items())]
        print(f"  {', '.join(solved)}", flush=True)
    benchmark.close()


if __name__ == "__main__":
    main()
