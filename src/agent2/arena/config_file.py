"""The configuration of a trial as it lies in its folder, and machine-written JSON files in general."""

import os
from pathlib import Path

import msgspec
from pydantic import ValidationError

from agent2.arena.assignment import TrialConfig
from agent2.errors import ConfigError


def read_config(path: Path) -> TrialConfig:
    """The configuration of a trial. Raises ConfigError if the file is missing or damaged."""
    try:
        return TrialConfig.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path.parent}: no {path.name} there; pass the folder of a trial") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {where}: {first['msg']}; it is machine-written, restore it") from error


def write_json(path: Path, value: object) -> None:
    """Write a machine-read file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    draft.replace(path)
