"""`agent2 demo`: the main job, end to end, on two cores in a few minutes."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "grpo",
    out: Annotated[Path, typer.Option(help="Folder that the trial's folder is made in.")] = Path("trials"),
    sandbox: Annotated[str, typer.Option(help="bubblewrap, or none (flagged in the report).")] = "bubblewrap",
) -> None:
    """Let an agent post-train a tiny model on `arithmetic` in a real sandbox, and report what came of it."""
    from agent2.benchmarks import DEMO_TASK
    from agent2.cli.trial_result import print_result
    from agent2.cli.trial_start import play_new_trial

    print_result(play_new_trial(DEMO_TASK, agent, 0, out, sandbox=sandbox))
