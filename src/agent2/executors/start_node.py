"""Starts Ray on this machine as a node of a cluster, with a sandbox to offer if there is one that works."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from agent2.errors import ConfigError
from agent2.executors.ray_cluster import SANDBOX_RESOURCE
from agent2.installation import install_hint


def node_command(address: str | None, n_sandboxes: int, options: Sequence[str] = ()) -> list[str]:
    """The command that starts Ray here and stays in the foreground.

    address: of the head, HOST:PORT; None: become the head. n_sandboxes: trials that this node may run at the same time;
    0: it offers no sandbox, so none. options: of `ray start`, as NAME=VALUE. Raises ConfigError without Ray.
    """
    beside = Path(sys.executable).with_name("ray")
    program = str(beside) if beside.exists() else shutil.which("ray")
    if program is None:
        raise ConfigError(f"agent2 node: Ray is not installed; {install_hint('ray')}")
    where = ["--head"] if address is None else [f"--address={address}"]
    offered = json.dumps({SANDBOX_RESOURCE: n_sandboxes} if n_sandboxes else {})
    return [
        program,
        "start",
        *where,
        "--block",
        "--disable-usage-stats",
        f"--resources={offered}",
        *(f"--{option}" for option in options),
    ]


def default_sandboxes() -> int:
    """Trials at the same time where nobody says how many: one a CPU."""
    return os.cpu_count() or 1
