"""`agent2 run`, `resume`, `repeat` and `replay`: one trial of one agent at one task."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "for example: agent2 run arithmetic --agent grpo (--model instead of --agent scores that model as it is)"
TrialArgument = Annotated[Path, typer.Argument(help="Folder of the trial.")]
Out = Annotated[Path, typer.Option(help="Folder in which the trial's folder is created.")]


def run(  # noqa: PLR0913 - one option of the command line each
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")] = "",
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "",
    driver: Annotated[str, typer.Option(help="LLM that drives the agent: PROVIDER/MODEL, or a driver file.")] = "",
    model: Annotated[
        str, typer.Option(help="Base model instead of the task's: a folder or a name; without --agent it is scored.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Folder of official data, for a task that reads files (alfworld).")
    ] = None,
    gpus: Annotated[str, typer.Option(help="Numbers of the GPUs that the agent may use: 0,1.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the agent's programs.")] = 0,
    out: Out = Path("trials"),
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override any setting: budget.wall_clock_s=300, sandbox=docker|apptainer|none, "
            "network=packages|open, mode=sft-only|rl-only, trial_id=NAME, ...",
        ),
    ] = None,
) -> None:
    """Run one trial: an agent works in the sandbox, its submissions are scored on hidden items, a report follows."""
    from agent2.cli import trial_start as start
    from agent2.cli.trial_result import print_result
    from agent2.errors import ConfigError

    if not task or not (agent or model):
        missing = "a task" if agent or model else "an agent" if task else "a task and an agent"
        raise ConfigError(f"give {missing}, {EXAMPLE}")
    overrides = [*(set_ or []), *start.own_inputs(model, data), *start.gpu_choice(gpus)]
    overrides += [f"driver={driver}"] if driver else []
    print_result(start.play_new_trial(task, agent or start.SCORED_AS_IT_IS, seed, out, overrides))


def resume(
    trial: TrialArgument,
    restart: Annotated[
        bool,
        typer.Option("--restart/--no-restart", help="Restart an interrupted agent, or end its phase as interrupted."),
    ] = True,
) -> None:
    """Resume an interrupted trial with the budget it had left; for a finished one, write the report again."""
    from agent2.cli import trial_start as start
    from agent2.cli.trial_result import print_result

    print_result(start.resume(trial, restarts_agent=restart))


def repeat(trial: TrialArgument, out: Out = Path("trials")) -> None:
    """Run an earlier trial again with the same configuration and agent files; list what differs this time."""
    from agent2.cli import trial_start as start
    from agent2.cli.trial_result import print_result

    print_result(start.play_repetition(trial, out))


def replay(
    trial: TrialArgument,
    out: Out = Path("trials"),
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a request that differs from the recorded ones.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting: budget.wall_clock_s=600.")
    ] = None,
) -> None:
    """Run a recorded trial again with its LLM's recorded answers and compare; exit 1 if anything differs.

    No provider is called. A recording grants nothing: network, GPUs and higher limits need --set.
    """
    from agent2.cli import trial_start as start
    from agent2.cli.trial_result import print_replay, print_result

    root = start.play_replay(trial, out, strict=strict, overrides=set_ or [])
    print_result(root)
    if not print_replay(root):
        raise typer.Exit(1)
