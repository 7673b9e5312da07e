"""The start of `agent2 run` and its siblings: create a trial, play it, remove one that never began."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agent2.errors import ConfigError, MachineLacks

if TYPE_CHECKING:
    from agent2.cli.show import Steps

SCORED_AS_IT_IS = "nop"
"""The agent of `agent2 run --model` without --agent: it does nothing, so the model's own scores are the result."""


def own_inputs(model: str, data: Path | None) -> list[str]:
    """The overrides for --model and --data. Raises ConfigError for a data folder that is not there."""
    chosen = []
    if model:
        folder = Path(model).expanduser()
        chosen.append(f"base_model={json.dumps(str(folder.resolve()) if folder.is_dir() else model)}")
    folder_of_data = check_data(data)
    if folder_of_data is not None:
        chosen.append(f"data={json.dumps(str(folder_of_data))}")
    return chosen


def check_data(data: Path | None) -> Path | None:
    """The absolute path of --data. Raises ConfigError if it does not exist or is a file."""
    if data is None:
        return None
    folder = data.expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"--data {data}: is not a directory; pass the one that contains the official data")
    return folder


def gpu_choice(gpus: str) -> list[str]:
    """The override for --gpus. Raises ConfigError for a GPU that is not a number."""
    numbers = [part.strip() for part in gpus.split(",")] if gpus else []
    wrong = [part for part in numbers if not part.isdecimal()]
    if wrong:
        raise ConfigError(f"--gpus {gpus}: {wrong[0]!r} is not a number; write the numbers of GPUs, as in --gpus 0,1")
    return [f"gpus=[{', '.join(str(int(part)) for part in numbers)}]"] if numbers else []


def play_new_trial(task: str, agent: str, seed: int, out: Path, overrides: Sequence[str] = ()) -> Path:
    """Create a trial below `out`, play it to its end and return its folder.

    Raises ConfigError, and leaves no folder behind, if the input turns out to be unusable before the agent starts.
    """
    from agent2 import installation
    from agent2.arena.budget import require_room
    from agent2.arena.plan import new_trial

    check_is_folder("--out", out)
    require_room(out)
    require_room(installation.home())  # the base model may have to be built there
    return _play(new_trial(task, agent, seed, out, overrides=overrides))


def play_repetition(source: Path, out: Path) -> Path:
    """Play the trial of another folder again, below `out`; prints what differs this time."""
    from agent2.arena.lock import lock_differences
    from agent2.arena.paths import TrialPaths
    from agent2.arena.plan import repeat_trial

    check_is_folder("--out", out)
    root = _play(repeat_trial(source, out))
    for difference in lock_differences(TrialPaths(source).lock_json, TrialPaths(root).lock_json):
        typer.echo(f"agent2: not as in {source}: {difference}", err=True)
    return root


def play_replay(source: Path, out: Path, *, strict: bool, overrides: Sequence[str] = ()) -> Path:
    """Play a recorded trial again below `out`, its LLM's answers taken from the recording."""
    from agent2.arena.agents import load_agent
    from agent2.arena.config_file import read_config
    from agent2.arena.lock import lock_differences
    from agent2.arena.paths import TrialPaths
    from agent2.arena.plan import replay_trial, ungranted
    from agent2.arena.replay import recording_cut

    check_is_folder("--out", out)
    root = replay_trial(source, out, strict=strict, overrides=overrides)
    recorded = read_config(TrialPaths(source.resolve()).trial_json)
    for name in ungranted(recorded, overrides):
        typer.echo(f"agent2: not as recorded: {name} (a recording grants itself nothing; add --set {name}=)", err=True)
    variables = load_agent(str(TrialPaths(source.resolve()).agent)).spec.pass_environment
    if variables:
        typer.echo(f"agent2: not as recorded: the variables {', '.join(variables)} are not passed on", err=True)
    cut = recording_cut(TrialPaths(source.resolve()))
    if cut is not None:
        typer.echo(f"agent2: {source}: {cut}; it is replayed up to there", err=True)
    _play(root)
    for difference in lock_differences(TrialPaths(source).lock_json, TrialPaths(root).lock_json):
        typer.echo(f"agent2: not as in {source}: {difference}", err=True)
    return root


def resume(root: Path, *, restarts_agent: bool) -> Path:
    """Resume the trial of a folder and return its full path. restarts_agent: as in `agent2.arena.trial`."""
    from agent2.arena.trial import resume_trial

    root = root.resolve()
    with _resumable(root) as steps:
        resume_trial(root, steps, restarts_agent=restarts_agent)
    return root


def _play(root: Path) -> Path:
    from agent2.arena.eventlog import read_events
    from agent2.arena.paths import TrialPaths
    from agent2.arena.trial import run_trial

    try:
        with _resumable(root) as steps:
            run_trial(root, steps)
    except (ConfigError, MachineLacks, OSError):
        if read_events(TrialPaths(root).trial_log).last("agent_started") is None:
            shutil.rmtree(root, ignore_errors=True)
        raise
    return root


@contextmanager
def _resumable(root: Path) -> "Iterator[Steps]":
    """The progress of a trial; after an interruption, print how to resume it."""
    from agent2.arena.paths import TrialPaths
    from agent2.cli.show import progress_bar

    try:
        with progress_bar() as steps:
            yield steps
    except KeyboardInterrupt:
        typer.echo(f"agent2: resume with: {TrialPaths(root).resume_command}", err=True)
        raise


def check_is_folder(flag: str, path: Path) -> None:
    """Raise ConfigError if files cannot be made below `path`, which need not exist yet."""
    above = next(folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{flag} {path}: {above} is a file; pass a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{flag} {path}: {above} is not writable by this user; pass another folder")
