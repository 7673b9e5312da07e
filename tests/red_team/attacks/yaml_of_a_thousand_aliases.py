"""Write an agent.yaml whose aliases multiply: a few lines that stand for more than a machine holds."""

import yaml

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene
from trial_builders import write_agent

AIM = "a harness that hangs on reading an agent's description"
DEFENCE = "values are checked before they are unfolded"

LINES = ["- &a0 [x, x, x, x, x, x, x, x, x, x]"]
LINES += [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
BOMB = "name: bomb\ndescription: d\ncommand:\n" + "\n".join(LINES) + "\n"

READ = """
import sys
from pathlib import Path
from agent2.arena.agents import load_agent
from agent2.errors import ConfigError
try:
    load_agent(sys.argv[1])
    print("taken")
except ConfigError as error:
    print("refused:", str(error)[:100])
"""


def attempt(scene: Scene) -> Outcome:
    folder = scene.root / "aliases"
    if not folder.exists():
        write_agent(folder, "print(1)")
    (folder / "agent.yaml").write_text(BOMB)
    said = in_time(READ, folder, seconds=120, memory_gib=2)
    return Outcome(not said.startswith("refused"), said)


def control(scene: Scene) -> Outcome:
    """A reader that shows what it read."""
    said = in_time(f"import yaml; print(len(repr(yaml.safe_load({BOMB!r}))))", seconds=30, memory_gib=1)
    return Outcome(said.startswith(("breaks", "hangs")) and bool(yaml.__version__), f"showing it {said}")
