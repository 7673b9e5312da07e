"""Weights that a package ships: written once in half precision with a record of their making, unpacked everywhere.

`pack` writes the folder (weights under 2 MB for the tiny models, and `made.json` with the digests of recipe, corpus and
weights); `unpack` checks the weights against `made.json` and writes them out in single precision.

Promises: `unpack` gives the same weights on every machine. Does NOT promise that training again gives the shipped
weights on another machine or version of torch (float order differs).
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.tiny_recipe import BaseModel, OnProgress
from agent2.records import JsonValue

WEIGHTS = "model.safetensors"
MADE = "made.json"


def unpack(packaged: Path, entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Write the model of a folder that `pack` wrote to out_dir; returns what the manifest says of it.

    Raises ConfigError if the weights are not those of `made.json`, or were made by another recipe.
    """
    on_progress("unpacking the weights that the package ships")
    made = json.loads((packaged / MADE).read_text(encoding="utf-8"))
    found = hashlib.sha256((packaged / WEIGHTS).read_bytes()).hexdigest()
    if found != made["weights_sha256"]:
        raise ConfigError(
            f"{packaged / WEIGHTS}: its digest is {found[:12]}, {MADE} says {made['weights_sha256'][:12]}; "
            "install the package again"
        )
    if made["recipe_digest"] != entry.digest:
        raise ConfigError(
            f"{packaged}: made by recipe {made['recipe_digest'][:12]}, the table says {entry.digest[:12]}; "
            f"make it again with benchmarks/{packaged.name.replace('-', '_')}.py"
        )
    for file in packaged.iterdir():
        if file.name not in {WEIGHTS, MADE}:
            shutil.copyfile(file, out_dir / file.name)
    tensors = {name: tensor.float() for name, tensor in load_file(packaged / WEIGHTS).items()}
    save_file(tensors, out_dir / WEIGHTS, metadata={"format": "pt"})
    return {"weights_digest": inspect_checkpoint(out_dir).weights_digest, "packaged": True, **made}


def pack(trained: Path, folder: Path, made: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Write what the package ships: the trained folder with weights in half precision, and `made.json`.

    made: what `made.json` says beside the weights' digest and the versions; returns all of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in trained.iterdir():
        if file.name != WEIGHTS:
            shutil.copyfile(file, folder / file.name)
    halves = {name: tensor.half() for name, tensor in load_file(trained / WEIGHTS).items()}
    save_file(halves, folder / WEIGHTS, metadata={"format": "pt"})
    told: dict[str, JsonValue] = {
        **made,
        "weights_sha256": hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    (folder / MADE).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return told
