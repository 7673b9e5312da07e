"""The default back end: bubblewrap (https://github.com/containers/bubblewrap), a namespace launcher.

The program sees an empty root with /usr, a few files of /etc, the Python toolkit and its mounts, all read-only;
/workspace read-write; /tmp, /home/agent and /dev/shm in memory. It has its own process, network, IPC and host
name spaces, no capabilities, no way to make user namespaces, and an environment made from an allow-list. Only the
ports of the spec lead out.

As root the sandbox makes no user namespace but changes to a user of its own (one for each workspace), because
limits on processes are ignored for root. Otherwise it uses a user namespace, which some hosts refuse.

Does not hide: the names of host folders in /proc/self/mountinfo, the kernel's version, the machine's size and
load. Does not protect against bugs of the kernel: the filter of system calls closes what `limits` lists. With GPUs it
adds their driver to what is reachable in the kernel, and /sys/devices to what can be read.
"""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from agent2.errors import SandboxError
from agent2.sandbox import host as toolkit
from agent2.sandbox.backends import OwnUserSandbox
from agent2.sandbox.host import (
    FORWARDER,
    NAMESPACES,
    bwrap_version,
    gpu_devices,
    gpu_folders,
    probe,
)
from agent2.sandbox.limits import (
    OWN_PROCESSES,
    Launch,
    call_filter,
    contained_plan,
    counts_per_namespace,
    held_by,
    in_memory,
    keeper,
    rlimits,
    tasks_of_user,
)
from agent2.sandbox.network import Way, with_network
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import (
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
)

UNPRIVILEGED_UID = 1000
"""Inside a user namespace."""
MIN_VERSION = (0, 7)
"""The first one with size limits on tmpfs."""


class Bubblewrap(OwnUserSandbox):
    """Runs programs in bubblewrap."""

    name = "bubblewrap"

    def __init__(self, binary: str = "bwrap", *, as_root: bool | None = None, devices: Path = Path("/dev")) -> None:
        """binary: name or path of bwrap. as_root: whether we have root's rights; None asks the kernel.

        devices: where the device files of GPUs are.
        """
        super().__init__(as_root, devices)
        self._binary = binary
        self._version: tuple[int, ...] | None = None

    @property
    def drops_user(self) -> bool:
        """Whether programs run as a host user of their own; else as ours, in a user namespace."""
        return self._as_root

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the host cannot contain it.
        """
        check_spec(spec)
        self.require()
        devices = gpu_devices(spec.gpus, self._devices)
        uid = self.own_workspace(spec) if self._as_root else UNPRIVILEGED_UID
        binds = toolkit.visible_toolkit(spec, other_user=self._as_root)
        spec, way = with_network(spec)
        options = _Options()
        try:
            if self._as_root:
                for socket in spec.ports.values():
                    os.chown(socket, uid, uid)
            self._isolate(options, spec)
            _fill(options, spec, binds, uid, devices)
            launch = self._launch(spec, options, uid, way)
        except BaseException:
            options.close()
            if way is not None:
                way.close()
            raise
        return SandboxProcess(launch)

    def require(self) -> tuple[int, ...]:
        """The version of bubblewrap, after checking once that this host lets it work.

        Raises SandboxError with one sentence that says what to do.
        """
        if self._version is None:
            version = bwrap_version(self._binary)
            if version < MIN_VERSION:
                raise SandboxError(
                    f"{self._binary} is version {'.'.join(map(str, version))}, 0.7 or newer is needed for limits on "
                    "/tmp; upgrade bubblewrap, or use --set sandbox=none"
                )
            probe(self._binary, as_root=self._as_root)
            self._version = version
        return self._version

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly on this host."""
        held = held_by(self._as_root)
        identity = "own host user" if self._as_root else "user namespace"
        pids = ["RLIMIT_NPROC"] + ([f"pids {held['pids']}"] if "pids" in held else [])
        memory = (
            Containment("memory", Strength.HARD, f"{held['memory']} of {limits.memory_gib:g} GiB")
            if "memory" in held
            else Containment(
                "memory", Strength.SOFT, f"watchdog at {limits.memory_gib:g} GiB, folders in memory not counted"
            )
        )
        return [
            Containment("filesystem", Strength.HARD, f"mount namespace with explicit binds, {identity}"),
            Containment("host processes", Strength.HARD, "process and IPC namespaces"),
            *common_rows(limits, network, gpus),
            Containment("process count", Strength.HARD, f"{limits.processes}: {' and '.join(pids)}"),
            memory,
        ]

    def _isolate(self, options: "_Options", spec: SandboxSpec) -> None:
        options.add(*NAMESPACES, "--hostname", "agent2", "--die-with-parent", "--new-session", "--clearenv")
        options.add("--cap-drop", "ALL")
        calls = call_filter(memory_files="memory" in held_by(self._as_root) or bool(spec.gpus))
        if calls is not None:
            options.add("--seccomp", str(options.keep(calls)))
        if self._as_root:
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
                options.add("--cap-add", capability)
            return
        options.add("--unshare-user", "--uid", str(UNPRIVILEGED_UID), "--gid", str(UNPRIVILEGED_UID))

    def _launch(self, spec: SandboxSpec, options: "_Options", uid: int, way: Way | None) -> Launch:
        process_limit = spec.limits.processes + OWN_PROCESSES
        if not self._as_root and not counts_per_namespace():
            process_limit += tasks_of_user(os.getuid())
        plan = contained_plan(
            spec,
            uid=uid if self._as_root else None,
            rlimits=rlimits(spec.limits, process_limit),
            leash=False,
            calls=None,
        )
        arguments = options.descriptor()
        group, before = keeper(spec.limits, self._as_root)
        argv = (
            *before,
            self._binary,
            "--args",
            str(arguments),
            "--",
            f"{PRIVATE}/python",
            "-I",
            "-S",
            f"{PRIVATE}/forward.py",
        )
        return Launch(
            argv=argv,
            plan=plan,
            spec=spec,
            group=group,
            pass_fds=tuple(options.descriptors),
            depth=2,
            on_end=() if way is None else (way.close,),
        )


