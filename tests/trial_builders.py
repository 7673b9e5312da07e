"""Small trials for tests: a random base model, a task with few items, and agents written on the spot."""

import textwrap
from pathlib import Path

import yaml

from agent2.arena.tasks import load_task
from grading_builders import write_checkpoint

SUBMIT_COPY = """
import os, shutil, httpx
shutil.copytree(os.environ["MODEL_PATH"], os.environ["OUTPUT_DIR"] + "/model")
body = {"model_path": "output/model", "note": "copy"}
print(httpx.post(os.environ["GRADING_SERVER_URL"] + "/submit", json=body, timeout=None).json())
"""
"""An agent's program that submits the base model and waits for its score."""
SUBMIT_COPY_AND_GO_ON = SUBMIT_COPY.replace('"note": "copy"', '"note": "copy", "wait": False')
"""The same without waiting."""

SUBMIT_NOISY = """
import os, shutil, httpx
import numpy as np
from safetensors.numpy import load_file, save_file
made = os.environ["OUTPUT_DIR"] + "/model"
shutil.copytree(os.environ["MODEL_PATH"], made)
weights = made + "/model.safetensors"
os.chmod(weights, 0o644)
rng = np.random.default_rng(1)
tensors = load_file(weights)
noisy = {name: (t + 0.02 * rng.standard_normal(t.shape)).astype(t.dtype) for name, t in tensors.items()}
save_file(noisy, weights, {"format": "pt"})
body = {"model_path": made, "note": ""}
print(httpx.post(os.environ["GRADING_SERVER_URL"] + "/submit", json=body, timeout=None).json())
"""
"""An agent's program that submits the base model with noise on its weights."""


def write_task(folder: Path, base_config: dict | None = None, **changes) -> Path:
    """The arithmetic task on a random base model, with few items."""
    base = write_checkpoint(folder / "base", **(base_config or {}))
    (base / "model.safetensors").chmod(0o644)  # saved as 0600; the sandboxed agent is another user
    record = load_task("arithmetic").model_dump(mode="json") | {
        "base_model": str(base),
        "n_items": {"train": 30, "dev": 10, "test_public": 20, "test_private": 20},
        "budget": {"wall_clock_s": 600, "submissions": 5},
    }
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(record | changes))
    return path


def write_agent(folder: Path, program: str, **files: str) -> Path:
    """An agent folder with one program; further files by name (dots as double underscores)."""
    folder.mkdir(parents=True)
    spec = {"name": folder.name, "description": "a test", "command": ["python", "/agent/main.py"]}
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec))
    (folder / "main.py").write_text(textwrap.dedent(program))
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def quiet(message: str, done: int | None = None, total: int | None = None) -> None:
    """Progress that nobody watches."""
