"""Timing of `agent2 watch`, as `--set watch.NAME=VALUE` gives it."""

from collections.abc import Sequence

from agent2.config import StrictModel, parse_yaml


class WatchSettings(StrictModel):
    """Settings of `--set watch.NAME=VALUE`."""

    settle_s: float = 10.0
    """How long the files of a checkpoint have to be unchanged where the trainer writes no mark."""
    poll_s: float = 5.0
    """Time between two looks at the run."""


class _Watch(StrictModel):
    watch: WatchSettings = WatchSettings()


def read_watch_settings(overrides: Sequence[str]) -> WatchSettings:
    """The settings with each `watch.NAME=VALUE` applied. Raises ConfigError."""
    return parse_yaml("", _Watch, "--set", list(overrides)).watch
