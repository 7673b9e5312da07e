"""The table of sandboxes, the default one (bubblewrap), none at all, and `run_contained` for a program that ends.

Bubblewrap (https://github.com/containers/bubblewrap) is a namespace launcher. The program sees an empty root with /usr,
a few files of /etc, the Python toolkit and its mounts, all read-only; /workspace read-write; /tmp, /home/agent and
/dev/shm in memory. It has its own process, network, IPC and UTS namespaces, no capabilities, no way to make user
namespaces, and an environment made from an allow-list. Only the ports of the spec lead out. As root the sandbox makes
no user namespace but changes to a user of its own (one for each workspace), because limits on processes are ignored for
root. Otherwise it uses a user namespace, which some hosts refuse. Does not hide: the names of host folders in
/proc/self/mountinfo, the kernel's version, the machine's size and load. Does not protect against bugs of the kernel:
the filter of system calls closes what `limits` lists. With GPUs it adds their driver to what is reachable in the
kernel, and /sys/devices to what can be read. `agent2.sandbox.containers` gives the same view by a container engine.

`Unsandboxed` runs the program as a plain child, with the rights of the user who runs the harness: only for trusted
programs, on hosts where nothing else works; reports must say that it was used. The environment is the
allow-list, ports are offered on the host's own loopback, and inside paths in the command and the environment are
replaced by host paths. Contains nothing: no limit of the spec is enforced, except that the log file stays small; no
network policy and no choice of GPUs has an effect. Killing the harness ends the command, but not what the command
started.

`run_contained` is for our own programs that handle untrusted input, such as the evaluation of a submitted checkpoint:
input in, bytes out. The program sees the Python toolkit and its mounts, read-only, and writes one scratch folder (its
working directory, seen as /workspace) and those mounts that are marked writable. It has no network, no port, no host
process, none of the harness's variables; it ends with the harness (kill -9 included), at its time limit, or when `stop`
is set, and takes everything that it started with it. What it prints to standard error goes to the log.

    sandbox = find_sandbox()
    request = Contained(
        command=("python", "-P", "-m", "agent2.arena.grader.child"),
        scratch=folder,                      # /workspace inside; HOME and TMPDIR are elsewhere, in memory
        log=card_log,
        mounts=(Mount(base, "/base"), Mount(snapshot, "/checkpoint"), Mount(draft, "/card", writable=True)),
        environment={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdin=job_json,
        limits=Limits(memory_gib=8),
    )
    end = run_contained(request, sandbox, timeout_s=600, stop=event)

Use `inside` for the paths that the input names: `inside(request, sandbox, host_path)` is the path that the program
sees, in every back end, the unsandboxed one too. As root the program runs as a host user of its own. Read-only mounts
must then be readable by every user (chmod -R o+rX; parents do not matter), else SandboxError says which file is not;
scratch and writable mounts are given to that user here. What it wrote is hostile when it comes back: open it without
following links, and bound its size.
"""

import importlib
import logging
import math
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from agent2.errors import SandboxError, unknown_name
from agent2.sandbox import host as toolkit
from agent2.sandbox.fork_server import ForkRefused, ForkServer
from agent2.sandbox.forward import Plan
from agent2.sandbox.host import (
    FORWARDER,
    NAMESPACES,
    SYSTEM_PATH,
    bwrap_version,
    chown_tree,
    gpu_devices,
    gpu_folders,
    has_root_rights,
    in_memory,
    probe,
    toolkit_path,
    uid_for,
)
from agent2.sandbox.limits import (
    OWN_PROCESSES,
    Launch,
    call_filter,
    contained_plan,
    counts_per_namespace,
    enforced_by,
    make_enforcer,
    rlimits,
    tasks_of_user,
)
from agent2.sandbox.network import ProxyProcess, with_network
from agent2.sandbox.process import Fork, SandboxProcess
from agent2.sandbox.processor_time import ProcessorLimit
from agent2.sandbox.spec import (
    BASE_ENVIRONMENT,
    GIB,
    HOME,
    MIB,
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
)

logger = logging.getLogger(__name__)

SANDBOXES: dict[str, str] = {
    "bubblewrap": "agent2.sandbox.backends:Bubblewrap",
    "docker": "agent2.sandbox.containers:Docker",
    "apptainer": "agent2.sandbox.containers:Apptainer",
    "none": "agent2.sandbox.backends:Unsandboxed",
}
"""Name -> "module:Class"."""
DEFAULT_SANDBOX = "bubblewrap"
POLL_S = 0.1
MEASURE_S = 0.5
"""Between two looks at processor time, each of which goes through all processes of the host."""
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
UNPRIVILEGED_UID = 1000
"""Inside a user namespace."""
MIN_VERSION = (0, 7)
"""The first one with size limits on tmpfs."""


