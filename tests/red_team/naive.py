"""The grader that one would write in an afternoon: what the controls of attacks on submissions fall for.

Modelled on graders in the wild: files are looked at by path, whatever they are; the model is loaded as its folder
says, with its own tokenizer, template and code; the file's bytes are its identity.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from safetensors.numpy import load_file, save_file

from agent2.sandbox.backends import free_port
from grading_builders import llama_tensors


def naive_copy(folder: Path, target: Path) -> Path:
    """A snapshot that follows links."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target, symlinks=False))


def naive_digest(folder: Path) -> str:
    """Names a model by the bytes of its files."""
    files = sorted(path for path in folder.iterdir() if path.suffix == ".safetensors")
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


def in_time(program: str, *arguments: object, seconds: float = 300.0, memory_gib: float = 4.0) -> str:
    """Run a Python program of the naive grader; its last line, or why it has none.

    It is stopped after so many seconds and gets so much address space, so that a control harms nobody.
    """
    prelude = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({int(memory_gib * 2**30)},) * 2)\n"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", prelude + program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        return f"breaks: {(done.stderr.strip().splitlines() or ['no message'])[-1][:120]}"
    return lines[-1] if lines else ""


def change_weights(folder: Path, seed: int = 7) -> None:
    """Other numbers of the same shapes in the folder's weights, written in place."""
    weights = folder / "model.safetensors"
    hidden = load_file(weights)["model.norm.weight"].size
    save_file(llama_tensors(seed, hidden), weights, {"format": "pt"})


def edit_config(folder: Path, name: str = "config.json", **changes: object) -> None:
    """Change entries of a JSON file of the folder."""
    path = folder / name
    record = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(record | changes))


def weights_of(folder: Path) -> dict[str, object]:
    """Name -> array."""
    return dict(load_file(folder / "model.safetensors"))


@contextmanager
def naive_api() -> Iterator[tuple[httpx.Client, int]]:
    """A client of the naive grading API, and the number of its process."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("naive_api.py")), str(port)])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            ends_at = time.monotonic() + 120
            while time.monotonic() < ends_at:
                with suppress(httpx.ConnectError):
                    client.get("/")
                    break
                time.sleep(0.05)
            yield client, process.pid
    finally:
        process.kill()
        process.wait()
