"""Submit a second name of a file, and change it afterwards through the first one."""

import os
import shutil

from agent2.models.checkpoint import inspect_checkpoint
from red_team.frame import Outcome
from red_team.naive import change_weights
from red_team.scene import Scene

AIM = "a score for other weights than those that were handed in"
DEFENCE = "the snapshot copies bytes, never links"


def attempt(scene: Scene) -> Outcome:
    folder = _with_second_name(scene)
    handed_in = inspect_checkpoint(folder).weights_digest
    _, answer = scene.submit("output/hard", wait=False)
    _overwrite(scene)
    return Outcome(scene.verdict(answer["submission_id"]).weights_digest != handed_in, "the copy did not change")


def control(scene: Scene) -> Outcome:
    """A snapshot by hard links, which costs no space."""
    folder = _with_second_name(scene)
    snapshot = scene.root / "linked"
    shutil.rmtree(snapshot, ignore_errors=True)
    shutil.copytree(folder, snapshot, copy_function=os.link)
    before = inspect_checkpoint(snapshot).weights_digest
    _overwrite(scene)
    return Outcome(inspect_checkpoint(snapshot).weights_digest != before, "the snapshot changed")


def _with_second_name(scene: Scene) -> object:
    folder = scene.copy_of_base("hard")
    change_weights(folder, seed=3)
    first = scene.paths.workspace / "first-name.safetensors"
    first.unlink(missing_ok=True)
    os.link(folder / "model.safetensors", first)
    return folder


def _overwrite(scene: Scene) -> None:
    """In place, so that both names change."""
    changed = scene.copy_of_base("other")
    change_weights(changed, seed=4)
    with (scene.paths.workspace / "first-name.safetensors").open("r+b") as file:
        file.write((changed / "model.safetensors").read_bytes())
