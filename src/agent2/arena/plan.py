"""Planning a trial: resolve what was asked for, and make the trial's folder. Nothing runs here.

The agent's files are copied into the trial, so that what ran can be read, resumed and repeated later, whatever
becomes of the agent's own folder.
"""

import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from pydantic import ValidationError

from agent2.arena.agents import Agent, load_agent
from agent2.arena.assignment import TrialConfig, limits_of
from agent2.arena.paths import TrialPaths
from agent2.arena.tasks import load_task
from agent2.config import parse_yaml
from agent2.errors import ConfigError
from agent2.sandbox.backends import find_sandbox

MAX_AGENT_MIB = 256


def resolve_trial(
    task: str,
    agent: str,
    seed: int,
    *,
    sandbox: str = "bubblewrap",
    overrides: Sequence[str] = (),
    trial_id: str | None = None,
) -> TrialConfig:
    """The whole configuration of a trial; touches no file of it.

    overrides: "budget.wall_clock_s=300" and the like, on the fields of TrialConfig. trial_id: made up by default.
    Raises ConfigError for an unknown task, agent, sandbox or key, or a value out of range.
    """
    spec, player, back_end = load_task(task), load_agent(agent), find_sandbox(sandbox)
    draft = {
        "trial_id": trial_id or _new_id(spec.name, player.spec.name, seed),
        "task": spec.model_dump(mode="json"),
        "agent": _absolute(agent),
        "seed": seed,
        "sandbox": back_end.name,
        "budget": spec.budget.model_dump(mode="json"),
        "base_model": spec.base_model,
    }
    config = parse_yaml(yaml.safe_dump(draft), TrialConfig, "trial", overrides)
    rows = [
        {"what": held.what, "strength": held.strength.value, "how": held.how}
        for held in back_end.containment(limits_of(config))
    ]
    return config.model_copy(update={"containment": rows, "base_model": _absolute(config.base_model)})


def new_trial(
    task: str,
    agent: str,
    seed: int,
    out: Path,
    *,
    sandbox: str = "bubblewrap",
    overrides: Sequence[str] = (),
    trial_id: str | None = None,
) -> Path:
    """Make the folder of a new trial and return it; arguments as for `resolve_trial`.

    Raises ConfigError also if the folder is in use or cannot be made.
    """
    config = resolve_trial(task, agent, seed, sandbox=sandbox, overrides=overrides, trial_id=trial_id)
    return _make_folder(config, load_agent(agent), out)


def repeat_trial(source: Path, out: Path) -> Path:
    """Make a new trial with the configuration and the agent's files of an earlier one.

    Raises ConfigError if the source is no trial.
    """
    before = TrialPaths(source.resolve())
    config = read_config(before.trial_json)
    agent = load_agent(str(before.agent))
    return _make_folder(
        config.model_copy(update={"trial_id": _new_id(config.task.name, agent.spec.name, config.seed)}), agent, out
    )


def read_config(path: Path) -> TrialConfig:
    """The configuration of a trial. Raises ConfigError if the file is missing or damaged."""
    try:
        return TrialConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path.parent}: no {path.name} there; name the folder of a trial") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where}: {first['msg']}; it is machine-written, restore it") from error


def write_json(path: Path, value: object) -> None:
    """Write a machine-read file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    draft.replace(path)


def _new_id(task: str, agent: str, seed: int) -> str:
    return f"{task}-{agent}-s{seed}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _absolute(name_or_path: str) -> str:
    """A path made absolute, so that the trial can be resumed from another folder; a name as it is."""
    is_path = "/" in name_or_path or name_or_path == "."
    return str(Path(name_or_path).expanduser().resolve()) if is_path else name_or_path


def _make_folder(config: TrialConfig, agent: Agent, out: Path) -> Path:
    """The trial's folder; trial.json comes last, so a folder without one was never finished and is taken over."""
    _require_small(agent)
    paths = TrialPaths(out.resolve() / config.trial_id)
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{paths.root}: cannot be made ({error.strerror}); choose another --out") from error
    begun = {paths.agent.name}
    if any(e.name not in begun and not e.name.startswith(f".{paths.trial_json.name}.") for e in paths.root.iterdir()):
        raise ConfigError(f"{paths.root}: exists already; choose another --trial-id, or --resume it")
    _copy_agent(agent, paths.agent)
    write_json(paths.trial_json, config.model_dump(mode="json"))
    return paths.root


def _require_small(agent: Agent) -> None:
    size_mib = sum(path.stat().st_size for path in agent.folder.rglob("*") if path.is_file()) / 2**20
    if size_mib > MAX_AGENT_MIB:
        raise ConfigError(
            f"{agent.folder}: holds {size_mib:.0f} MiB, {MAX_AGENT_MIB} is the most; keep data and binaries elsewhere"
        )


def _copy_agent(agent: Agent, target: Path) -> None:
    """Copy the agent's files, readable for the user that it will run as."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(agent.folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
