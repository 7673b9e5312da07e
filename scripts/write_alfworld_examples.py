"""Writes the example episodes of the ReAct prompt: src/agent2/benchmarks/alfworld/examples.json.

Generates two games of each task type, lets the search expert play them on the engine, and puts a thought of our own
wording where the plan changes. Run it once after a change of the generator or the expert; the prompts' digest then
changes, and scores made with the old ones are not comparable.
"""

import json
from itertools import count
from pathlib import Path

import numpy as np

from agent2.benchmarks.household.generate import COOL, HEAT, LOOK, SIZES, TWO, WorldSize, draw_game
from agent2.environments.household.engine import shared_engine
from agent2.environments.household.expert import SearchExpert
from agent2.environments.household.game import TASK_TYPES, Game

TARGET = Path(__file__).parent.parent / "src/agent2/benchmarks/alfworld/examples.json"
FEWEST, MOST = 6, 14
"""Actions of a usable example: long enough to show a search, short enough for a prompt."""
_TREATED = {"clean": "clean", "heat": "hot", "cool": "cold"}


def world_of(task_type: str) -> WorldSize:
    """Rooms that are smaller than the published ones, so that two episodes fit into a prompt."""
    small = SIZES["small"]
    return WorldSize(
        name="examples",
        task_types=(task_type,),
        rooms=small.rooms,
        n_receptacles=(8, 11),
        n_objects=(9, 13),
        max_copies=2,
        max_openable=4,
        max_turns=30,
    )


def example(task_type: str, seed: int) -> dict[str, object] | None:
    """One episode with its game, None if it is too short, too long or lost."""
    game = draw_game(np.random.default_rng(seed), world_of(task_type))
    engine, expert = shared_engine(), SearchExpert(0)
    position = engine.start(game)
    opening = position.observation[position.observation.index("You are in the middle") :].replace("\n\n", "\n")
    expert.read(opening)
    lines, held, n_placed = [(f"think: {plan(game)}", "OK.")], False, 0
    for _ in range(MOST):
        command = expert.next_command()
        thought = thought_before(command, held=held, n_placed=n_placed)
        if thought is not None:
            lines.append((f"think: {thought}", "OK."))
        position = engine.move(position, command)
        lines.append((command, position.observation))
        expert.read(position.observation)
        held = command.startswith("take") or (held and not command.startswith("move"))
        n_placed += command.startswith("move")
        if position.won:
            n_actions = sum(not action.startswith("think:") for action, _ in lines)
            record: dict[str, object] = {
                "task_type": task_type,
                "game": game.as_payload(),
                "opening": opening,
                "lines": lines,
            }
            return record if n_actions >= FEWEST else None
    return None


def plan(game: Game) -> str:
    """What a player thinks on reading the task."""
    steps = {
        LOOK: "find it, take it, and then switch on a lamp while I hold it",
        TWO: "bring the first one there, and then search for the second",
    }.get(game.task_type)
    if steps is None:
        tool = {HEAT: "microwave", COOL: "fridge"}.get(game.task_type)
        tool = "sinkbasin" if "clean" in game.task_type else tool
        treat = f", use the {tool} on it" if tool else ""
        steps = f"find it, take it{treat}, and bring it where it belongs"
    return f"The task says: {game.goal}. My plan is to {steps}. I do not know where it is, so I look around in order."


def thought_before(command: str, *, held: bool, n_placed: int) -> str | None:
    """A thought where the plan moves on, None in the middle of a stage."""
    verb = command.split()[0]
    if verb == "take":
        object_name, _, place = command.removeprefix("take ").partition(" from ")
        relative = "the second one that" if n_placed else "which"
        return f"I see {object_name} here, {relative} I need. I take it from {place}."
    if verb in _TREATED:
        return f"I am where this can be done. Afterwards it will be {_TREATED[verb]}."
    if verb == "use":
        return "I hold what I am to look at, and the lamp is here. I switch it on."
    if verb == "move" and held:
        return "This is the right place for it. I put it down."
    return None


def main() -> None:
    """Write two examples of every task type."""
    examples = []
    for task_type in TASK_TYPES:
        episodes = (example(task_type, seed) for seed in count(1))
        usable = (episode for episode in episodes if episode is not None)
        examples += [next(usable), next(usable)]
    TARGET.write_text(json.dumps(examples, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
