"""Post-trains the base model by imitating the answers of the train rows, and submits it once.

An ordinary program: it knows the assignment from its environment and the grader by HTTP, and nothing else.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import datasets
import httpx
from transformers.utils import logging as transformers_logging

from agent2.benchmarks.arithmetic.rewards import verify
from agent2.records import SamplingSettings
from agent2.training.chat_model import AnswerTask, ChatModel
from agent2.training.checkpoints import use_threads
from agent2.training.logs import LogLine
from agent2.training.reference import evaluate_model
from agent2.training.sft import SftSettings, train_sft

SAMPLING = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=12)
SETTINGS = SftSettings(seed=int(os.environ.get("AGENT2_SEED", "0")))


def main() -> None:
    """Plan, measure, train, measure again, submit."""
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    use_threads()
    base, data, output = (Path(os.environ[name]) for name in ("MODEL_PATH", "DATA_PATH", "OUTPUT_DIR"))
    output.mkdir(parents=True, exist_ok=True)
    train, dev = read_rows(data / "train.jsonl"), read_rows(data / "dev.jsonl")
    write_design(output / "design.json", len(train), len(dev))
    before = measure(base, dev)
    print(f"base model: {100 * before:.1f}% of {len(dev)} dev items")
    report = train_sft(base, train, output / "model", SETTINGS, print_line)
    after = measure(report.checkpoint, dev)
    print(f"after {report.steps} steps in {report.seconds:.0f} s: {100 * after:.1f}% of dev items")
    submit(report.checkpoint, f"sft, {report.steps} steps, dev {100 * after:.1f}%")


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of {"id", "prompt", "answer"}."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_design(path: Path, n_train: int, n_dev: int) -> None:
    """The plan, before anything is trained."""
    design = {
        "algorithm": "SFT",
        "hyperparameters": dataclasses.asdict(SETTINGS),
        "data_preprocessing": f"all {n_train} train rows as a user and an assistant message; loss on the answer only",
        "evaluation_protocol": f"exact match on {n_dev} dev items, one draw each at temperature 0.6 and top_p 0.95, "
        "before and after training",
    }
    path.write_text(json.dumps(design, indent=2), encoding="utf-8")


def measure(checkpoint: Path, dev: list[dict[str, str]]) -> float:
    """Accuracy on dev items, drawn as the assignment says that it scores."""
    task = AnswerTask("dev", dev, verify)
    return evaluate_model(ChatModel(checkpoint, SAMPLING), [task])["dev"]


def print_line(line: LogLine) -> None:
    """One line of the training log."""
    print(f"step {line['step']}: loss {line['loss']:.3f}")


def submit(checkpoint: Path, note: str) -> dict[str, Any]:
    """Hand a checkpoint in and say what came of it. Ends the program if it gets no score."""
    response = httpx.post(
        f"{os.environ['GRADING_SERVER_URL']}/submit",
        json={"model_path": str(checkpoint), "note": note},
        timeout=None,
    )
    answer: dict[str, Any] = response.json()
    if response.is_error or answer.get("score") is None:
        raise SystemExit(f"submission of {checkpoint} has no score: {answer}")
    print(f"submission {answer['submission_id']}: {answer['score']:.1f} (base model {answer['baseline_score']:.1f})")
    return answer


if __name__ == "__main__":
    main()
