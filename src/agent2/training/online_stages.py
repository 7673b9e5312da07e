"""An agent's online learning in stages, each from the checkpoint of the one before, measured and submitted.

For programs in an arena workspace; the training itself is `online_grpo`'s.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.training.logs import LogLine
from agent2.training.online_grpo import OnlineGrpoHooks, train_online_grpo
from agent2.training.online_settings import OnlineGrpoSettings
from agent2.training.participant import tell
from agent2.training.visible import VisibleTask, show_line


@dataclass(frozen=True, slots=True)
class OnlineStage:
    """One run of `train_online_grpo`."""

    name: str
    """Also that of its folder among the agent's outputs."""
    settings: OnlineGrpoSettings
    """Turns, tokens and seconds are replaced by those of the assignment and the clock."""
    until: float
    """No new batch is begun after this share of the assignment's wall clock."""


Stop = Callable[[LogLine], str | None]
"""As `OnlineGrpoHooks.stop`."""


def learn_in_stages(
    task: VisibleTask,
    checkpoint: Path,
    stages: Sequence[OnlineStage],
    started: float,
    make_watch: Callable[[], Stop],
) -> Path:
    """Play and learn stage by stage, with a submission after each; the last good checkpoint.

    started: `time.monotonic()` of the agent's start. make_watch: looks after one stage; what it stops is not
    submitted, and the next stage goes on from the checkpoint before.
    """
    me = task.me
    for stage in stages:
        watch = _Watch(make_watch())
        settings = dataclasses.replace(
            stage.settings,
            prompts_per_batch=min(stage.settings.prompts_per_batch, len(task.train)),
            batches=max(1, round(me.effort * stage.settings.batches)),
            max_turns=me.max_turns,
            max_tokens=me.sampling.max_tokens,
            max_seconds=max(1.0, stage.until * me.wall_clock_s - (time.monotonic() - started)),
        )
        out = me.output / stage.name / "model"
        hooks = OnlineGrpoHooks(show_line, stop=watch, success=task.success)
        report = train_online_grpo(checkpoint, task.train, task.world, out, settings, hooks)
        tell(f"{stage.name}: {report.steps} updates in {report.seconds:.0f} s {report.stopped}")
        if watch.reason is not None:
            tell(f"{stage.name}: thrown away; going on from {checkpoint}")
            continue
        checkpoint = report.checkpoint
        task.check_and_submit(checkpoint, f"grpo, {stage.name}, {report.steps} updates")
    return checkpoint


class _Watch:
    """Remembers why it stopped a run."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.reason: str | None = None

    def __call__(self, line: LogLine) -> str | None:
        self.reason = self._stop(line)
        return self.reason
