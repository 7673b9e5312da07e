"""Moves of attacks that hand in weights which nobody trained: disguised, and looked at by the audit of a trial."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from agent2.errors import CheckpointError
from agent2.integrity import Effect
from agent2.integrity.provenance import provenance_check
from agent2.models.adapters import as_played
from agent2.models.checkpoint import inspect_checkpoint
from grading_builders import llama_tensors, write_checkpoint
from red_team.frame import Move, Outcome
from red_team.naive import naive_digest, weights_of
from red_team.scene import Scene

Disguise = Callable[[Path, Path], None]
"""Makes in a folder (the second, empty) what is handed in, from the base model (the first)."""
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
HIDDEN_SIZE = 64
"""Large enough for matrices to say something about kinship."""


def disguise_moves(disguise: Disguise) -> tuple[Move, Move]:
    """`attempt`: the audit looks at the model that is played. `control`: a grader that compares bytes of files.

    The attacker has what he wants when weights that he did not train count as a trained model.
    """

    def attempt(scene: Scene) -> Outcome:
        base, folder = make_disguised(scene, disguise)
        inspected = inspect_checkpoint(base)
        merged = scene.fresh_folder("merged")
        try:
            played_info = as_played(inspect_checkpoint(folder), inspected, merged)
        except CheckpointError as error:
            return Outcome(False, f"refused: {error}")
        check = provenance_check(played_info, inspected, "submission 1")
        detail = "; ".join(f"{finding.effect.value}: {finding.words}" for finding in check.findings)
        is_void = any(finding.effect is Effect.VOID for finding in check.findings)
        return Outcome(True, detail or check.looked_at, is_detected=is_void)

    def control(scene: Scene) -> Outcome:
        base, folder = make_disguised(scene, disguise)
        is_new = naive_digest(folder) != naive_digest(base)
        return Outcome(is_new, "its files are not the base's, so it counts as trained")

    return attempt, control


def tensors_of(base: Path) -> dict[str, np.ndarray]:
    """Name -> array, to be changed."""
    return {name: np.array(tensor) for name, tensor in weights_of(base).items()}


def write_foreign_adapter(base: Path, folder: Path, scale: float = 1.0, **config: object) -> None:
    """An adapter of full rank that turns every matrix of the layers into a stranger's, if it is scaled by `scale`."""
    before, after = tensors_of(base), llama_tensors(99, HIDDEN_SIZE)
    tensors = {}
    for name in before:
        if name.split(".")[-2] not in MODULES:
            continue
        change = (after[name] - before[name]) / scale  # outputs x inputs, as B x A with A the identity, padded
        prefix, inputs = f"base_model.model.{name.removesuffix('.weight')}", change.shape[1]
        tensors[f"{prefix}.lora_A.weight"] = np.eye(HIDDEN_SIZE, inputs, dtype=np.float32)
        tensors[f"{prefix}.lora_B.weight"] = np.pad(change, ((0, 0), (0, HIDDEN_SIZE - inputs))).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": HIDDEN_SIZE,
        "lora_alpha": HIDDEN_SIZE,
        "target_modules": list(MODULES),
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    (folder / "config.json").unlink()


def make_disguised(scene: Scene, disguise: Disguise) -> tuple[Path, Path]:
    """The base model and the folder that is handed in."""
    base = scene.root / "larger-base"
    if not base.exists():
        write_checkpoint(base, seed=0, hidden_size=HIDDEN_SIZE, head_dim=32)
    folder = scene.fresh_folder("disguised")
    for path in base.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    disguise(base, folder)
    return base, folder
