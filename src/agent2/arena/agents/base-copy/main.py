"""Copies the base model to the output folder and submits the copy."""

import os
import shutil
from pathlib import Path

import httpx


def main() -> None:
    """Copy and submit."""
    copy = Path(os.environ["OUTPUT_DIR"]) / "model"
    shutil.copytree(os.environ["MODEL_PATH"], copy, dirs_exist_ok=True)
    response = httpx.post(
        f"{os.environ['GRADING_SERVER_URL']}/submit",
        json={"model_path": str(copy), "note": "the base model, unchanged"},
        timeout=None,
    )
    answer = response.json()
    if response.is_error or answer.get("score") is None:
        raise SystemExit(f"submission of {copy} has no score: {answer}")
    print(f"submission {answer['submission_id']}: {answer['score']:.1f} (base model {answer['baseline_score']:.1f})")


if __name__ == "__main__":
    main()
