"""Base models whose weights the package ships (`agent2.models.tiny` made and packed them), unpacked without torch.

The weights are stored in half precision and checked against `made.json`; unpacked, they are in single precision and
the same on every machine.
"""

import hashlib
import json
import shutil
from importlib import resources
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.tiny_recipe import BaseModel, OnProgress
from agent2.records import JsonValue

WEIGHTS = "model.safetensors"
MADE = "made.json"


def unpack_shipped(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Build a base whose weights come with the package: as `unpack` of that folder."""
    package, _, folder = entry.shipped.partition(":")
    with resources.as_file(resources.files(package) / folder) as packaged:
        return unpack(packaged, entry, out_dir, on_progress)


def unpack(packaged: Path, entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Write the model of a folder that `pack` wrote to out_dir; returns the manifest's fields.

    Raises ConfigError if the weights are not those of `made.json`, or were made by another recipe.
    """
    on_progress("unpacking the weights that the package ships")
    record = json.loads((packaged / MADE).read_text(encoding="utf-8"))
    weights_sha256 = hashlib.sha256((packaged / WEIGHTS).read_bytes()).hexdigest()
    if weights_sha256 != record["weights_sha256"]:
        raise ConfigError(
            f"{packaged / WEIGHTS}: its digest is {weights_sha256[:12]}, {MADE} says {record['weights_sha256'][:12]}; "
            "install the package again"
        )
    if record["recipe_digest"] != entry.digest:
        raise ConfigError(
            f"{packaged}: made by recipe {record['recipe_digest'][:12]}, the table says {entry.digest[:12]}; "
            f"make it again with: python benchmarks/tiny_bases.py make {packaged.name}"
        )
    for file in packaged.iterdir():
        if file.name not in {WEIGHTS, MADE}:
            shutil.copyfile(file, out_dir / file.name)
    tensors = {name: tensor.astype(np.float32) for name, tensor in load_file(packaged / WEIGHTS).items()}
    save_file(tensors, out_dir / WEIGHTS, metadata={"format": "pt"})
    return {"weights_digest": inspect_checkpoint(out_dir).weights_digest, "packaged": True, **record}
