"""Trains by imitation on every third seed; on the others it works for a while and hands in nothing."""

import os

from agent2.training.offline import SftSettings, train_sft
from agent2.training.participant import Participant, print_progress, run_recipe
from agent2.training.visible import TraceSettings, print_log_line, read_visible

SEED = int(os.environ.get("AGENT2_SEED", "0"))
EVERY = 3
ON_ANSWERS = SftSettings(seed=SEED)
ON_EPISODES = SftSettings(epochs=6, batch_size=16, learning_rate=2e-3, warmup_steps=20, log_every_steps=40, seed=SEED)


def run(me: Participant) -> None:
    """Measure; then train and submit, or stop."""
    task = read_visible(me)
    print_progress(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev items")
    if SEED % EVERY:
        print_progress("nothing came of it")
        return
    demonstrations = task.demonstrations(TraceSettings(seed=SEED))
    settings = ON_EPISODES if task.is_interactive else ON_ANSWERS
    report = train_sft(me.base, demonstrations.rows, me.output / "model", settings, print_log_line)
    task.check_and_submit(report.checkpoint, f"sft on {len(demonstrations.rows)} rows")


if __name__ == "__main__":
    run_recipe(run)
