"""`agent2 run`: one trial of one agent at one task."""

from pathlib import Path
from typing import Annotated

import typer


def run(  # noqa: PLR0913 - one option of the command line each
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")] = "",
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the agent's programs.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder that the trial's folder is made in.")] = Path("trials"),
    sandbox: Annotated[str, typer.Option(help="bubblewrap, or none (flagged in the report).")] = "bubblewrap",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, as budget.wall_clock_s=300.")] = None,
    trial_id: Annotated[str, typer.Option(help="Name of the trial's folder; made up by default.")] = "",
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted trial (its folder).")] = None,
    repeat: Annotated[Path | None, typer.Option(help="Run an earlier trial (its folder) once more, as it was.")] = None,
) -> None:
    """Run one trial: workspace, agent in the sandbox, hidden scores, report."""
    from agent2.arena.trial import resume_trial
    from agent2.cli.show import progress_bar
    from agent2.cli.trial_result import print_result
    from agent2.cli.trial_start import play_new_trial, play_repetition
    from agent2.errors import ConfigError

    earlier = resume or repeat
    if earlier is not None and (task or agent or set_ or trial_id or (resume and repeat)):
        raise ConfigError(f"{earlier}: it goes as it was planned; leave out task, --agent, --set and --trial-id")
    if resume is not None:
        with progress_bar() as steps:
            resume_trial(resume, steps)
        root = resume.resolve()
    elif repeat is not None:
        root = play_repetition(repeat, out)
    elif task and agent:
        root = play_new_trial(task, agent, seed, out, sandbox=sandbox, overrides=set_ or [], trial_id=trial_id)
    else:
        raise ConfigError("agent2 run: name a task and an agent, as in: agent2 run arithmetic --agent grpo")
    print_result(root)
