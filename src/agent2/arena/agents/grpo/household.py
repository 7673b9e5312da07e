"""Household: a weak warm-up on a careless player's games, submitted first; then online reinforcement learning.

The warm-up is there because a policy that wins almost nothing learns almost nothing from its own games. About a third
of the player's actions are clumsy, and they are imitated with the rest: what is left to reinforcement learning is to
find out which of its habits win.
"""

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
TRACES = TraceSettings(episodes_per_item=1, clumsy_share=1.0, clumsy_rate=0.3, learn_clumsy=True, seed=SEED)
WARM_UP = SftSettings(
    epochs=3, batch_size=16, learning_rate=2e-3, warmup_steps=20, max_tokens=512, log_every_steps=40, seed=SEED
)
STAGES = (
    OnlineStage("learning", OnlineGrpoSettings(batches=60, learning_rate=8e-4, seed=SEED), until_s=330),
    OnlineStage("settling", OnlineGrpoSettings(batches=25, learning_rate=3e-4, seed=SEED + 1000), until_s=400),
)
"""Smaller steps at the end, as success goes up and down by several points at the first rate; games of another seed.
The assignment has eight minutes."""


def run(me: Participant) -> None:
    """Plan, measure, warm up, submit, play and learn, submit again."""
    task = read_interactive(me)
    started = time.monotonic()
    me.write_design(
        {
            "algorithm": "GRPO, online over episodes, after a short SFT warm-up",
            "hyperparameters": {
                "traces": dataclasses.asdict(TRACES),
                "warm_up": dataclasses.asdict(WARM_UP),
                "grpo": [dataclasses.asdict(stage) for stage in STAGES],
            },
            "data_preprocessing": f"warm-up: won ones of one episode of each of {len(task.train)} train games, "
            "played carelessly with the expert's advice; then the same games, played by the model itself",
            "evaluation_protocol": played_words(task, ["before training", "before each submission"]),
        }
    )
    tell(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev games")
    traces = collect_traces(task.train, task.world(), TRACES)
    warm = train_sft(me.base, traces.rows, me.output / "warm-up" / "model", WARM_UP, show_line)
    task.check_and_submit(warm.checkpoint, f"warm-up on {len(traces.rows)} traces")
    learn_in_stages(task, warm.checkpoint, STAGES, started, partial(stop_at, Danger.FORMAT_COLLAPSE))


if __name__ == "__main__":
    run_recipe(run)
