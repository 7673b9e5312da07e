"""Verdicts of the packages behind `bfcl` and `tau2` on expected and on spoilt episodes, over the bridge, all items.

    agent2 benchmarks install tau2
    python benchmarks/bridged_episodes.py tau2:telecom bfcl:multi_turn_base [--items N] [--kind reference]

Each item's reference has to score 1. Spoilt are: the last call left out, an unknown argument in the first call, all
calls left out, and everything that the agent tells left out. Where it is right to change nothing, an episode without
calls scores 1 with reason, and a call that only reads can be left out.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent2 import installation
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.bridges.episodes import MOVES, BridgedEpisodes
from agent2.environments.tools.calls import read_answer
from agent2.records import Item, Rollout, RolloutStatus, Split, Usage

Moves = list[dict[str, Any]]
SILENT = "I have finished."
TOLD = "nothing told"


def expected(item: Item) -> Moves:
    """The moves of the reference."""
    messages = [read_answer(str(text)) for text in json.loads(item.reference or "[]")]
    return [
        {"calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in message.calls]}
        if message.answer is None
        else {"words": message.answer}
        for message in messages
    ]


def _calling(moves: Moves) -> list[int]:
    """Places of messages with calls other than `done`."""
    return [place for place, move in enumerate(moves) if any(call["name"] != "done" for call in move.get("calls", ()))]


def without_last_call(moves: Moves) -> Moves:
    """One call less."""
    places = _calling(moves)
    last = places[-1] if places else -1
    return [{"calls": move["calls"][:-1]} if place == last else move for place, move in enumerate(moves)]


def with_unknown_argument(moves: Moves) -> Moves:
    """The first call cannot be carried out."""
    places = _calling(moves)
    if not places:
        return moves
    first, *others = moves[places[0]]["calls"]
    wrong = {**first, "arguments": {**first["arguments"], "no_such_parameter": 1}}
    return [*moves[: places[0]], {"calls": [wrong, *others]}, *moves[places[0] + 1 :]]


def without_calls(moves: Moves) -> Moves:
    """Words, and the tool that ends a ticket."""
    places = set(_calling(moves))
    return [move for place, move in enumerate(moves) if place not in places]


def without_information(moves: Moves) -> Moves:
    """All calls, and words that tell nothing."""
    return [move if "calls" in move else {"words": SILENT} for move in moves]


SPOILT: Mapping[str, Callable[[Moves], Moves]] = {
    "without the last call": without_last_call,
    "unknown argument in the first call": with_unknown_argument,
    "without any call": without_calls,
    TOLD: without_information,
}


def items_of(benchmark: BridgedEpisodes, most: int | None) -> list[Item]:
    """The items of all splits."""
    secret = installation.secret()
    items = [item for split in Split for item in benchmark.items(split, benchmark.count(split, secret), secret)]
    return items[:most]


def main() -> None:
    """Print a line for each kind of episode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--items", type=int, default=None)
    all_kinds: Mapping[str, Callable[[Moves], Moves]] = {"reference": lambda moves: moves, **SPOILT}
    parser.add_argument("--kind", action="append", choices=list(all_kinds), help="default: all")
    arguments = parser.parse_args()
    for name in arguments.names:
        benchmark = load_benchmark(name)
        if not isinstance(benchmark, BridgedEpisodes):
            raise SystemExit(f"{name} has no episodes behind a bridge")
        items = items_of(benchmark, arguments.items)
        for kind in arguments.kind or all_kinds:
            change = all_kinds[kind]
            if kind == TOLD and not name.startswith("tau2"):
                continue  # words decide nothing there
            episodes = [(item, change(expected(item))) for item in items]
            changed = [(item, moves) for item, moves in episodes if kind == "reference" or moves != expected(item)]
            values = verdicts(benchmark, changed)
            print(f"{name}, {kind}: {sum(value == 1.0 for value in values)} of {len(values)} score 1", flush=True)
        benchmark.close()


def verdicts(benchmark: BridgedEpisodes, episodes: Sequence[tuple[Item, Moves]]) -> list[float | None]:
    """What the package says of each."""
    scorer = benchmark.scorer()
    rollouts = [
        Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, [], [], None, state_of(moves), Usage())
        for item, moves in episodes
    ]
    return [scorer.score(item, rollout).value for (item, _), rollout in zip(episodes, rollouts, strict=True)]


def state_of(moves: Moves) -> dict[str, Any]:
    """The state of an episode of these moves; calls are counted by nobody here."""
    return {MOVES: moves, "tool_calls": [], "safety_violations": []}


if __name__ == "__main__":
    main()
