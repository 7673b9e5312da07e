"""Post-trains the base model by imitation and submits it once: of the answers of the train rows, or of an expert.

Where items are episodes, half of them are played clumsily, so that the rows show how the expert recovers from a
mistake; the mistakes themselves are not imitated.
"""

import dataclasses
import os
import time

from agent2.training.offline import SftSettings, train_sft
from agent2.training.participant import Participant, print_progress, run_recipe
from agent2.training.visible import TraceSettings, print_log_line, read_visible

SEED = int(os.environ.get("AGENT2_SEED", "0"))
TRACES = TraceSettings(seed=SEED)
ON_ANSWERS = SftSettings(seed=SEED)
ON_EPISODES = SftSettings(epochs=6, batch_size=16, learning_rate=2e-3, warmup_steps=20, log_every_steps=40, seed=SEED)

TRAINS_UNTIL = 0.75
"""Share of the wall clock after which training ends on a machine too slow for all epochs; the rest is for measuring."""


def run(me: Participant) -> None:
    """Plan, measure, collect, train, measure again, submit."""
    task = read_visible(me)
    started = time.monotonic()
    settings = dataclasses.replace(ON_EPISODES if task.is_interactive else ON_ANSWERS, max_tokens=task.context)
    traces = {"traces": dataclasses.asdict(TRACES)} if task.is_interactive else {}
    demonstrations = task.demonstrations(TRACES)
    me.write_design(
        {
            "algorithm": "SFT",
            "hyperparameters": dataclasses.asdict(settings) | traces,
            "data_preprocessing": demonstrations.description,
            "evaluation_protocol": task.describe_evaluation(["before training", "after it"]),
        }
    )
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    in_time = dataclasses.replace(settings, max_seconds=me.seconds_until(TRAINS_UNTIL, started))
    report = train_sft(me.base, demonstrations.rows, me.output / "model", in_time, print_log_line)
    print_progress(f"{report.steps} steps in {report.seconds:.0f} s")
    task.check_and_submit(report.checkpoint, f"sft on {len(demonstrations.rows)} rows")


if __name__ == "__main__":
    run_recipe(run)
