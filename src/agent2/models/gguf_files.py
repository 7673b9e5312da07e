"""GGUF files as checkpoints: played as they are, in 4 bits or whatever their weights have, by llama.cpp's engine.

A file brings weights, tokenizer and chat template. It is described by a program in the engine's own environment, which
reads no weight; its precision is that of the weights themselves, not the one that its name or its header claims.

llama.cpp reads a file in C++, unconfined: play files of sources that you trust.
"""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agent2.engines.catalogue import InferenceEngine
from agent2.engines.environments import InstalledEnvironment
from agent2.errors import CheckpointError, MachineError, first_line_of
from agent2.foreign_files import open_regular, state_of
from agent2.models.checkpoint import template_digest

SUFFIX = ".gguf"
MAGIC = b"GGUF"
DESCRIBE_S = 600.0
"""A vocabulary of a quarter of a million tokens takes seconds to read, and minutes on a busy machine."""
ERROR_CHARS = 300


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """What is known of a file before it is played."""

    path: Path
    content_digest: str
    """SHA-256 of the whole file."""
    chat_template_digest: str
    context_length: int | None
    """Longest that it says it was trained for; None: it does not say."""
    weights: dict[str, int]
    """Type, as llama.cpp spells it, -> number of weights, the most frequent first."""

    @property
    def precision(self) -> str:
        """The type of most weights."""
        return next(iter(self.weights))

    @property
    def note(self) -> str:
        """In which types the weights are, one sentence."""
        total = sum(self.weights.values())
        shares = [f"{name} {100 * count / total:.0f}%" for name, count in self.weights.items() if count / total > 0.005]
        return f"{self.path.name}: weights as the file stores them ({', '.join(shares)}), with its own tokenizer"


def is_gguf(path: Path) -> bool:
    """Whether a path is that of a GGUF file, by its ending."""
    return path.suffix == SUFFIX and path.is_file()


def inspect_gguf(path: Path, engine: InferenceEngine, ready: InstalledEnvironment) -> GgufInfo:
    """Describe a file. engine: reads it, from the environment `ready`.

    Raises CheckpointError for what is no whole GGUF file, one of several parts, or one that changes meanwhile.
    """
    digest, state = _digest_of(path)
    command = [str(ready.python), *engine.module, "describe", str(path.resolve())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DESCRIBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"engine {engine.name}: {path.name} cannot be described ({first_line_of(error)})") from error
    try:
        described = json.loads(done.stdout) if done.returncode == 0 else {}
        template, context = described.get("chat_template"), described.get("context_length")
        weights = {str(name): int(count) for name, count in described["weights"].items() if int(count) > 0}
    except (ValueError, LookupError, TypeError, AttributeError):
        weights = {}
    if not weights:
        lines = done.stderr.strip().splitlines() or ["it names no weights"]
        raise CheckpointError(f"{path}: {lines[-1].removeprefix('error: ')[:ERROR_CHARS]}; fetch the file again")
    try:
        is_same = state_of(path) == state
    except OSError:
        is_same = False
    if not is_same:  # what it says of itself may be another file's
        raise CheckpointError(f"{path}: changed while it was read; start again when it is written")
    return GgufInfo(
        path=path,
        content_digest=digest,
        chat_template_digest=template_digest(template if isinstance(template, str) else None),
        context_length=context if isinstance(context, int) and context > 0 else None,
        weights=weights,
    )


def _digest_of(path: Path) -> tuple[str, tuple[int, ...]]:
    """SHA-256 of a file that begins as GGUF files do, and its state before. Raises CheckpointError."""
    try:
        state = state_of(path)
        with open_regular(path, follow=True) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise CheckpointError(f"{path}: is not a GGUF file; its first four bytes are others")
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest(), state
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); check the path") from error
