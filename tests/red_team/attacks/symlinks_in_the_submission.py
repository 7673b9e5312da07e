"""Submit links to files of the host, so that the grader copies or quotes what the sandbox cannot see."""

import json
import os

from agent2 import installation
from red_team.frame import Outcome
from red_team.naive import naive_copy
from red_team.scene import Scene

AIM = "the secret, quoted in an error message or kept in a snapshot"
DEFENCE = "folders are walked by descriptor, links are never followed"


def attempt(scene: Scene) -> Outcome:
    statuses = []
    for name in ("config.json", "tokenizer.json", "generation_config.json", "model.safetensors"):
        folder = scene.copy_of_base("linked")
        (folder / name).unlink(missing_ok=True)
        os.symlink(installation.home() / "secret", folder / name)
        status, answer = scene.submit("output/linked")
        snapshots = b"".join(p.read_bytes() for p in scene.paths.root.glob("submissions/*/snapshot/*") if p.is_file())
        if scene.secret in snapshots or scene.loot(json.dumps(answer)):
            return Outcome(True, f"{name}: the secret was taken in")
        if "symbolic link" not in str(answer.get("error")):
            return Outcome(True, f"{name}: not refused as a link: {answer.get('error')}")
        statuses.append(status)
    os.symlink(installation.home(), scene.paths.workspace / "output" / "home")
    status, answer = scene.submit("output/home")
    (scene.paths.workspace / "output" / "home").unlink()
    if "symbolic link" not in str(answer.get("error")):
        return Outcome(True, f"the folder: not refused as a link: {answer.get('error')}")
    statuses.append(status)
    return Outcome(False, f"answers {statuses}, no copy")


def control(scene: Scene) -> Outcome:
    folder = scene.copy_of_base("linked")
    (folder / "config.json").unlink()
    os.symlink(installation.home() / "secret", folder / "config.json")
    copy = naive_copy(folder, scene.root / "naive")
    return Outcome((copy / "config.json").read_bytes() == scene.secret, "the secret is in the copy")
