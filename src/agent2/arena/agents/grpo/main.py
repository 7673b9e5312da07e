"""Post-trains the base model by reinforcement learning on the train prompts; submits halfway and at the end.

An ordinary program: it knows the assignment from its environment and the grader by HTTP, and nothing else.
The answers of the train rows are used by the verifier only; the model is never shown one.
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
from agent2.training.grpo import GrpoSettings, train_grpo
from agent2.training.logs import LogLine
from agent2.training.reference import evaluate_model

SAMPLING = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=12)
STEPS = 100
SETTINGS = GrpoSettings(steps=STEPS, checkpoint_steps=(STEPS // 2,), seed=int(os.environ.get("AGENT2_SEED", "0")))


def main() -> None:
    """Plan, measure, train and submit."""
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    use_threads()
    base, data, output = (Path(os.environ[name]) for name in ("MODEL_PATH", "DATA_PATH", "OUTPUT_DIR"))
    output.mkdir(parents=True, exist_ok=True)
    train, dev = read_rows(data / "train.jsonl"), read_rows(data / "dev.jsonl")
    write_design(output / "design.json", len(train), len(dev))
    print(f"base model: {100 * measure(base, dev):.1f}% of {len(dev)} dev items")

    def check_and_submit(step: int, checkpoint: Path) -> None:
        accuracy = measure(checkpoint, dev)
        print(f"after {step} steps: {100 * accuracy:.1f}% of dev items")
        submit(checkpoint, f"grpo, {step} steps, dev {100 * accuracy:.1f}%")

    report = train_grpo(base, train, reward, output / "model", SETTINGS, print_line, check_and_submit)
    check_and_submit(report.steps, report.checkpoint)
    print(f"trained {report.steps} steps in {report.seconds:.0f} s, halfway submission included")


def reward(completions: list[str], answers: list[str]) -> list[float]:
    """1 for the exact value, 0 for anything else."""
    return [verify(completion, answer) for completion, answer in zip(completions, answers, strict=True)]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Rows of {"id", "prompt", "answer"}."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_design(path: Path, n_train: int, n_dev: int) -> None:
    """The plan, before anything is trained."""
    design = {
        "algorithm": "GRPO",
        "hyperparameters": dataclasses.asdict(SETTINGS),
        "data_preprocessing": f"prompts of all {n_train} train rows as one user message; answers for the reward only",
        "evaluation_protocol": f"exact match on {n_dev} dev items, one draw each at temperature 0.6 and top_p 0.95, "
        "before training and before each submission",
    }
    path.write_text(json.dumps(design, indent=2), encoding="utf-8")


def measure(checkpoint: Path, dev: list[dict[str, str]]) -> float:
    """Accuracy on dev items, drawn as the assignment says that it scores."""
    task = AnswerTask("dev", dev, verify)
    return evaluate_model(ChatModel(checkpoint, SAMPLING), [task])["dev"]


def print_line(line: LogLine) -> None:
    """One line of the training log."""
    print(f"step {line['step']}: reward {line['reward']:.3f}, entropy {line['entropy']:.3f}")


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
