"""Post-trains the base model in two stages, each submitted: imitation, then reinforcement learning."""

import dataclasses
import os
import time
from functools import partial

from agent2.monitor.signals import Danger
from agent2.monitor.watch import stop_at
from agent2.training.grpo import GrpoHooks, GrpoSettings, train_grpo
from agent2.training.learned_judge import with_learned_judge
from agent2.training.offline import SftSettings, train_sft
from agent2.training.online_grpo import OnlineGrpoSettings
from agent2.training.participant import Participant, print_progress, run_recipe
from agent2.training.visible import (
    OnlineStage,
    TraceSettings,
    learn_in_stages,
    print_log_line,
    read_visible,
    with_staleness,
)

SEED = int(os.environ.get("AGENT2_SEED", "0"))
TRACES = TraceSettings(seed=SEED)
ON_ANSWERS = SftSettings(seed=SEED)
IMITATES_UNTIL = 0.5
"""Share of the wall clock after which imitation ends, on a machine too slow for all epochs."""
ON_EPISODES = SftSettings(epochs=6, batch_size=16, learning_rate=2e-3, warmup_steps=20, log_every_steps=40, seed=SEED)
QUESTIONS = GrpoSettings(steps=100, seed=SEED)
STAGES = (
    OnlineStage("learning", OnlineGrpoSettings(batches=40, learning_rate=8e-4, seed=SEED), until=350 / 480),
    OnlineStage("settling", OnlineGrpoSettings(batches=25, learning_rate=3e-4, seed=SEED + 1000), until=410 / 480),
)
"""Smaller steps at the end, as success goes up and down by several points at the first rate; items of another seed."""


def run(me: Participant) -> None:
    """Plan, measure, collect, imitate, submit, learn from rewards, submit again."""
    task = read_visible(me)
    started = time.monotonic()
    imitation = dataclasses.replace(ON_EPISODES if task.is_interactive else ON_ANSWERS, max_tokens=task.context)
    questions = task.grpo_settings(QUESTIONS, started)
    stages = with_staleness(STAGES)
    traces = {"traces": dataclasses.asdict(TRACES)} if task.is_interactive else {}
    demonstrations = task.demonstrations(TRACES)
    grpo = [dataclasses.asdict(stage) for stage in stages] if task.is_interactive else dataclasses.asdict(questions)
    me.write_design(
        {
            "algorithm": "SFT, then GRPO" + (", online over episodes" if task.is_interactive else ""),
            "hyperparameters": {**traces, "sft": dataclasses.asdict(imitation), "grpo": grpo},
            "data_preprocessing": f"{demonstrations.description}; then the same items, done by the model itself",
            "evaluation_protocol": task.describe_evaluation(["before training", "before each submission"]),
        }
    )
    task = with_learned_judge(task, me.base)
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    in_time = dataclasses.replace(imitation, max_seconds=me.seconds_until(IMITATES_UNTIL, started))
    imitated = train_sft(me.base, demonstrations.rows, me.output / "sft" / "model", in_time, print_log_line)
    task.check_and_submit(imitated.checkpoint, f"sft on {len(demonstrations.rows)} rows")
    if task.is_interactive:
        learn_in_stages(task, imitated.checkpoint, stages, started, partial(stop_at, Danger.FORMAT_COLLAPSE))
        return
    out = me.output / "grpo" / "model"
    report = train_grpo(imitated.checkpoint, task.questions(), task.reward, out, questions, GrpoHooks(print_log_line))
    task.check_and_submit(report.checkpoint, f"grpo, {report.steps} steps")


if __name__ == "__main__":
    run_recipe(run)
