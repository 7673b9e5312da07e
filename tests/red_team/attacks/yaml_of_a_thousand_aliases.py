"""Write an agent.yaml or a suite whose aliases multiply: a few lines that stand for more than a machine holds.

Every key is one that is known, so that nothing is refused before the value is looked at: where a text is wanted, a
list, or anything, in merged mappings, and in a list that holds itself.
"""

import json

import yaml

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a harness that hangs or dies on reading a stranger's description"
DEFENCE = "what a text stands for is counted before anything is made of it"

DEPTH = 9
LAST = f"*a{DEPTH}"


def levels(first: str, more: str) -> str:
    """Anchors a0 to a9, each ten times the one before, as one flow list."""
    anchors = [f"&a0 {first}"]
    anchors += [f"&a{n} {more.replace('*', ', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, DEPTH + 1)]
    return "[" + ", ".join(anchors) + "]"


LISTS = levels("[x, x, x, x, x, x, x, x, x, x]", "[*]")
MERGES = levels("{k: v}", "{<<: [*]}")
AGENT = {"name": "bomb", "description": "d", "command": "[python, main.py]"}
BOMBS = {
    "agent.yaml, where a text is wanted": AGENT | {"description": LISTS},
    "agent.yaml, in a list of texts": AGENT | {"command": LISTS},
    "agent.yaml, the last one first": AGENT | {"pass_environment": LISTS, "command": f"[{LAST}]"},
    "agent.yaml, in a mapping": AGENT | {"environment": f"{{A: {LISTS}}}"},
    "agent.yaml, merged mappings": AGENT | {"environment": MERGES},
    "agent.yaml, a list that holds itself": AGENT | {"command": "&a [*a]"},
    "suite.yaml, where a text is wanted": {"name": "s", "version": "1", "benchmarks": LISTS},
    "suite.yaml, as the protocol": {"name": "s", "version": "1", "protocol": f"{{a: {LISTS}, b: {LAST}}}"},
}
READ = """
import json, sys
from pathlib import Path
from agent2.arena.agents import load_agent
from agent2.contract.suite_files import load_suite
from agent2.errors import ConfigError
folder = Path(sys.argv[1])
try:
    load_agent(str(folder)) if (folder / "agent.yaml").exists() else load_suite(str(folder / "suite.yaml"))
    print("taken")
except ConfigError as error:
    print("refused in", len(str(error)), "characters")
"""


def attempt(scene: Scene) -> Outcome:
    outcomes = {}
    for number, (kind, keys) in enumerate(BOMBS.items()):
        folder = scene.root / f"aliases-{number}"
        folder.mkdir(exist_ok=True)
        (folder / kind.partition(",")[0]).write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
        outcomes[kind] = in_time(READ, folder, seconds=200, memory_gib=3)
    wrong = {kind: text for kind, text in outcomes.items() if not text.startswith("refused in")}
    return Outcome(bool(wrong), f"{wrong or f'{len(outcomes)} texts refused'}"[:200])


def control(scene: Scene) -> Outcome:
    """Readers that show the value that they do not take."""
    outcome = in_time(f"import yaml; print(len(repr(yaml.safe_load({LISTS!r}))))", seconds=30, memory_gib=1)
    size = len(json.dumps(LISTS))
    return Outcome(
        outcome.startswith(("breaks", "hangs")) and bool(yaml.__version__), f"{size} bytes: showing it {outcome}"
    )
