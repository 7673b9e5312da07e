"""Describe a task of a billion items in a recording: whoever replays it makes them all."""

import json

from agent2.arena.trial_folder import read_config
from agent2.errors import ConfigError
from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a harness that runs out of memory"
DEFENCE = "a task has at most a million items a split"


def attempt(scene: Scene) -> Outcome:
    record = json.loads(scene.paths.trial_json.read_text())
    record["task"]["n_items"]["train"] = 10**9
    path = scene.root / "billion.json"
    path.write_text(json.dumps(record))
    try:
        config = read_config(path)
    except ConfigError as error:
        return Outcome(False, f"refused: {str(error)[-80:]}")
    return Outcome(True, f"{config.task.n_items.train} items would be made")


def control(scene: Scene) -> Outcome:
    outcome = in_time("items = [str(number) for number in range(10**9)]; print('made')", seconds=30, memory_gib=1)
    return Outcome(outcome.startswith(("breaks", "hangs")), f"making them {outcome}")
