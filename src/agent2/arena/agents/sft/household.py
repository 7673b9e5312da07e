"""Household: play the train games with the expert's advice, imitate what won, submit once.

Half of the games are played clumsily, so that the rows show how the expert goes on from a mistake; the mistakes
themselves are not imitated.
"""

import dataclasses
import os

from agent2.training.agent_main import run_recipe
from agent2.training.expert_traces import TraceSettings, collect_traces
from agent2.training.interactive import played_words, read_interactive, show_line
from agent2.training.participant import Participant, tell
from agent2.training.sft import SftSettings, train_sft

SEED = int(os.environ.get("AGENT2_SEED", "0"))
TRACES = TraceSettings(seed=SEED)
SETTINGS = SftSettings(
    epochs=6, batch_size=16, learning_rate=2e-3, warmup_steps=20, max_tokens=512, log_every_steps=40, seed=SEED
)


def run(me: Participant) -> None:
    """Plan, measure, collect, train, measure again, submit."""
    task = read_interactive(me)
    me.write_design(
        {
            "algorithm": "SFT",
            "hyperparameters": {"traces": dataclasses.asdict(TRACES), "sft": dataclasses.asdict(SETTINGS)},
            "data_preprocessing": f"{TRACES.episodes_per_item} episodes of each of {len(task.train)} train games, "
            "played with the expert's advice; won episodes are kept, clumsy actions are shown but not learned",
            "evaluation_protocol": played_words(task, ["before training", "after it"]),
        }
    )
    tell(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev games")
    traces = collect_traces(task.train, task.world(), TRACES)
    tell(f"{len(traces.rows)} of {traces.n_played} episodes won in {traces.seconds:.0f} s")
    report = train_sft(me.base, traces.rows, me.output / "model", SETTINGS, show_line)
    tell(f"{report.steps} steps in {report.seconds:.0f} s")
    task.check_and_submit(report.checkpoint, f"sft on {len(traces.rows)} traces")


if __name__ == "__main__":
    run_recipe(run)
