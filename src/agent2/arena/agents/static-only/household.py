"""Household without playing a single game: learns from the openings of the train rows, at three rates, submits each.

From an opening one can tell a first command that is always possible (to go to something that stands there) and no
more: what comes after it is only known to those who play. This is the control of the task's structural requirement.
"""

import dataclasses
import os
import re

import numpy as np

from agent2.training.agent_main import run_recipe
from agent2.training.interactive import played_words, read_interactive, show_line
from agent2.training.participant import Participant, tell
from agent2.training.sft import SftSettings, train_sft

SEED = int(os.environ.get("AGENT2_SEED", "0"))
LEARNING_RATES = (3e-5, 3e-4, 2e-3)
"""From one that hardly moves the weights to that of `sft`: what the data cannot teach, no rate can."""
SETTINGS = SftSettings(epochs=2, batch_size=16, warmup_steps=20, max_tokens=512, log_every_steps=40, seed=SEED)
_NAME = re.compile(r"\ba (\w+ \d+)")


def run(me: Participant) -> None:
    """Plan, measure, write rows; at each rate train from the base, measure and submit."""
    task = read_interactive(me)
    rng = np.random.default_rng(SEED)
    rows = []
    for row in me.train:
        names = _NAME.findall(row["prompt"])
        rows.append({"prompt": row["prompt"], "answer": f"go to {names[int(rng.integers(len(names)))]}"})
    me.write_design(
        {
            "algorithm": "SFT on static data",
            "hyperparameters": dataclasses.asdict(SETTINGS) | {"learning_rate": LEARNING_RATES},
            "data_preprocessing": f"the opening of each of {len(rows)} train games with a first command that it allows",
            "evaluation_protocol": played_words(task, ["before training", "after it at each rate"]),
        }
    )
    tell(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev games")
    for rate in LEARNING_RATES:
        out = me.output / f"rate-{rate:g}" / "model"
        report = train_sft(me.base, rows, out, dataclasses.replace(SETTINGS, learning_rate=rate), show_line)
        tell(f"{report.steps} steps in {report.seconds:.0f} s")
        task.check_and_submit(report.checkpoint, f"static data only, learning rate {rate:g}")


if __name__ == "__main__":
    run_recipe(run)
