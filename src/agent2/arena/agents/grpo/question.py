"""Post-trains the base model by reinforcement learning on the train prompts.

Submits halfway, by steps or by time, and at the end. The answers of the train rows are used by the benchmark's scorer
only; the model is never shown one.
"""

import dataclasses
import os
import time
from pathlib import Path

from agent2.training.grpo import GrpoHooks, GrpoSettings, train_grpo
from agent2.training.learned_judge import with_learned_judge
from agent2.training.participant import Participant, print_progress, run_recipe
from agent2.training.visible import print_log_line, read_visible

SEED = int(os.environ.get("AGENT2_SEED", "0"))
SETTINGS = GrpoSettings(steps=100, seed=SEED)
SETTINGS_OF_LARGE = GrpoSettings(
    steps=40,
    prompts_per_step=4,
    learning_rate=1e-3,
    log_every_steps=1,
    rows_per_pass=4,
    lora_rank=16,
    seed=SEED,
)
"""For base models of more than 20 million weights: smaller steps, an adapter instead of the weights, few rows at once.

Sixteen rows at once needed more than the 8 GiB of a sandbox: the scores of 49,152 tokens are kept for every position.
"""


def run(me: Participant) -> None:
    """Plan, measure, train and submit."""
    task = read_visible(me)
    settings = task.grpo_settings(SETTINGS_OF_LARGE if task.is_large else SETTINGS, time.monotonic())
    half_time = None if settings.max_seconds is None else settings.max_seconds / 2
    settings = dataclasses.replace(settings, checkpoint_steps=(settings.steps // 2,), checkpoint_s=half_time)
    me.write_design(
        {
            "algorithm": "GRPO",
            "hyperparameters": dataclasses.asdict(settings),
            "data_preprocessing": f"prompts of all {len(task.train)} train rows; answers for the reward only",
            "evaluation_protocol": task.describe_evaluation(["before training", "before each submission"]),
        }
    )
    task = with_learned_judge(task, me.base)
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")

    def check_and_submit(step: int, checkpoint: Path) -> None:
        task.check_and_submit(checkpoint, f"grpo, {step} steps")

    hooks = GrpoHooks(print_log_line, check_and_submit)
    report = train_grpo(me.base, task.questions(), task.reward, me.output / "model", settings, hooks)
    check_and_submit(report.steps, report.checkpoint)
    print_progress(f"trained {report.steps} steps in {report.seconds:.0f} s, halfway submission included")


if __name__ == "__main__":
    run_recipe(run)