class Sandbox(Protocol):
    """Runs untrusted programs."""

    @property
    def name(self) -> str:
        """As in `SANDBOXES`."""

    def require(self) -> object:
        """Raise SandboxError if this host does not let it work; asked before anything long is done."""

    def visible_path(self, host: Path, inside: str) -> str:
        """Where the program sees what the spec puts at `inside`; write this into texts for the program."""

    def prepare_workspace(self, path: Path, *, user_of: Path | None = None) -> None:
        """Make the folder if needed and let the program write everything in it; call it after filling it.

        user_of: the workspace of the program, where `path` is another folder that it may write.
        """

    def start(self, spec: SandboxSpec) -> SandboxProcess:
        """Run a program; returns when it is about to start.

        Raises SandboxError if the spec cannot be run as asked or the host cannot contain it.
        """

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """What holds how strongly on this host, for the report."""


class OwnUserSandbox:
    """What back ends share whose programs run, where we are root, as a host user of their own: one per workspace."""

    def __init__(self, as_root: bool | None, devices: Path) -> None:
        """as_root: whether we have root's rights; None asks the kernel. devices: where GPUs' device files are."""
        self._as_root = has_root_rights() if as_root is None else as_root
        self._devices = devices

    def visible_path(self, host: Path, inside: str) -> str:
        """Where the program sees a workspace or mount."""
        return inside

    def prepare_workspace(self, path: Path, *, user_of: Path | None = None) -> None:
        """Make the folder if needed and give it, with all it holds, to the sandbox's user."""
        path.mkdir(parents=True, exist_ok=True)
        uid = self.user_of(user_of or path)
        if uid != os.geteuid():
            chown_tree(path, uid)

    def user_of(self, workspace: Path) -> int:
        """The host user that programs with this workspace run as."""
        return uid_for(workspace) if self._as_root else os.geteuid()

    def own_workspace(self, spec: SandboxSpec) -> int:
        """The program's host user, after giving it the workspace where that is not its own yet."""
        uid = self.user_of(spec.workspace)
        if spec.workspace.stat().st_uid != uid:
            self.prepare_workspace(spec.workspace)
        return uid


def find_sandbox(name: str | None = None) -> Sandbox:
    """The sandbox of that name; None is the default one, never one that contains nothing.

    Raises ConfigError for an unknown name. `require` says whether the host allows it.
    """
    chosen = DEFAULT_SANDBOX if name is None else name
    if chosen not in SANDBOXES:
        raise unknown_name("sandbox", chosen, SANDBOXES)
    module, _, attribute = SANDBOXES[chosen].partition(":")
    sandbox: Sandbox = getattr(importlib.import_module(module), attribute)()
    return sandbox


def sandbox_here() -> Sandbox:
    """The default sandbox; inside one of ours, where namespaces are refused, "none": what runs there is contained."""
    return find_sandbox("none" if Path(PRIVATE).is_dir() else None)


