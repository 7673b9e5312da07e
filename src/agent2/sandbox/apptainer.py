"""The Apptainer back end (also SingularityCE), for clusters: the same view as bubblewrap's, started by its runtime.

The image is an empty folder made for each program; system, toolkit and mounts are bound from the host. Own mount,
process, IPC, host-name and network name spaces, a cleared environment, no capabilities, no new privileges. As root
the program becomes a host user of its own; otherwise it keeps ours, in a user name space or by the runtime's set-uid
starter. The number of processes is then counted over everything that this user runs on the host.

Limits are bubblewrap's (control group where we may make one, resource limits, watchdog), except that /tmp and the home
folder are on disk and are watched together with the workspace. GPUs are bound one by one, without --nv, which
would show all of them; the driver's libraries are those in the host's /usr.

Does not cover what an administrator's apptainer.conf adds or forbids; `require` tries it on a program that does
nothing.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from agent2.errors import SandboxError
from agent2.sandbox import host as toolkit
from agent2.sandbox.engine_room import COMMAND, OnEnd, Room, csv_field, make_root, start_in_room, system_mounts
from agent2.sandbox.forward import Plan
from agent2.sandbox.host import gpu_devices, gpu_environment, hand_over, has_root_rights, uid_for
from agent2.sandbox.limits import OWN_PROCESSES, Launch, held_by, keeper, rlimits, tasks_of_user
from agent2.sandbox.process import FORWARDER, SandboxProcess
from agent2.sandbox.seccomp import filter_in_words
from agent2.sandbox.spec import (
    BASE_ENVIRONMENT,
    HOME,
    PRIVATE,
    WORKSPACE,
    Containment,
    Limits,
    Mount,
    Network,
    SandboxSpec,
    Strength,
    check_spec,
    common_rows,
    refuse_hidden,
)

BINARIES = ("apptainer", "singularity")
CONTAIN = (
    *("--containall", "--cleanenv", "--no-eval", "--no-init", "--no-mount", "home,tmp,bind-paths"),
    *("--net", "--network", "none", "--hostname", "agent2", "--no-privs", "--pwd", "/"),
)
ROOT_CAPABILITIES = "CAP_SETUID,CAP_SETGID,CAP_SETPCAP"
"""Kept as root until forward.py has changed the user."""
MADE_FILES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/nsswitch.conf", "/etc/resolv.conf")
PROBE_S = 120.0


class Apptainer:
    """Runs programs in Apptainer containers."""

    name = "apptainer"

    def __init__(self, binary: str | None = None, *, as_root: bool | None = None, devices: Path = Path("/dev")) -> None:
        """binary: name or path; None looks for apptainer, then singularity. as_root: None asks the kernel.

        devices: where the device files of GPUs are.
        """
        found = [name for name in BINARIES if shutil.which(name)]
        self._binary = binary or (found[0] if found else BINARIES[0])
        self._as_root = has_root_rights() if as_root is None else as_root
        self._devices = devices
        self._version: str | None = None

    def visible_path(self, host: Path, inside: str) -> str:
        """Where the program sees a workspace or mount."""
        return inside

    def prepare_workspace(self, path: Path, *, user_of: Path | None = None) -> None:
        """Make the folder if needed and give it, with all it holds, to the container's user."""
        path.mkdir(parents=True, exist_ok=True)
        if self._as_root:
            hand_over(path, uid_for(user_of or path))

    def require(self) -> str:
        """The runtime's version, after trying it once.

        Raises SandboxError with one sentence that says what to do.
        """
        if self._version is None:
            answer = _run([self._binary, "--version"])
            found = re.search(r"\d+\.\d+(\.\d+)?", answer.stdout)
            if answer.returncode != 0 or found is None:
                raise SandboxError(
                    f"{self._binary} --version said {answer.stdout + answer.stderr!r}; install Apptainer 1.1 or newer"
                )
            self._probe()
            self._version = found.group()
        return self._version

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly on this host."""
        held = held_by(self._as_root)
        user = "own host user" if self._as_root else "this user"
        disk = Containment("disk", Strength.SOFT, f"watchdog at {limits.disk_gib:g} GiB of workspace, /tmp and {HOME}")
        pids = "RLIMIT_NPROC" + (f" and pids {held['pids']}" if "pids" in held else "")
        return [
            Containment("filesystem", Strength.HARD, f"container on an empty root with explicit binds, {user}"),
            Containment("host processes", Strength.HARD, "process and IPC namespaces of the container"),
            *common_rows(limits, network, gpus, disk),
            Containment("process count", Strength.HARD, f"{limits.processes}: {pids}"),
            Containment("memory", Strength.HARD, f"{held['memory']} of {limits.memory_gib:g} GiB")
            if "memory" in held
            else Containment("memory", Strength.SOFT, f"watchdog at {limits.memory_gib:g} GiB"),
        ]

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the runtime refuses.
        """
        check_spec(spec)
        self.require()
        binds = toolkit.toolkit_binds() if spec.python else toolkit.interpreter_binds()
        for path in [*binds, *(Path(system) for _, system in toolkit.system_binds())]:
            refuse_hidden(path, spec.hidden)
        uid = self._uid(spec)
        if self._as_root:
            toolkit.refuse_unreadable([FORWARDER, *binds], "the Python toolkit")
            toolkit.refuse_unreadable([m.host for m in spec.mounts if not m.writable], "a mount")
        devices = gpu_devices(spec.gpus, self._devices)

        def launch_in(networked: SandboxSpec, room: Room, on_end: OnEnd) -> Launch:
            return self._launch(networked, room, uid, devices, on_end)

        return start_in_room(spec, binds, uid, MADE_FILES, os.geteuid(), launch_in)

    def _launch(self, spec: SandboxSpec, room: Room, uid: int, devices: Iterable[Path], on_end: OnEnd) -> Launch:
        scratch = _make_scratch(room.folder, uid)
        make_root(room.folder / "root", [*scratch, *room.binds])
        search = toolkit.toolkit_path() if spec.python else toolkit.SYSTEM_PATH
        count = spec.limits.processes + OWN_PROCESSES + (0 if self._as_root else tasks_of_user(os.getuid()))
        plan = Plan(
            command=list(spec.command),
            directory=WORKSPACE,
            environment={**BASE_ENVIRONMENT, "PATH": search, **gpu_environment(spec.gpus), **spec.environment},
            ports={str(port): f"{PRIVATE}/ports/{port}" for port in spec.ports},
            uid=uid if self._as_root else None,
            rlimits=rlimits(spec.limits, count),
            die_with_parent=False,
            leash=True,
            calls=filter_in_words(memory_files="memory" in held_by(self._as_root) or bool(spec.gpus)),
        )
        group, before = keeper(spec.limits, self._as_root)
        return Launch(
            argv=before + self.command(room, scratch, devices),
            plan=plan,
            pass_fds=(),
            limits=spec.limits,
            workspace=spec.workspace,
            log=spec.log,
            group=group,
            depth=0,
            watched=True,
            stdin=spec.stdin,
            capture_bytes=spec.capture_bytes,
            listener=room.listener,
            on_end=on_end,
            also_watched=tuple(mount.host for mount in scratch),
        )

    def command(self, room: Room, scratch: Iterable[Mount], devices: Iterable[Path]) -> tuple[str, ...]:
        """The whole command line of one container."""
        words = self._first_words()
        for bind in [*scratch, *room.binds]:
            words += ["--mount", _mount(bind)]
        for device in devices:
            words += ["--bind", f"{device}:/dev/{device.name}"]
        return (*words, str(room.folder / "root"), *COMMAND)

    def _first_words(self) -> list[str]:
        kept = ["--add-caps", ROOT_CAPABILITIES] if self._as_root else []
        return [self._binary, "exec", *CONTAIN, *kept]

    def _uid(self, spec: SandboxSpec) -> int:
        if not self._as_root:
            return os.geteuid()
        uid = uid_for(spec.workspace)
        if spec.workspace.stat().st_uid != uid:
            self.prepare_workspace(spec.workspace)
        return uid

    def _probe(self) -> None:
        with tempfile.TemporaryDirectory(prefix="agent2-probe-") as place:
            root = Path(place) / "root"
            binds = system_mounts()
            make_root(root, binds)
            words = self._first_words()
            for bind in binds:
                words += ["--mount", _mount(bind)]
            answer = _run([*words, str(root), "/usr/bin/true"])
        if answer.returncode != 0:
            said = (answer.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise SandboxError(
                f"{self._binary} refuses ({said}); ask for user namespaces or its set-uid starter, and for "
                "'user bind control = yes' in its configuration, or use --set sandbox=bubblewrap"
            )


def _make_scratch(folder: Path, uid: int) -> tuple[Mount, ...]:
    """Folders for /tmp and the home folder."""
    mounts = []
    for name, inside in (("tmp", "/tmp"), ("home", HOME)):
        place = folder / name
        place.mkdir()
        if uid != os.geteuid():
            os.chown(place, uid, uid)
        mounts.append(Mount(place, inside, writable=True))
    return tuple(mounts)


def _mount(bind: Mount) -> str:
    """A --mount option, which is a line of CSV."""
    fields = ["type=bind", f"source={bind.host}", f"destination={bind.inside}", *([] if bind.writable else ["ro"])]
    return ",".join(csv_field(one) for one in fields)


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=PROBE_S, check=False, cwd="/")
    except OSError as error:
        raise SandboxError(
            f"{words[0]}: Apptainer is not installed ({error.strerror}); install it (apptainer.org), or use "
            "--set sandbox=bubblewrap"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"{words[0]} did not answer in {PROBE_S:g} s; try it by hand") from error
