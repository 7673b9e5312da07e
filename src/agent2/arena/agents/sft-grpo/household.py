"""Household: imitate the expert first, submit, then learn from games of its own, submit again."""

import dataclasses
import os
import time
from functools import partial

from agent2.monitor.signals import Danger
from agent2.monitor.stop import stop_at
from agent2.training.agent_main import run_recipe
from agent2.training.expert_traces import TraceSettings, collect_traces
from agent2.training.interactive import played_words, read_interactive, show_line
from agent2.training.online_settings import OnlineGrpoSettings
from agent2.training.online_stages import OnlineStage, learn_in_stages
from agent2.training.participant import Participant, tell
from agent2.training.sft import SftSettings, train_sft

SEED = int(os.environ.get("AGENT2_SEED", "0"))
TRACES = TraceSettings(seed=SEED)
IMITATION = SftSettings(
    epochs=6, batch_size=16, learning_rate=2e-3, warmup_steps=20, max_tokens=512, log_every_steps=40, seed=SEED
)
STAGES = (
    OnlineStage("learning", OnlineGrpoSettings(batches=40, learning_rate=8e-4, seed=SEED), until_s=350),
    OnlineStage("settling", OnlineGrpoSettings(batches=25, learning_rate=3e-4, seed=SEED + 1000), until_s=410),
)
"""Smaller steps at the end, as success goes up and down by several points at the first rate; games of another seed.
The assignment has eight minutes."""


def run(me: Participant) -> None:
    """Plan, measure, collect, imitate, submit, play and learn, submit again."""
    task = read_interactive(me)
    started = time.monotonic()
    me.write_design(
        {
            "algorithm": "SFT on expert traces, then GRPO, online over episodes",
            "hyperparameters": {
                "traces": dataclasses.asdict(TRACES),
                "sft": dataclasses.asdict(IMITATION),
                "grpo": [dataclasses.asdict(stage) for stage in STAGES],
            },
            "data_preprocessing": f"{TRACES.episodes_per_item} episodes of each of {len(task.train)} train games with "
            "the expert's advice, won ones kept, clumsy actions not learned; then the same games, played by the model",
            "evaluation_protocol": played_words(task, ["before training", "before each submission"]),
        }
    )
    tell(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev games")
    traces = collect_traces(task.train, task.world(), TRACES)
    tell(f"{len(traces.rows)} of {traces.n_played} episodes won in {traces.seconds:.0f} s")
    imitated = train_sft(me.base, traces.rows, me.output / "sft" / "model", IMITATION, show_line)
    task.check_and_submit(imitated.checkpoint, f"sft on {len(traces.rows)} traces")
    learn_in_stages(task, imitated.checkpoint, STAGES, started, partial(stop_at, Danger.FORMAT_COLLAPSE))


if __name__ == "__main__":
    run_recipe(run)
