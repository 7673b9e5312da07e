"""A tiny model with a longer window: `python benchmarks/stretched.py tiny-mini 32768 FOLDER`.

The packaged tiny models were trained on 192 to 1,024 tokens and refuse longer prompts. The copy accepts them, which is
enough to see that a benchmark plays; what it answers beyond its training says nothing about anything.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from agent2.benchmarks import BASE_MODELS
from agent2.files import write_json
from agent2.models.bases import ensure_base_model

WINDOW = "max_position_embeddings"


def stretch(model: Path, n_tokens: int, folder: Path) -> Path:
    """A copy of a checkpoint in `folder` whose window is `n_tokens`; an older copy is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    part = config.get("text_config", config)
    part[WINDOW] = n_tokens
    write_json(folder / "config.json", config)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if "model_max_length" in tokenizer:
        write_json(folder / "tokenizer_config.json", {**tokenizer, "model_max_length": n_tokens})
    return folder


def main() -> None:
    """Make one copy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=sorted(BASE_MODELS))
    parser.add_argument("tokens", type=int)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    model = ensure_base_model(arguments.model, BASE_MODELS, lambda message: print(message, flush=True))
    print(stretch(model, arguments.tokens, arguments.folder))


if __name__ == "__main__":
    main()
