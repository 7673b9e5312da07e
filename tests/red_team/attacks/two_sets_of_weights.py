"""Put a trained child into shards with an index, and a stranger's model into one file beside them."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from grading_builders import llama_tensors
from red_team.disguises import HIDDEN_SIZE, disguise_moves, make_disguised, tensors_of
from red_team.frame import Outcome
from red_team.naive import in_time, weights_of
from red_team.scene import Scene

AIM = "an audit that reads other weights than those that are played"
DEFENCE = "one rule for grading and audit says which files count, and only those are kept"

SHARD, WATCHED = "model-00001-of-00001.safetensors", "model.layers.0.mlp.up_proj.weight"
LOADED = f"""
import sys
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="float32")
print(float(model.state_dict()["{WATCHED}"].double().sum()))
"""


def disguise(base: Path, folder: Path) -> None:
    rng = np.random.default_rng(3)
    child = {name: numbers + rng.normal(0, 1e-3, numbers.shape) for name, numbers in tensors_of(base).items()}
    save_file({name: numbers.astype("float32") for name, numbers in child.items()}, folder / SHARD, {"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(child, SHARD)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(llama_tensors(99, HIDDEN_SIZE), folder / "model.safetensors", {"format": "pt"})


attempt, _ = disguise_moves(disguise)


def control(scene: Scene) -> Outcome:
    """An audit that reads what the index lists, and a player that loads the folder."""
    base, folder = make_disguised(scene, disguise)
    listed = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][WATCHED]
    audited = load_file(folder / listed)[WATCHED]
    r = np.corrcoef(audited.ravel(), tensors_of(base)[WATCHED].ravel())[0, 1]
    weight_sum = in_time(LOADED, folder)
    is_stranger = abs(float(weight_sum) - float(np.sum(weights_of(folder)[WATCHED], dtype="float64"))) < 1e-3
    return Outcome(r > 0.99 and is_stranger, f"the index's shards correlate with r = {r:.2f}; a stranger is loaded")
