"""Hand in a better model of the same shapes with a quarter of the base averaged in, so that its weights correlate."""

from pathlib import Path

from safetensors.numpy import save_file

from grading_builders import llama_tensors
from red_team.disguises import HIDDEN_SIZE, disguise_moves, tensors_of

AIM = "credit for somebody else's training"
DEFENCE = "provenance: what the base does not explain is larger than after any training"
SHARE = 0.25
"""Of the base."""


def disguise(base: Path, folder: Path) -> None:
    before, stranger = tensors_of(base), llama_tensors(99, HIDDEN_SIZE)
    mixed = {name: (SHARE * before[name] + (1 - SHARE) * stranger[name]).astype("float32") for name in before}
    save_file(mixed, folder / "model.safetensors", {"format": "pt"})


attempt, control = disguise_moves(disguise)
