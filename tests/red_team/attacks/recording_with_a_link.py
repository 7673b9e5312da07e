"""Put a link to a secret of the reader's host among the agent's files of a recording: followed, it is handed inside."""

import shutil

from agent2 import installation
from agent2.arena.plan import new_trial
from agent2.errors import ConfigError
from red_team.frame import Outcome
from red_team.scene import Scene
from trial_builders import write_agent

AIM = "the secret"
DEFENCE = "a folder of an agent holds plain files only"


def _agent(scene: Scene):
    shutil.rmtree(scene.root / "linked", ignore_errors=True)
    agent = write_agent(scene.root / "linked", "print(1)")
    (agent / "notes").symlink_to(installation.home() / "secret")
    return agent


def attempt(scene: Scene) -> Outcome:
    try:
        root = new_trial(str(scene.root / "task" / "task.yaml"), str(_agent(scene)), 0, scene.root / "linked-trials")
    except ConfigError as error:
        return Outcome(False, f"refused: {str(error)[-80:]}")
    got = (root / "agent" / "notes").read_bytes()
    return Outcome(scene.secret in got or scene.secret.hex().encode() in got, "the trial holds what the link led to")


def control(scene: Scene) -> Outcome:
    """A copy that follows links."""
    shutil.rmtree(scene.root / "copied", ignore_errors=True)
    copy = shutil.copytree(_agent(scene), scene.root / "copied")
    return Outcome(bool((copy / "notes").read_bytes()), "a copy holds what the link led to")
