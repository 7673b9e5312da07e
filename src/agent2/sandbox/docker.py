"""The Docker back end: the same view as bubblewrap's, held by a container engine on this host.

The image is an empty root that is made here on first use; system, toolkit and mounts are bound from the host. No
network, no capabilities, no new privileges, read-only root, a user of its own, limits by the engine's control groups.
The container ends when the harness does, because the first process in it holds a connection to the harness.

GPUs are passed as single devices (--device), with the host's driver libraries out of its /usr: that shows exactly the
named ones and needs no container toolkit. With a user of its own the container needs an engine that runs as root;
under a rootless engine the program is root of the engine's user name space, without capabilities.

Does not work with an engine on another machine or in a virtual machine that does not share this file system. Whoever
may start containers is as good as root on the host; that is the harness, never the program.
"""

import hashlib
import json
import logging
import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import SandboxError
from agent2.sandbox import host as toolkit
from agent2.sandbox.engine_room import COMMAND, OnEnd, Room, csv_field, root_archive, start_in_room
from agent2.sandbox.forward import Plan
from agent2.sandbox.host import gpu_devices, gpu_environment, hand_over, has_root_rights, uid_for
from agent2.sandbox.limits import OWN_PROCESSES, Launch
from agent2.sandbox.process import FORWARDER, SandboxProcess
from agent2.sandbox.seccomp import filter_in_words
from agent2.sandbox.spec import (
    BASE_ENVIRONMENT,
    GIB,
    HOME,
    PRIVATE,
    WORKSPACE,
    Containment,
    Limits,
    Network,
    SandboxSpec,
    Strength,
    check_spec,
    common_rows,
    refuse_hidden,
)

logger = logging.getLogger(__name__)

IMAGE = "agent2-empty-root"
MADE_FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")
"""The engine makes the other files of /etc itself."""
ASK_S = 60.0


@dataclass(frozen=True, slots=True)
class DockerEngine:
    """What a running engine says about itself."""

    version: str
    is_rootless: bool
    limits_memory: bool
    limits_processes: bool