@dataclass(frozen=True, slots=True)
class Contained:
    """One program to run to its end."""

    command: tuple[str, ...]
    """Looked up in the PATH inside; "python" is the running interpreter with its packages."""
    scratch: Path
    """Host folder, writable, made if needed; seen as /workspace, where the program starts."""
    log: Path
    """Host file for standard error; replaced."""
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    stdout_bytes: int = 16 * MIB
    """Of standard output at most so many are kept."""
    limits: Limits = field(default_factory=Limits)
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that it may use."""
    hidden: tuple[Path, ...] = ()
    """Host paths that must stay out of reach: a mount that would show one is refused."""


class EndedBy(StrEnum):
    """What ended the program."""

    ITSELF = "itself"
    """It ended, crashed, or ran into a limit (`ContainedEnd.broke`)."""
    TIMEOUT = "timeout"
    PROCESSOR = "processor"
    """Its processor time was used up, or it stood idle."""
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class ContainedEnd:
    """How it ended and what it answered."""

    ended_by: EndedBy
    code: int
    """Exit status; 128 + n when signal n ended it."""
    stdout: bytes
    dropped: int
    """Bytes of standard output beyond `stdout_bytes`; an answer with a part missing is not an answer."""
    broke: str | None
    """The limit it ran into, as in `SandboxExit`."""
    reason: str
    """One sentence."""
    used_s: float | None = None
    """Processor seconds, up to half a second before the end; None: not asked for, or not measured."""


def run_contained(
    request: Contained,
    sandbox: Sandbox,
    *,
    timeout_s: float,
    silence_s: float | None = None,
    processor: ProcessorLimit | None = None,
    stop: threading.Event | None = None,
    server: ForkServer | None = None,
) -> ContainedEnd:
    """Run the program until it ends, its time is over or `stop` is set; it is gone when this returns.

    timeout_s: seconds, start included. silence_s: most seconds without further output once it has printed something,
    for a program that prints as it works; None: only timeout_s counts. processor: a limit on processor time, which a
    busy machine does not shorten; timeout_s then is for what never ends. server: forks the program where sandbox and
    request allow it; else it is started. Raises SandboxError if the program cannot be contained as asked.
    """
    started_at = time.monotonic()
    ends_at = started_at + timeout_s
    silent_until, n_printed = math.inf, 0
    used_s: float | None = None
    next_measurement = started_at
    passed: str | None = None
    spec = contained_spec(request, sandbox)
    process = _start_fork(spec, sandbox, server, ends_at, stop) or sandbox.start(spec)
    ended_by = EndedBy.ITSELF
    try:
        ended = process.wait(0)
        while ended is None:
            ended = process.wait(min(POLL_S, max(0.0, ends_at - time.monotonic())))
            if ended is not None:
                break
            if silence_s is not None and process.captured.n_written > n_printed:
                n_printed, silent_until = process.captured.n_written, time.monotonic() + silence_s
            if processor is not None and time.monotonic() >= next_measurement:
                next_measurement = time.monotonic() + MEASURE_S
                used_s = process.used_s
                passed = processor.passed_by(used_s, time.monotonic() - started_at)
            if stop is not None and stop.is_set():
                ended_by, ended = EndedBy.STOP, process.stop(0)
            elif time.monotonic() >= min(ends_at, silent_until):
                ended_by, ended = EndedBy.TIMEOUT, process.stop(0)
            elif passed is not None:
                ended_by, ended = EndedBy.PROCESSOR, process.stop(0)
    finally:
        process.stop(0)  # after an exception; does nothing to a program that has ended
    reason = {
        EndedBy.TIMEOUT: "the program was killed because its time was over",
        EndedBy.PROCESSOR: f"the program was killed because {passed}",
    }.get(ended_by, ended.reason)
    captured = process.captured
    return ContainedEnd(ended_by, ended.code, captured.data, captured.dropped, ended.broke, reason, used_s)


def _start_fork(
    spec: SandboxSpec, sandbox: Sandbox, server: ForkServer | None, ends_at: float, stop: threading.Event | None
) -> SandboxProcess | None:
    """The program, forked from the server; None where it has to be started."""
    if server is None or not isinstance(sandbox, Bubblewrap) or not server.runs(spec):
        return None
    while not server.has_settled(POLL_S):
        if time.monotonic() >= ends_at or (stop is not None and stop.is_set()):
            return None  # the program is started, to be ended at once
    try:
        return sandbox.start_fork(spec, server)
    except ForkRefused as error:
        logger.warning("%s", error)
        return None


def contained_spec(request: Contained, sandbox: Sandbox) -> SandboxSpec:
    """The request as a spec; makes the writable folders and gives them to the program's user."""
    sandbox.prepare_workspace(request.scratch)
    for mount in request.mounts:
        if mount.writable:
            sandbox.prepare_workspace(mount.host, user_of=request.scratch)
    return SandboxSpec(
        command=request.command,
        workspace=request.scratch,
        log=request.log,
        mounts=request.mounts,
        environment=request.environment,
        limits=request.limits,
        hidden=request.hidden,
        stdin=request.stdin,
        capture_bytes=request.stdout_bytes,
        gpus=request.gpus,
    )


