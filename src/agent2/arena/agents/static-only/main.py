"""Learns from the visible rows alone, without playing, at three rates, and submits each.

The control of tasks whose lesson is that this is not enough: of an episode, a row shows only the opening and with it at
most a first message that is possible; what comes after is only known to those who play.
"""

import dataclasses
import os
import time

from agent2.training.offline import SftSettings, train_sft
from agent2.training.participant import Participant, print_progress, run_recipe
from agent2.training.visible import print_log_line, read_visible

SEED = int(os.environ.get("AGENT2_SEED", "0"))
LEARNING_RATES = (3e-5, 3e-4, 2e-3)
"""From one that hardly moves the weights to that of `sft`: what the data cannot teach, no rate can."""
TRAINS_UNTIL = 0.85
"""Share of the wall clock after which training ends, on a machine too slow for all epochs; each rate gets as much."""
SETTINGS = SftSettings(epochs=2, batch_size=16, warmup_steps=20, log_every_steps=40, seed=SEED)


def run(me: Participant) -> None:
    """Plan, measure, write rows; at each rate train from the base, measure and submit."""
    task = read_visible(me)
    started = time.monotonic()
    settings = dataclasses.replace(SETTINGS, max_tokens=task.context)
    static_rows = task.static_rows(SEED)
    me.write_design(
        {
            "algorithm": "SFT on static data",
            "hyperparameters": dataclasses.asdict(settings) | {"learning_rate": LEARNING_RATES},
            "data_preprocessing": static_rows.description,
            "evaluation_protocol": task.describe_evaluation(["before training", "after it at each rate"]),
        }
    )
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    for number, rate in enumerate(LEARNING_RATES, 1):
        out = me.output / f"rate-{rate:g}" / "model"
        until = TRAINS_UNTIL * number / len(LEARNING_RATES)
        at_rate = dataclasses.replace(settings, learning_rate=rate, max_seconds=me.seconds_until(until, started))
        report = train_sft(me.base, static_rows.rows, out, at_rate, print_log_line)
        print_progress(f"{report.steps} steps in {report.seconds:.0f} s")
        task.check_and_submit(report.checkpoint, f"static data only, learning rate {rate:g}")


if __name__ == "__main__":
    run_recipe(run)
