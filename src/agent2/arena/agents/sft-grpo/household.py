"""Household: imitate the expert first, submit, then learn from games of its own, submit again."""

import dataclasses
import os
import time
from pathlib import Path

from agent2.training.expert_traces import TraceSettings, collect_traces
from agent2.training.interactive import line_words, played_words, read_interactive, submission_words
from agent2.training.logs import LogLine
from agent2.training.online_grpo import OnlineGrpoHooks, train_online_grpo
from agent2.training.online_settings import OnlineGrpoSettings
from agent2.training.participant import Participant
from agent2.training.sft import SftSettings, train_sft

SEED = int(os.environ.get("AGENT2_SEED", "0"))
TRACES = TraceSettings(seed=SEED)
IMITATION = SftSettings(
    epochs=4, batch_size=16, learning_rate=2e-3, warmup_steps=20, max_tokens=512, log_every_steps=40, seed=SEED
)
SETTINGS = OnlineGrpoSettings(batches=40, learning_rate=8e-4, seed=SEED)
SETTLING = OnlineGrpoSettings(batches=25, learning_rate=3e-4, seed=SEED + 1000)
"""Smaller steps at the end, as success goes up and down by several points at the first rate; games of another seed."""
LEARN_UNTIL_S, SETTLE_UNTIL_S = 330.0, 400.0
"""Seconds since the program began, of the assignment's eight minutes."""


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
                "grpo": [dataclasses.asdict(stage) for stage in (SETTINGS, SETTLING)],
            },
            "data_preprocessing": f"{TRACES.episodes_per_item} episodes of each of {len(task.train)} train games with "
            "the expert's advice, won ones kept, clumsy actions not learned; then the same games, played by the model",
            "evaluation_protocol": played_words(task, ["before training", "before each submission"]),
        }
    )
    print(f"base model: {task.evaluate_on_dev(me.base)} of {len(task.dev)} dev games", flush=True)

    def check_and_submit(stage: str, checkpoint: Path) -> None:
        after = task.evaluate_on_dev(checkpoint)
        print(f"{stage}: {after} of dev games", flush=True)
        answer = me.submit(checkpoint, f"{stage}, dev {100 * after.success:.1f}%")
        print(submission_words(answer), flush=True)

    traces = collect_traces(task.train, task.world(), TRACES)
    print(f"{len(traces.rows)} of {traces.n_played} episodes won in {traces.seconds:.0f} s", flush=True)
    imitated = train_sft(me.base, traces.rows, me.output / "sft" / "model", IMITATION, show)
    check_and_submit(f"sft on {len(traces.rows)} traces", imitated.checkpoint)
    checkpoint = imitated.checkpoint
    for name, stage, until in (("learning", SETTINGS, LEARN_UNTIL_S), ("settling", SETTLING, SETTLE_UNTIL_S)):
        settings = dataclasses.replace(
            stage,
            batches=max(1, round(me.effort * stage.batches)),
            max_turns=me.max_turns,
            max_tokens=me.sampling.max_tokens,
            max_seconds=max(1.0, until - (time.monotonic() - started)),
        )
        out = me.output / name / "model"
        report = train_online_grpo(checkpoint, task.train, task.world(), out, settings, OnlineGrpoHooks(show))
        checkpoint = report.checkpoint
        print(f"{name}: {report.steps} updates in {report.seconds:.0f} s {report.stopped}", flush=True)
        check_and_submit(f"grpo after sft, {name}, {report.steps} updates", checkpoint)


def show(line: LogLine) -> None:
    """One line of the training log."""
    print(line_words(line), flush=True)