def inside(request: Contained, sandbox: Sandbox, host: Path) -> Path:
    """The path under which the program sees a host path that is in its scratch folder or one of its mounts.

    Raises SandboxError for a path that it does not see.
    """
    mounts = [Mount(request.scratch, WORKSPACE, writable=True), *request.mounts]
    target = host.absolute()
    for mount in sorted(mounts, key=lambda mount: len(mount.host.absolute().parts), reverse=True):
        if target.is_relative_to(mount.host.absolute()):
            below = target.relative_to(mount.host.absolute())
            return Path(sandbox.visible_path(mount.host, mount.inside)) / below
    raise SandboxError(f"{host} is in no folder that the contained program sees; add a mount for it")


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
        host_paths = {WORKSPACE: spec.workspace} | {mount.inside: mount.host for mount in spec.mounts}
        inside_paths = sorted(host_paths, key=len, reverse=True)  # the longest first: mounts may be nested

        def outside(value: str) -> str:
            for inside in inside_paths:
                if value == inside or value.startswith(inside + "/"):
                    return self.visible_path(host_paths[inside], inside) + value[len(inside) :]
            return value

        environment = dict(BASE_ENVIRONMENT) | {"PATH": toolkit_path() if spec.python else SYSTEM_PATH}
        for name in PRIVATE_FOLDERS:
            environment[name] = os.environ.get(name, "/tmp")
        if spec.gpus:  # by their own numbers: nothing hides the others from a program that asks for them
            environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, spec.gpus))}
        environment |= {name: outside(value) for name, value in spec.environment.items()}
        plan = Plan(
            command=[outside(argument) for argument in spec.command],
            directory=str(spec.workspace.resolve()),
            environment=environment,
            ports={str(port): str(path.resolve()) for port, path in spec.ports.items()},
            uid=None,
            rlimits={},
            die_with_parent=True,
            leash=False,
            calls=None,
            joined=False,
        )
        return SandboxProcess(
            Launch(
                argv=(sys.executable, "-I", "-S", str(FORWARDER)),
                plan=plan,
                spec=spec,
                enforcer=None,
                watched=False,
            )
        )

    def containment(
        self, limits: Limits, *, network: Network = Network.NONE, gpus: tuple[int, ...] = ()
    ) -> list[Containment]:
        """No protection of any kind."""
        return [
            Containment(aspect, Strength.NONE, "the program runs as the harness's user") for aspect in NOT_CONTAINED
        ]


