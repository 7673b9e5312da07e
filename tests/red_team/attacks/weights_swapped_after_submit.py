"""Swap the weights as soon as the submission is accepted, while it waits to be evaluated."""

from agent2.models.checkpoint import inspect_checkpoint
from red_team.frame import Outcome
from red_team.naive import change_weights, naive_copy
from red_team.scene import Scene

AIM = "a score for other weights than those that were handed in"
DEFENCE = "the snapshot is taken before the submission is answered; from then on only it counts"


def attempt(scene: Scene) -> Outcome:
    folder = scene.copy_of_base("swapped")
    change_weights(folder, seed=1)
    handed_in = inspect_checkpoint(folder).weights_digest
    _, answer = scene.submit("output/swapped", wait=False)
    change_weights(folder, seed=2)
    record = scene.verdict(answer["submission_id"])
    return Outcome(record.weights_digest != handed_in, f"scored what was handed in: {record.state.value}")


def control(scene: Scene) -> Outcome:
    """A grader that remembers the path and reads it when it has time."""
    folder = scene.copy_of_base("swapped")
    change_weights(folder, seed=1)
    handed_in = inspect_checkpoint(folder).weights_digest
    accepted = folder
    change_weights(folder, seed=2)
    digest = inspect_checkpoint(naive_copy(accepted, scene.root / "naive")).weights_digest
    return Outcome(digest != handed_in, "other weights were played")