class _Options:
    """Options for bwrap; handed over in a memory file, so that no process list shows them."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._folders: set[str] = set()
        self.descriptors: list[int] = []

    def add(self, *words: str) -> None:
        self._words.extend(words)

    def place(self, destination: str, *words: str) -> None:
        """Add an option that makes `destination`, after the folders on the way to it (readable by everybody)."""
        for parent in reversed(PurePosixPath(destination).parents[:-1]):
            if not any(parent.is_relative_to(folder) for folder in self._folders):
                self.add("--perms", "0755", "--dir", str(parent))
        self._folders.add(destination)
        self.add(*words)

    def bind(self, kind: str, host: str, inside: str) -> None:
        self.place(inside, kind, host, inside)

    def file(self, path: str, content: str) -> None:
        self.place(path, "--perms", "0444", "--file", str(self.keep(content.encode())), path)

    def tmpfs(self, path: str, limits: Limits, mode: str) -> None:
        size = str(int(limits.tmp_gib * GIB))
        self.place(path, "--size", size, "--perms", mode, "--tmpfs", path)
        self._folders.discard(path)  # empty: folders on the way to what is bound below it must be made

    def descriptor(self) -> int:
        """All options as NUL-separated words."""
        return self.keep("\0".join(self._words).encode())

    def keep(self, content: bytes) -> int:
        """A descriptor from which bwrap reads `content`."""
        descriptor = in_memory("agent2", content)
        self.descriptors.append(descriptor)
        return descriptor

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def _fill(options: _Options, spec: SandboxSpec, binds: Iterable[Path], uid: int, devices: Iterable[Path]) -> None:
    """Everything that the program sees."""
    options.add("--tmpfs", "/")
    for kind, path in toolkit.system_binds():
        if kind == "link":
            options.place(path, "--symlink", os.readlink(path), path)
        else:
            options.bind("--ro-bind", os.path.realpath(path), path)
    for path, content in toolkit.made_files(uid).items():
        options.file(path, content)
    options.bind("--ro-bind", str(FORWARDER.resolve()), f"{PRIVATE}/forward.py")
    options.place(f"{PRIVATE}/python", "--symlink", str(toolkit.interpreter()), f"{PRIVATE}/python")
    for port, socket in spec.ports.items():
        options.bind("--ro-bind", str(socket.resolve()), f"{PRIVATE}/ports/{port}")
    options.place("/proc", "--proc", "/proc")
    for keys in ("/proc/keys", "/proc/key-users"):
        if os.path.exists(keys):  # they name the keys of the harness's session
            options.add("--ro-bind", "/dev/null", keys)
    options.place("/dev", "--dev", "/dev")
    options.tmpfs("/dev/shm", spec.limits, "1777")
    for device in devices:
        options.bind("--dev-bind", str(device), f"/dev/{device.name}")
    for folder in gpu_folders() if spec.gpus else []:
        options.bind("--ro-bind", str(folder), str(folder))
    options.add("--remount-ro", "/dev")
    options.tmpfs("/tmp", spec.limits, "1777")
    options.tmpfs(HOME, spec.limits, "0777")
    for bind in binds:  # after /tmp and the home folder, below which an environment may lie
        options.bind("--ro-bind", str(bind.resolve()), str(bind))
    for mount in spec.mounts:
        options.bind("--bind" if mount.writable else "--ro-bind", str(mount.host.resolve()), mount.inside)
    options.bind("--bind", str(spec.workspace.resolve()), WORKSPACE)
    options.add("--remount-ro", "/", "--chdir", "/")
