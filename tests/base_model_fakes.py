"""Builders of base models that write a file instead of training."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent2.errors import ConfigError


def build(entry: Any, out_dir: Path, on_progress: Any) -> dict[str, Any]:
    """A model of one file."""
    on_progress("building")
    (out_dir / "config.json").write_text("{}")
    return {"base_accuracy": {"value": 0.5}}


def with_data(entry: Any, data: Path | None) -> Any:
    """The recipe with what the file says in place of its corpus."""
    if data is None:
        raise ConfigError("no data in None")
    return replace(entry, corpus=data.read_text(), from_data="")


def build_slowly(entry: Any, out_dir: Path, on_progress: Any) -> dict[str, Any]:
    """Takes long enough for others to come."""
    time.sleep(2)
    return build(entry, out_dir, on_progress)


def lose_the_race(entry: Any, out_dir: Path, on_progress: Any) -> dict[str, Any]:
    """Finishes just after somebody else."""
    winner = out_dir.parent / f"fake-{entry.digest[:12]}"
    winner.mkdir()
    (winner / "manifest.json").write_text('{"who": "winner"}')
    return build(entry, out_dir, on_progress)


def fail(entry: Any, out_dir: Path, on_progress: Any) -> dict[str, Any]:
    """Breaks halfway."""
    (out_dir / "config.json").write_text("{")
    raise OSError("the disk is full")
