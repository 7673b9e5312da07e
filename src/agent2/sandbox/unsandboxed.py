"""No sandbox: runs the program as a plain child, with the rights of the user who runs the harness.

Only for programs that one trusts, on hosts where nothing else works; reports must say that it was used. The
environment is the allow-list, ports are offered on the host's own loopback, and inside paths in the command
and the environment are replaced by host paths. Contains nothing: no limit of the spec is enforced, except that the log
file stays small; no network policy and no choice of GPUs has an effect. Killing the harness ends the command, but
not what the command started.
"""

import os
import random
import socket
import sys
from pathlib import Path

from agent2.errors import SandboxError
from agent2.sandbox.forward import Plan
from agent2.sandbox.host import SYSTEM_PATH, toolkit_path
from agent2.sandbox.limits import Launch
from agent2.sandbox.process import FORWARDER, SandboxProcess
from agent2.sandbox.spec import (
    BASE_ENVIRONMENT,
    WORKSPACE,
    Containment,
    Limits,
    Network,
    SandboxSpec,
    Strength,
    check_spec,
)

NOT_CONTAINED = (
    "filesystem",
    "host processes",
    "network",
    "environment",
    "process count",
    "memory",
    "disk",
    "file size",
    "descriptors",
)
EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
PRIVATE_FOLDERS = ("HOME", "TMPDIR")
"""Variables whose folder does not exist outside a sandbox; the host's are used."""


class Unsandboxed:
    """Runs programs without containing them."""

    name = "none"

    def require(self) -> None:
        """Every host lets a program run."""

    def visible_path(self, host: Path, inside: str) -> str:
        """Where the program sees a workspace or mount: where it is."""
        return str(host.resolve())

    def prepare_workspace(self, path: Path, *, user_of: Path | None = None) -> None:
        """Make the folder if needed; the program has our rights anyway."""
        path.mkdir(parents=True, exist_ok=True)

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start. Raises SandboxError if it cannot be run as asked."""
        check_spec(spec)
        places = {WORKSPACE: spec.workspace} | {mount.inside: mount.host for mount in spec.mounts}
        names = sorted(places, key=len, reverse=True)

        def outside(value: str) -> str:
            for inside in names:
                if value == inside or value.startswith(inside + "/"):
                    return self.visible_path(places[inside], inside) + value[len(inside) :]
            return value

        environment = dict(BASE_ENVIRONMENT) | {"PATH": toolkit_path() if spec.python else SYSTEM_PATH}
        for name in PRIVATE_FOLDERS:
            environment[name] = os.environ.get(name, "/tmp")
        environment |= {name: outside(value) for name, value in spec.environment.items()}
        plan = Plan(
            command=[outside(word) for word in spec.command],
            directory=str(spec.workspace.resolve()),
            environment=environment,
            ports={str(port): str(path.resolve()) for port, path in spec.ports.items()},
            uid=None,
            rlimits={},
            die_with_parent=True,
            leash=False,
            calls=None,
        )
        return SandboxProcess(
            Launch(
                argv=(sys.executable, "-I", "-S", str(FORWARDER)),
                plan=plan,
                pass_fds=(),
                limits=spec.limits,
                workspace=spec.workspace,
                log=spec.log,
                group=None,
                depth=0,
                watched=False,
                stdin=spec.stdin,
                capture_bytes=spec.capture_bytes,
            )
        )

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """Nothing, nine times."""
        return [Containment(what, Strength.NONE, "the program runs as the harness's user") for what in NOT_CONTAINED]


def free_port() -> int:
    """A loopback port that nobody listens on now, and that the kernel gives to no client before a program opens it.

    Ports from which the kernel serves connections are left out: between asking for one and using it, any outgoing
    connection of the host may take it. Raises SandboxError if a hundred draws find none.
    """
    try:
        first = int(EPHEMERAL_PORTS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768  # Linux's default
    for port in random.sample(range(1024, max(first, 2048)), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SandboxError("no free loopback port was found in 100 draws; close programs that listen on this host")
