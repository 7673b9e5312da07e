"""Post-trains the base model by reinforcement learning on the train prompts; submits halfway and at the end.

The answers of the train rows are used by the verifier only; the model is never shown one.
"""

import dataclasses
import os
from pathlib import Path

from agent2.benchmarks.arithmetic.rewards import verify
from agent2.training.agent_main import run_recipe
from agent2.training.grpo import GrpoHooks, GrpoSettings, train_grpo
from agent2.training.logs import LogLine
from agent2.training.participant import Participant, evaluation_words

STEPS = 100
SETTINGS = GrpoSettings(steps=STEPS, checkpoint_steps=(STEPS // 2,), seed=int(os.environ.get("AGENT2_SEED", "0")))


def run(me: Participant) -> None:
    """Plan, measure, train and submit."""
    me.write_design(
        {
            "algorithm": "GRPO",
            "hyperparameters": dataclasses.asdict(SETTINGS),
            "data_preprocessing": f"prompts of all {len(me.train)} train rows as one user message; answers for the "
            "reward only",
            "evaluation_protocol": evaluation_words(me, ["before training", "before each submission"]),
        }
    )
    print(f"base model: {100 * me.evaluate_on_dev(me.base, verify):.1f}% of {len(me.dev)} dev items")

    def check_and_submit(step: int, checkpoint: Path) -> None:
        accuracy = me.evaluate_on_dev(checkpoint, verify)
        print(f"after {step} steps: {100 * accuracy:.1f}% of dev items")
        answer = me.submit(checkpoint, f"grpo, {step} steps, dev {100 * accuracy:.1f}%")
        print(
            f"submission {answer['submission_id']}: {answer['score']:.1f} (base model {answer['baseline_score']:.1f})"
        )

    report = train_grpo(
        me.base, me.train, reward, me.output / "model", SETTINGS, GrpoHooks(print_line, check_and_submit)
    )
    check_and_submit(report.steps, report.checkpoint)
    print(f"trained {report.steps} steps in {report.seconds:.0f} s, halfway submission included")


def reward(completions: list[str], answers: list[str]) -> list[float]:
    """1 for the exact value, 0 for anything else."""
    return [verify(completion, answer) for completion, answer in zip(completions, answers, strict=True)]


def print_line(line: LogLine) -> None:
    """One line of the training log."""
    print(f"step {line['step']}: reward {line['reward']:.3f}, entropy {line['entropy']:.3f}")


if __name__ == "__main__":
    run_recipe(run)
