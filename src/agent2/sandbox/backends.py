"""The table of sandboxes, and what each of them can do."""

import importlib
from pathlib import Path
from typing import Protocol

from agent2.errors import unknown_name
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import Containment, Limits, Network, SandboxSpec

SANDBOXES: dict[str, str] = {
    "bubblewrap": "agent2.sandbox.bubblewrap:Bubblewrap",
    "docker": "agent2.sandbox.docker:Docker",
    "apptainer": "agent2.sandbox.apptainer:Apptainer",
    "none": "agent2.sandbox.unsandboxed:Unsandboxed",
}
"""Name -> "module:Class"."""
DEFAULT_SANDBOX = "bubblewrap"


class Sandbox(Protocol):
    """Runs programs that nobody trusts."""

    @property
    def name(self) -> str:
        """As in `SANDBOXES`."""
        ...

    def require(self) -> object:
        """Raise SandboxError if this host does not let it work; asked before anything long is done."""
        ...

    def visible_path(self, host: Path, inside: str) -> str:
        """Where the program sees what the spec puts at `inside`; write this into texts for the program."""
        ...

    def prepare_workspace(self, path: Path, *, user_of: Path | None = None) -> None:
        """Make the folder if needed and let the program write everything in it; call it after filling it.

        user_of: the workspace of the program, where `path` is another folder that it may write.
        """
        ...

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the host cannot contain it.
        """
        ...

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly on this host, for the report."""
        ...


def find_sandbox(name: str | None = None) -> Sandbox:
    """The sandbox of that name; None is the default one, never one that contains nothing.

    Raises ConfigError for an unknown name. Whether the host allows it is told by `require`.
    """
    chosen = DEFAULT_SANDBOX if name is None else name
    if chosen not in SANDBOXES:
        raise unknown_name("sandbox", chosen, SANDBOXES)
    module, _, attribute = SANDBOXES[chosen].partition(":")
    sandbox: Sandbox = getattr(importlib.import_module(module), attribute)()
    return sandbox
