"""`agent2 demo`: a whole trial on two cores in a few minutes."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "grpo",
    out: Annotated[Path, typer.Option(help="Folder in which the trial's folder is created.")] = Path("trials"),
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override any setting: sandbox=none.")] = None,
) -> None:
    """Let an agent post-train a tiny model on `arithmetic` in the sandbox, score it on hidden items, report."""
    from agent2.benchmarks import DEMO_TASK
    from agent2.cli.trial_result import print_result
    from agent2.cli.trial_start import play_new_trial

    print_result(play_new_trial(DEMO_TASK, agent, 0, out, set_ or []))
