"""`agent2 run`: one trial of one agent at one task."""

from pathlib import Path
from typing import Annotated

import typer

NAME_AN_AGENT = "as in: agent2 run arithmetic --agent grpo (--model in place of --agent: score that model as it is)"


def run(  # noqa: PLR0913 - one option of the command line each
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")] = "",
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the agent's programs.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder that the trial's folder is made in.")] = Path("trials"),
    sandbox: Annotated[str, typer.Option(help="bubblewrap, docker, apptainer, or none (flagged).")] = "bubblewrap",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, as budget.wall_clock_s=300.")] = None,
    trial_id: Annotated[str, typer.Option(help="Name of the trial's folder; made up by default.")] = "",
    resume: Annotated[
        Path | None, typer.Option(help="Resume an interrupted trial (its folder); the agent gets the time it had left.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart/--no-restart", help="With --resume: start an interrupted agent again.")
    ] = True,
    repeat: Annotated[Path | None, typer.Option(help="Run an earlier trial (its folder) once more, as it was.")] = None,
    driver: Annotated[str, typer.Option(help="LLM that drives the agent: PROVIDER/MODEL, or a driver file.")] = "",
    mode: Annotated[str, typer.Option(help="Training routes allowed: free, sft-only or rl-only.")] = "",
    replay: Annotated[
        Path | None, typer.Option(help="Run a recorded trial again with its LLM's recorded answers, and compare.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Of a replay: refuse a request that differs.")] = False,
    model: Annotated[
        str, typer.Option(help="Base model in place of the task's: a folder or a name; without --agent it is scored.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Folder of official data, for a task that reads files (alfworld).")
    ] = None,
    network: Annotated[str, typer.Option(help="What the agent may reach: none, packages, open (flagged).")] = "",
    gpus: Annotated[str, typer.Option(help="Numbers of the GPUs that the agent may use, as 0,1.")] = "",
) -> None:
    """Run one trial: workspace, agent in the sandbox, hidden scores, report."""
    from agent2.cli import trial_start as start
    from agent2.cli.trial_result import print_replay, print_result
    from agent2.errors import ConfigError

    earlier = [path for path in (resume, repeat, replay) if path is not None]
    own = (task, agent, driver, mode, trial_id, model, data, network, gpus, len(earlier) > 1, set_ and replay is None)
    _refuse_changes(earlier, is_changed=any(own))
    if strict and replay is None:
        raise ConfigError("--strict: says how to take a replay; add --replay TRIAL")
    if not restart and resume is None:
        raise ConfigError("--no-restart: says how to resume a trial; add --resume TRIAL")
    if resume is not None:
        root = start.resume(resume, restarts_agent=restart)
    elif repeat is not None:
        root = start.play_repetition(repeat, out)
    elif replay is not None:
        root = start.play_replay(replay, out, strict=strict, overrides=set_ or [])
    elif task and (agent or model):
        chosen = [*(set_ or []), *start.own_inputs(model, data), *start.sandbox_choices(network, gpus)]
        overrides = start.with_choices(chosen, driver, mode)
        agent = agent or start.SCORED_AS_IT_IS
        root = start.play_new_trial(task, agent, seed, out, sandbox=sandbox, overrides=overrides, trial_id=trial_id)
    else:
        missing = "a task" if agent or model else "an agent" if task else "a task and an agent"
        raise ConfigError(f"name {missing}, {NAME_AN_AGENT}")
    print_result(root)
    if replay is not None and not print_replay(root):
        raise typer.Exit(1)


def _refuse_changes(earlier: list[Path], *, is_changed: bool) -> None:
    """An earlier trial takes no new choices. Raises ConfigError."""
    from agent2.errors import ConfigError

    if earlier and is_changed:
        raise ConfigError(
            f"{earlier[0]}: it goes as it was planned; leave out task, --agent, --driver, --mode, --set, --model, "
            "--data, --network, --gpus and --trial-id"
        )
