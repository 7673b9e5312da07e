"""Household without playing a single game: learns from the openings of the train rows, and submits once.

From an opening one can tell a first command that is always possible (to go to something that stands there) and no
more: what comes after it is only known to those who play. This is the control of the task's structural requirement.
"""

import dataclasses
import os
import re

import numpy as np

from agent2.training.interactive import played_words, read_interactive, show_line
from agent2.training.participant import Participant, tell
from agent2.training.sft import SftSettings, train_sft

SEED = int(os.environ.get("AGENT2_SEED", "0"))
SETTINGS = SftSettings(epochs=1, batch_size=32, learning_rate=3e-5, warmup_steps=5, max_tokens=512, seed=SEED)
_NAME = re.compile(r"\ba (\w+ \d+)")


def run(me: Participant) -> None:
    """Plan, measure, write rows, train, measure again, submit."""
    task = read_interactive(me)
    rng = np.random.default_rng(SEED)
    rows = []
    for row in me.train:
        names = _NAME.findall(row["prompt"])
        rows.append({"prompt": row["prompt"], "answer": f"go to {names[int(rng.integers(len(names)))]}"})
    me.write_design(
        {
            "algorithm": "SFT on static data",
            "hyperparameters": dataclasses.asdict(SETTINGS),
            "data_preprocessing": f"the opening of each of {len(rows)} train games with a first command that it allows",
            "evaluation_protocol": played_words(task, ["before training", "after it"]),
        }
    )
    tell(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev games")
    report = train_sft(me.base, rows, me.output / "model", SETTINGS, show_line)
    tell(f"{report.steps} steps in {report.seconds:.0f} s")
    task.check_and_submit(report.checkpoint, "static data only")
