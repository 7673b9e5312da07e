"""Small things for tests of the integrity room: checkpoints by tensors, items, units, rollouts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from agent2.integrity.texts import TextUnit
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint
from agent2.records import Item, Message, Rollout, RolloutStatus, Split, StopReason, Turn, Usage
from grading_builders import llama_tensors, write_checkpoint

HIDDEN = 64
"""Width at which every matrix is large enough to be judged."""

Tensors = dict[str, torch.Tensor]


def base_tensors(seed: int = 0) -> Tensors:
    """Random weights of the small model."""
    return {name: torch.from_numpy(numbers) for name, numbers in llama_tensors(seed, HIDDEN).items()}


def make_checkpoint(folder: Path, tensors: Mapping[str, torch.Tensor] | None = None, seed: int = 0) -> CheckpointInfo:
    """A whole model with the given tensors, or random ones by seed."""
    write_checkpoint(folder, seed, hidden_size=HIDDEN)
    if tensors is not None:
        (folder / "model.safetensors").unlink()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return inspect_checkpoint(folder)


def make_items(texts: Sequence[str], name: str = "hidden", answers: Sequence[str] = ()) -> list[Item]:
    """Items with ids `name-0`, `name-1`, ..."""
    return [
        Item(f"{name}-{index}", Split.TEST_PRIVATE, text, answers[index] if answers else None)
        for index, text in enumerate(texts)
    ]


def make_units(texts: Sequence[str], file: str = "code/train.jsonl") -> list[TextUnit]:
    """One unit a text, as rows of a file."""
    return [TextUnit(f"{file}:{number}", text) for number, text in enumerate(texts, start=1)]


def make_rollout(item: str, answer: str = "", turns: Sequence[tuple[str, str | None]] = ()) -> Rollout:
    """A finished rollout; turns as (action, observation)."""
    return Rollout(
        item_id=item,
        attempt=0,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=[Message("user", "?")],
        turns=[Turn(action, observation, StopReason.END, 1, 1) for action, observation in turns],
        answer=answer,
        state={},
        usage=Usage(),
    )
