"""Halves the learning rate of the broken pipeline, whatever its symptom, and names it as the cause."""

import json
import os
from pathlib import Path


def main() -> None:
    """Edit the configuration and write the diagnosis."""
    config = Path(os.environ["WORKSPACE"]) / "code" / "pipeline" / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    settings["learning_rate"] /= 2
    config.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    diagnosis = {"cause": "learning-rate", "explanation": "training looks unstable; the learning rate is too high"}
    (Path(os.environ["OUTPUT_DIR"]) / "diagnosis.json").write_text(json.dumps(diagnosis), encoding="utf-8")
    print("debug-naive: halved the learning rate")


if __name__ == "__main__":
    main()
