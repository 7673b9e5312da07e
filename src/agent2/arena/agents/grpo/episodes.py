"""Online reinforcement learning on episodes that the model plays; submits after each stage.

A policy that wins almost nothing learns almost nothing from its own episodes. Where the world can be asked for advice
and lists what is possible, a weak warm-up comes first, submitted too: about a third of a player's actions are clumsy,
and they are imitated with the rest, so that what is left to reinforcement learning is to find out which habits win.
"""

import dataclasses
import os
import time
from functools import partial

from agent2.monitor.signals import Danger
from agent2.monitor.watch import stop_at
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
TRACES = TraceSettings(episodes_per_item=1, clumsy_share=1.0, clumsy_rate=0.3, learn_clumsy=True, seed=SEED)
WARM_UP = SftSettings(epochs=3, batch_size=16, learning_rate=2e-3, warmup_steps=20, log_every_steps=40, seed=SEED)
WARM_UP_UNTIL = 0.4
"""Share of the wall clock after which the warm-up ends, on a machine too slow for all epochs."""
STAGES = (
    OnlineStage("learning", OnlineGrpoSettings(batches=60, learning_rate=8e-4, seed=SEED), until=330 / 480),
    OnlineStage("settling", OnlineGrpoSettings(batches=25, learning_rate=3e-4, seed=SEED + 1000), until=400 / 480),
)
"""Smaller steps at the end, as success goes up and down by several points at the first rate; items of another seed."""


def run(me: Participant) -> None:
    """Plan, measure, warm up, submit, play and learn, submit again."""
    task = read_visible(me)
    started = time.monotonic()
    warm_up = dataclasses.replace(WARM_UP, max_tokens=task.context)
    demonstrations = task.demonstrations(TRACES) if task.has_teacher else None
    stages = with_staleness(STAGES)
    first = {"traces": dataclasses.asdict(TRACES), "warm_up": dataclasses.asdict(warm_up)} if demonstrations else {}
    me.write_design(
        {
            "algorithm": "GRPO, online over episodes" + (", after a short SFT warm-up" if demonstrations else ""),
            "hyperparameters": {**first, "grpo": [dataclasses.asdict(stage) for stage in stages]},
            "data_preprocessing": (
                f"warm-up: {demonstrations.description}, clumsy actions too; then " if demonstrations else ""
            )
            + "the train items, played by the model itself",
            "evaluation_protocol": task.describe_evaluation(["before training", "before each submission"]),
        }
    )
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    checkpoint = me.base
    if demonstrations is not None:
        in_time = dataclasses.replace(warm_up, max_seconds=me.seconds_until(WARM_UP_UNTIL, started))
        checkpoint = train_sft(
            me.base, demonstrations.rows, me.output / "warm-up" / "model", in_time, print_log_line
        ).checkpoint
        task.check_and_submit(checkpoint, f"warm-up on {len(demonstrations.rows)} rows")
    learn_in_stages(task, checkpoint, stages, started, partial(stop_at, Danger.FORMAT_COLLAPSE))


if __name__ == "__main__":
    run_recipe(run)
