"""Post-trains the base model by reinforcement learning with a leave-one-out baseline (RLOO), and submits it.

Each answer, or episode, is compared with the mean of the others to the same train item.
"""

import dataclasses
import os
import time
from functools import partial

from agent2.monitor.signals import Danger
from agent2.monitor.watch import stop_at
from agent2.training.grpo import GrpoHooks, GrpoSettings, train_rloo
from agent2.training.learned_judge import with_learned_judge
from agent2.training.online_grpo import OnlineGrpoSettings
from agent2.training.participant import Participant, print_progress, run_recipe
from agent2.training.visible import OnlineStage, learn_in_stages, print_log_line, read_visible, with_staleness

SEED = int(os.environ.get("AGENT2_SEED", "0"))
QUESTIONS = GrpoSettings(steps=100, seed=SEED)
EPISODES = OnlineGrpoSettings(batches=85, learning_rate=4e-4, advantage="leave-one-out", by_spread=False, seed=SEED)
STAGE = OnlineStage("rloo", EPISODES, until=400 / 480)


def run(me: Participant) -> None:
    """Plan, measure, train and submit."""
    task = read_visible(me)
    started = time.monotonic()
    settings = task.grpo_settings(QUESTIONS, started)
    (stage,) = with_staleness((STAGE,))
    me.write_design(
        {
            "algorithm": "RLOO",
            "hyperparameters": dataclasses.asdict(stage.settings if task.is_interactive else settings),
            "data_preprocessing": f"all {len(task.train)} train items, attempted by the model itself",
            "evaluation_protocol": task.describe_evaluation(["before training", "before the submission"]),
        }
    )
    task = with_learned_judge(task, me.base)
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    if task.is_interactive:
        learn_in_stages(task, me.base, (stage,), started, partial(stop_at, Danger.FORMAT_COLLAPSE))
        return
    out = me.output / "model"
    report = train_rloo(me.base, task.questions(), task.reward, out, settings, GrpoHooks(print_log_line))
    task.check_and_submit(report.checkpoint, f"rloo, {report.steps} steps")


if __name__ == "__main__":
    run_recipe(run)