def free_port() -> int:
    """A free loopback port outside the range from which the kernel serves outgoing connections.

    A port of that range might be taken by any outgoing connection of the host between this call and its use. Raises
    SandboxError if a hundred draws find none.
    """
    try:
        first = int(EPHEMERAL_PORTS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768  # Linux's default
    # not of the process's generator: trainers seed it, and two processes with one seed would draw the same ports
    for port in random.SystemRandom().sample(range(1024, max(first, 2048)), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SandboxError("no free loopback port was found in 100 draws; close programs that listen on this host")


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
        return self._start(spec, None)

    def start_fork(self, spec: SandboxSpec, server: ForkServer) -> SandboxProcess:
        """Like `start`, for a program that is forked from a server. Raises ForkRefused if that cannot be done."""
        return self._start(spec, server)

    def _start(self, spec: SandboxSpec, server: ForkServer | None) -> SandboxProcess:
        check_spec(spec)
        self.require()
        devices = gpu_devices(spec.gpus, self._devices)
        uid = self.own_workspace(spec) if self._as_root else UNPRIVILEGED_UID
        binds = toolkit.visible_toolkit(spec, other_user=self._as_root)
        spec, proxy = with_network(spec)
        options = _BwrapOptions()
        try:
            if self._as_root:
                for path in spec.ports.values():  # else the program's user could not connect
                    os.chown(path, uid, uid)
            self._isolate(options, spec)
            _add_view(options, spec, binds, uid, devices)
            launch = self._launch(spec, options, uid, proxy)
            fork = None if server is None else self._fork(launch, server)
        except BaseException:
            options.close()
            if proxy is not None:
                proxy.close()
            raise
        return SandboxProcess(launch if fork is None else replace(launch, plan={**launch.plan, "joined": True}), fork)

    def _fork(self, launch: Launch, server: ForkServer) -> Fork:
        """The plan with the filter that bubblewrap sets for what it starts itself."""
        calls = self._call_filter(launch.spec)
        return Fork(server, {**launch.plan, "calls": None if calls is None else calls.hex()})

    def _call_filter(self, spec: SandboxSpec) -> bytes | None:
        return call_filter(memory_files="memory" in enforced_by(self._as_root) or bool(spec.gpus))

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
        held = enforced_by(self._as_root)
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

    def _isolate(self, options: "_BwrapOptions", spec: SandboxSpec) -> None:
        options.add(*NAMESPACES, "--hostname", "agent2", "--die-with-parent", "--new-session", "--clearenv")
        options.add("--cap-drop", "ALL")
        calls = self._call_filter(spec)
        if calls is not None:
            options.add("--seccomp", str(options.descriptor_of(calls)))
        if self._as_root:  # forward.py needs these to change the user, and drops them with it
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
                options.add("--cap-add", capability)
            return
        options.add("--unshare-user", "--uid", str(UNPRIVILEGED_UID), "--gid", str(UNPRIVILEGED_UID))
        # bwrap's own first process would have the program's user, who could trace it and stay there after its own end
        options.add("--as-pid-1")

    def _launch(self, spec: SandboxSpec, options: "_BwrapOptions", uid: int, proxy: ProxyProcess | None) -> Launch:
        process_limit = spec.limits.processes + OWN_PROCESSES
        if not self._as_root and not counts_per_namespace():
            process_limit += tasks_of_user(os.getuid())  # the kernel counts these as well
        plan = contained_plan(
            spec,
            uid=uid if self._as_root else None,
            rlimits=rlimits(spec.limits, process_limit),
            leash=False,
            calls=None,
        )
        arguments = options.descriptor()
        enforcer, prefix = make_enforcer(spec.limits, self._as_root)
        argv = (
            *prefix,
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
            enforcer=enforcer,
            pass_fds=tuple(options.descriptors),
            depth=2 if self._as_root else 1,
            on_end=() if proxy is None else (proxy.close,),
        )


class _BwrapOptions:
    """Options for bwrap; handed over in a memory file, so that no process list shows them."""

    def __init__(self) -> None:
        self._options: list[str] = []
        self._folders: set[str] = set()
        self.descriptors: list[int] = []

    def add(self, *options: str) -> None:
        self._options.extend(options)

    def make(self, destination: str, *option: str) -> None:
        """Add an option that makes `destination`, after the folders on the way to it (readable by every user)."""
        folder, is_inside = "", False
        for name in destination.split("/")[1:-1]:
            folder += "/" + name
            is_inside = is_inside or folder in self._folders
            if not is_inside:
                self.add("--perms", "0755", "--dir", folder)
        self._folders.add(destination)
        self.add(*option)

    def bind(self, option: str, host: str, inside: str) -> None:
        self.make(inside, option, host, inside)

    def file(self, path: str, content: str) -> None:
        self.make(path, "--perms", "0444", "--file", str(self.descriptor_of(content.encode())), path)

    def tmpfs(self, path: str, limits: Limits, mode: str) -> None:
        size = str(int(limits.tmp_gib * GIB))
        self.make(path, "--size", size, "--perms", mode, "--tmpfs", path)
        self._folders.discard(path)  # it hides what was there: folders below it must be made for what is bound there

    def descriptor(self) -> int:
        """All options as NUL-separated words."""
        return self.descriptor_of("\0".join(self._options).encode())

    def descriptor_of(self, content: bytes) -> int:
        """A descriptor from which bwrap reads `content`."""
        descriptor = in_memory("agent2", content)
        self.descriptors.append(descriptor)
        return descriptor

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def _add_view(
    options: _BwrapOptions, spec: SandboxSpec, binds: Iterable[Path], uid: int, devices: Iterable[Path]
) -> None:
    """Everything that the program sees."""
    options.add("--tmpfs", "/")
    for kind, path in toolkit.system_binds():
        if kind == "link":
            options.make(path, "--symlink", os.readlink(path), path)
        else:
            options.bind("--ro-bind", os.path.realpath(path), path)
    for path, content in toolkit.etc_files(uid).items():
        options.file(path, content)
    options.bind("--ro-bind", str(FORWARDER.resolve()), f"{PRIVATE}/forward.py")
    options.make(f"{PRIVATE}/python", "--symlink", str(toolkit.interpreter()), f"{PRIVATE}/python")
    for port, server in spec.ports.items():
        options.bind("--ro-bind", str(server.resolve()), f"{PRIVATE}/ports/{port}")
    options.make("/proc", "--proc", "/proc")
    for keys in ("/proc/keys", "/proc/key-users"):
        if os.path.exists(keys):  # these files name the keys of the harness's session
            options.add("--ro-bind", "/dev/null", keys)
    options.make("/dev", "--dev", "/dev")
    options.tmpfs("/dev/shm", spec.limits, "1777")
    for device in devices:
        options.bind("--dev-bind", str(device), f"/dev/{device.name}")
    for folder in gpu_folders() if spec.gpus else []:
        options.bind("--ro-bind", str(folder), str(folder))
    options.add("--remount-ro", "/dev")
    options.tmpfs("/tmp", spec.limits, "1777")
    options.tmpfs(HOME, spec.limits, "0777")
    for bind in binds:  # after /tmp and the home folder, below which a virtual environment may be
        options.bind("--ro-bind", str(bind.resolve()), str(bind))
    for mount in spec.mounts:
        options.bind("--bind" if mount.writable else "--ro-bind", str(mount.host.resolve()), mount.inside)
    options.bind("--bind", str(spec.workspace.resolve()), WORKSPACE)
    options.add("--remount-ro", "/", "--chdir", "/")