class Docker:
    """Runs programs in Docker containers."""

    name = "docker"

    def __init__(self, binary: str = "docker", *, devices: Path = Path("/dev")) -> None:
        """binary: name or path of the docker client. devices: where the device files of GPUs are."""
        self._binary = binary
        self._devices = devices
        self._as_root = has_root_rights()
        self._engine: DockerEngine | None = None

    def visible_path(self, host: Path, inside: str) -> str:
        """Where the program sees a workspace or mount."""
        return inside

    def prepare_workspace(self, path: Path, *, user_of: Path | None = None) -> None:
        """Make the folder if needed and give it, with all it holds, to the container's user."""
        path.mkdir(parents=True, exist_ok=True)
        uid = self._uid(user_of or path)
        if uid != os.geteuid():
            hand_over(path, uid)

    def require(self) -> DockerEngine:
        """The engine, after asking once whether it answers.

        Raises SandboxError with one sentence that says what to do.
        """
        if self._engine is None:
            self._engine = self._ask_engine()
        return self._engine

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly, as far as the engine says so."""
        engine = self.require()
        by_engine = "control group of the engine"
        user = "root of the engine's user namespace" if engine.is_rootless else "own user"
        return [
            Containment("filesystem", Strength.HARD, f"container with a read-only empty root, explicit binds, {user}"),
            Containment("host processes", Strength.HARD, "process and IPC namespaces of the container"),
            *common_rows(limits, network, gpus),
            Containment("process count", Strength.HARD, f"{limits.processes}: {by_engine}")
            if engine.limits_processes
            else Containment("process count", Strength.NONE, "this engine cannot limit it"),
            Containment("memory", Strength.HARD, f"{by_engine}: {limits.memory_gib:g} GiB")
            if engine.limits_memory
            else Containment("memory", Strength.SOFT, f"watchdog at {limits.memory_gib:g} GiB"),
        ]

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the engine does not answer.
        """
        check_spec(spec)
        self.require()
        binds = toolkit.toolkit_binds() if spec.python else toolkit.interpreter_binds()
        for path in [*binds, *(Path(system) for _, system in toolkit.system_binds())]:
            refuse_hidden(path, spec.hidden)
        gpu_devices(spec.gpus, self._devices)
        image = self._image()
        uid = self._uid(spec.workspace)
        if spec.workspace.stat().st_uid != uid:
            self.prepare_workspace(spec.workspace)
        if uid != os.geteuid():
            toolkit.refuse_unreadable([FORWARDER, *binds], "the Python toolkit")
            toolkit.refuse_unreadable([m.host for m in spec.mounts if not m.writable], "a mount")

        def launch_in(networked: SandboxSpec, room: Room, on_end: OnEnd) -> Launch:
            return self._launch(networked, room, image, uid, on_end)

        return start_in_room(spec, binds, uid, MADE_FILES, uid, launch_in)

    def _launch(self, spec: SandboxSpec, room: Room, image: str, uid: int, on_end: OnEnd) -> Launch:
        name = f"agent2-{os.getpid()}-{secrets.token_hex(4)}"
        path = toolkit.toolkit_path() if spec.python else toolkit.SYSTEM_PATH
        plan = Plan(
            command=list(spec.command),
            directory=WORKSPACE,
            environment={**BASE_ENVIRONMENT, "PATH": path, **gpu_environment(spec.gpus), **spec.environment},
            ports={str(port): f"{PRIVATE}/ports/{port}" for port in spec.ports},
            uid=None,
            rlimits={},
            die_with_parent=False,
            leash=True,
            calls=filter_in_words(memory_files=self.require().limits_memory or bool(spec.gpus)),
        )
        return Launch(
            argv=self.command(spec, room, name, image, uid),
            plan=plan,
            pass_fds=(),
            limits=spec.limits,
            workspace=spec.workspace,
            log=spec.log,
            group=Container(self._binary, name, self.require().limits_memory),
            depth=0,
            watched=True,
            stdin=spec.stdin,
            capture_bytes=spec.capture_bytes,
            listener=room.listener,
            on_end=on_end,
        )

    def command(self, spec: SandboxSpec, room: Room, name: str, image: str, uid: int) -> tuple[str, ...]:
        """The whole command line of one container."""
        limits = spec.limits
        memory, tmp = str(int(limits.memory_gib * GIB)), int(limits.tmp_gib * GIB)
        user = "0:0" if self.require().is_rootless else f"{uid}:{uid}"
        words = [self._binary, "run", "--name", name, "--pull", "never", "--interactive", "--log-driver", "none"]
        words += ["--network", "none", "--ipc", "private", "--hostname", "agent2", "--user", user, "--read-only"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--oom-score-adj", "1000"]
        if Path("/sys/fs/selinux/enforce").exists():
            words += ["--security-opt", "label=disable"]  # else the labels of the host's files keep the container out
        words += ["--pids-limit", str(limits.processes + OWN_PROCESSES), "--memory", memory, "--memory-swap", memory]
        words += ["--ulimit", f"nofile={limits.open_files}:{limits.open_files}", "--ulimit", "core=0:0"]
        size = int(limits.file_size_gib * GIB)
        words += ["--ulimit", f"fsize={size}:{size}", "--shm-size", str(tmp)]
        for place, mode in (("/tmp", "1777"), (HOME, "0777")):
            words += ["--tmpfs", f"{place}:rw,exec,nosuid,nodev,size={tmp},mode={mode}"]
        for device in gpu_devices(spec.gpus, self._devices):
            words += ["--device", f"{device}:/dev/{device.name}"]
        for bind in room.binds:
            fields = ["type=bind", csv_field(f"src={bind.host}"), csv_field(f"dst={bind.inside}")]
            words += ["--mount", ",".join(fields if bind.writable else [*fields, "readonly"])]
        return (*words, "--workdir", "/", image, *COMMAND)

    def _uid(self, workspace: Path) -> int:
        if self.require().is_rootless or not self._as_root:
            return os.geteuid()
        return uid_for(workspace)

    def _ask_engine(self) -> DockerEngine:
        where = os.environ.get("DOCKER_HOST", "unix://")
        if not where.startswith("unix://"):
            raise SandboxError(
                f"DOCKER_HOST is {where}: an engine elsewhere cannot show this host's files; unset it, or use "
                "--set sandbox=bubblewrap"
            )
        answer = _ask(self._binary, "info", "--format", "{{json .}}")
        try:
            said = json.loads(answer.stdout)
        except ValueError:
            said = {}
        if answer.returncode != 0 or not said.get("ServerVersion"):
            words = (answer.stderr.strip() or "; ".join(said.get("ServerErrors") or ["it said nothing"])).splitlines()
            raise SandboxError(
                f"the Docker engine does not answer ({words[-1]}); start it (systemctl start docker) and let this user "
                "use it (group docker), or use --set sandbox=bubblewrap"
            )
        options = " ".join(said.get("SecurityOptions") or [])
        return DockerEngine(
            str(said["ServerVersion"]),
            is_rootless="name=rootless" in options,
            limits_memory=bool(said.get("MemoryLimit")),
            limits_processes=bool(said.get("PidsLimit")),
        )

    def _image(self) -> str:
        """The empty root, made if it is not there yet. Raises SandboxError."""
        archive = root_archive()
        image = f"{IMAGE}:{hashlib.sha256(archive).hexdigest()[:12]}"
        if _ask(self._binary, "image", "inspect", "--format", "{{.Id}}", image).returncode == 0:
            return image
        made = _ask(self._binary, "import", "-", image, stdin=archive)
        if made.returncode != 0:
            raise SandboxError(
                f"the empty image {image} cannot be made: {made.stderr.strip()[-300:]}; free disk space?"
            )
        return image


class Container:
    """One container, as the keeper of its limits."""

    def __init__(self, binary: str, name: str, limits_memory: bool) -> None:
        self._binary = binary
        self._name = name
        self._limits_memory = limits_memory

    @property
    def controllers(self) -> frozenset[str]:
        """What the engine limits."""
        return frozenset({"memory", "pids"} if self._limits_memory else {"pids"})

    def adopt(self, pids: list[int]) -> None:
        """Nothing to do: the engine has put them into its groups."""

    def look(self) -> None:
        """Nothing to do: the engine remembers."""

    def broke(self) -> str | None:
        """Whether the engine says that the kernel killed for memory; an engine that is silent says nothing."""
        try:
            said = _ask(self._binary, "inspect", "--format", "{{.State.OOMKilled}}", self._name).stdout
        except SandboxError as error:
            logger.warning("how container %s ended is not known: %s", self._name, error)
            return None
        return "memory" if said.strip() == "true" else None

    def kill(self) -> None:
        """End the container."""
        _ask(self._binary, "kill", self._name)

    def remove(self) -> None:
        """Remove the container."""
        try:
            _ask(self._binary, "rm", "--force", self._name)
        except SandboxError as error:
            logger.warning("container %s stays behind: %s", self._name, error)


def _ask(binary: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Ask the engine; an error of its own is in the answer. Raises SandboxError if there is no client or answer."""
    try:
        answer = subprocess.run([binary, *words], input=stdin, capture_output=True, timeout=ASK_S, check=False)
    except OSError as error:
        raise SandboxError(
            f"{binary}: Docker is not installed ({error.strerror}); install it (docs.docker.com/engine/install), "
            "or use --set sandbox=bubblewrap"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{binary} {words[0]} did not answer in {ASK_S:g} s; look at the Docker engine") from error
    return subprocess.CompletedProcess(
        answer.args, answer.returncode, answer.stdout.decode(errors="replace"), answer.stderr.decode(errors="replace")
    )
