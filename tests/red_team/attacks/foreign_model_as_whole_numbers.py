"""Store a foreign model's matrices as int64 (units scaled up, norms scaled down), which loading turns into floats."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from grading_builders import llama_tensors
from red_team.disguises import HIDDEN_SIZE, disguise_moves, tensors_of

AIM = "credit for somebody else's training"
DEFENCE = "what the base stores as floating-point numbers has to be stored so"


def disguise(base: Path, folder: Path) -> None:
    tensors, foreign = tensors_of(base), llama_tensors(99, HIDDEN_SIZE)
    for name, numbers in foreign.items():
        if numbers.ndim == 2 and "embed" not in name:
            tensors[name] = np.round(50 * numbers).astype(np.int64)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


attempt, control = disguise_moves(disguise)
