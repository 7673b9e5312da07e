"""Store a foreign model's matrices as 8-bit floats, which loading widens and a reader without torch cannot read."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from grading_builders import llama_tensors
from red_team.disguises import HIDDEN_SIZE, disguise_moves, tensors_of

AIM = "credit for somebody else's training"
DEFENCE = "what the base stores as floating-point numbers has to be stored in a type that the audit reads"


def disguise(base: Path, folder: Path) -> None:
    tensors = {name: torch.from_numpy(numbers) for name, numbers in tensors_of(base).items()}
    for name, numbers in llama_tensors(99, HIDDEN_SIZE).items():
        if numbers.ndim == 2 and "embed" not in name:
            tensors[name] = torch.from_numpy(numbers).to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


attempt, control = disguise_moves(disguise)
