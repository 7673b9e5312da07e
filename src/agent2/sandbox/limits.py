"""What a back end hands over to have one program started, and what holds the program on this host: limits, a filter.

The kernel keeps resource limits of each process, and control groups where we may make them: directly below the
controller's root if that is where this process lives, or in the group that an administrator names in $AGENT2_CGROUP. A
group that some other supervisor made for us is not ours to build in: there systemd is asked, and without it the limits
fall back to RLIMIT_NPROC (hard, once the user is dropped) and to the watchdog (soft). Covers the numbers of processes
and bytes of memory. Does not cover CPU time, disk bandwidth or GPU memory.

On most Linux machines systemd owns the control groups; its documented way to get one is to ask it for a transient
scope. As root the system's manager is asked, otherwise the user's own, if it may limit memory (which it may by default
on machines with version 2 of control groups). `systemd-run --scope` becomes the program it starts, so nothing else
changes. A scope reports that memory was the limit only if it could look before the scope was gone.

The filter of system calls refuses kernel interfaces that no namespace covers, or that no limit of a sandbox counts:

- Namespaces of one's own (`clone`, `unshare`, `setns`): in a user namespace any user is root for the kernel, may mount
  memory file systems that no size limit covers, and reaches kernel code that is closed to ordinary users.
- Socket families other than unix, IPv4, IPv6 and routing information: AF_VSOCK has the host's own addresses whatever
  the network namespace, others are kernel code that is not needed here. Of IP only TCP, UDP and ICMP.
- Keyrings: the session keyring of the harness is inherited.
- System V IPC and pages given to pipes (`vmsplice`): memory of no process. Memory files where no control group
  counts them.
- bpf, perf events, userfaultfd, io_uring, the mount interface, kernel modules and the kernel's log.

Everything else is allowed. `clone3` (whose flags a filter cannot read; C libraries then use `clone`) and calls of a
foreign architecture do not exist (32-bit programs do not run).

The filter is for x86-64 and 64-bit ARM; elsewhere there is none. Format: classic BPF, linux/filter.h and seccomp(2).
"""

import errno
import itertools
import logging
import os
import platform
import shutil
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from agent2.errors import SandboxError
from agent2.sandbox.forward import Plan
from agent2.sandbox.host import SYSTEM_PATH, gpu_environment, toolkit_path
from agent2.sandbox.spec import BASE_ENVIRONMENT, GIB, PRIVATE, WORKSPACE, Limits, SandboxSpec

logger = logging.getLogger(__name__)

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_VARIABLE = "AGENT2_CGROUP"
CONTROLLERS = ("pids", "memory")
OWN_PROCESSES = 4
"""Of the sandbox itself: bubblewrap twice, forward.py twice."""
REMOVE_TRIES = 50
MANAGER = Path("/run/systemd/system")
"""Exists where systemd runs the machine."""
_numbers = itertools.count()
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWUSER, -NS, -CGROUP, -UTS, -IPC, -PID and -NET."""
CLONE_NEWTIME = 0x80
ALLOW = 0x7FFF0000
REFUSE = 0x00050000
FOREIGN_CALLS = 0x40000000
"""On x86-64, numbers from here on belong to the x32 interface."""
PROTOCOLS = (0, 1, 6, 17, 58)
"""Any, ICMP, TCP, UDP, ICMPv6."""
ABSENT = (
    *("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "memfd_secret", "vmsplice"),
    *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl"),
)
"""Answered as by a kernel that does not have them, so that programs take another way."""
REFUSED = (
    *("setns", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "syslog", "acct", "reboot"),
    *("mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "open_tree_attr", "open_by_handle_at", "fanotify_init", "quotactl", "quotactl_fd"),
    *("swapon", "swapoff", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
)
_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "mount_setattr": 442,
    "quotactl_fd": 443, "memfd_secret": 447, "open_tree_attr": 467,
}  # fmt: skip
LOAD_WORD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_IF_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
_Step = tuple[int, int, str]
"""Operation, operand, and the label to jump to where its condition is true; "": to the next step."""


class LimitEnforcer(ABC):
    """Holds limits on the program as a whole: control groups, a systemd scope or a container engine.

    Subclasses override what they need; only `broke` has no default.
    """

    controllers: frozenset[str]
    """What it limits: "memory", "pids"."""

    def adopt(self, pids: list[int]) -> None:  # noqa: B027
        """Take in the processes of a sandbox that is about to start its command. Raises SandboxError."""

    def adopt_fork(self, pid: int) -> None:
        """Take in a process that was started outside and joined the sandbox. Raises SandboxError."""
        self.adopt([pid])

    def look(self) -> None:  # noqa: B027
        """Called about as often as the watchdog looks; for enforcers whose counters are gone when the program ends."""

    @abstractmethod
    def broke(self) -> str | None:
        """The limit that had to be enforced ("memory", "processes"), if any; asked after the end."""

    def kill(self) -> None:  # noqa: B027
        """End what is not a descendant of the outermost process."""

    def remove(self) -> None:  # noqa: B027
        """Tidy up; the program has ended or never started."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one program."""

    argv: tuple[str, ...]
    """The outermost program. If `listener` is None, the number of the link's descriptor is appended."""
    plan: Plan
    spec: SandboxSpec
    enforcer: LimitEnforcer | None
    pass_fds: tuple[int, ...] = ()
    """Closed here once the program has them."""
    depth: int = 0
    """Generations from the outermost process to forward.py, where the end of a namespace ends all in it; else 0."""
    watched: bool = True
    """Whether the soft limits are enforced."""
    listener: socket.socket | None = None
    """Where forward.py connects, if it cannot inherit descriptors; closed here."""
    also_watched: tuple[Path, ...] = ()
    """Folders beside the workspace that count towards the limit on disk space."""
    on_end: tuple[Callable[[], None], ...] = field(default_factory=tuple)
    """Called when the program has ended, or has failed to start."""

    def abandon(self) -> None:
        """Give back what was taken for a program that will not be started."""
        for descriptor in self.pass_fds:
            os.close(descriptor)
        self.release()

    def release(self) -> None:
        """Tidy up after the end."""
        if self.listener is not None:
            self.listener.close()
        if self.enforcer is not None:
            self.enforcer.remove()
        for call in self.on_end:
            call()


def contained_plan(
    spec: SandboxSpec, *, uid: int | None, rlimits: dict[str, int], leash: bool, calls: str | None
) -> Plan:
    """What forward.py does in a sandbox where namespaces end what the command leaves running; see `Plan`."""
    path = toolkit_path() if spec.python else SYSTEM_PATH
    return Plan(
        command=list(spec.command),
        directory=WORKSPACE,
        environment={**BASE_ENVIRONMENT, "PATH": path, **gpu_environment(spec.gpus), **spec.environment},
        ports={str(port): f"{PRIVATE}/ports/{port}" for port in spec.ports},
        uid=uid,
        rlimits=rlimits,
        die_with_parent=False,
        leash=leash,
        calls=calls,
        joined=False,
    )


def rlimits(limits: Limits, process_limit: int | None) -> dict[str, int]:
    """Resource limits by their name below `resource.RLIMIT_`.

    process_limit: None where the kernel's count would include other processes of this user.
    """
    values = {
        "FSIZE": int(limits.file_size_gib * GIB),
        "NOFILE": limits.open_files,
        "CORE": 0,
    }
    if process_limit is not None:
        values["NPROC"] = process_limit
    return values


def counts_per_namespace() -> bool:
    """Whether RLIMIT_NPROC in a user namespace counts only what runs in it (Linux 5.14 and later)."""
    numbers = os.uname().release.split("-")[0].split(".")
    return (int(numbers[0]), int(numbers[1])) >= (5, 14)


def tasks_of_user(uid: int) -> int:
    """Threads that a user runs on this host now."""
    total = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == uid:
            total += process.info["num_threads"] or 1
    return total


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where one controller's groups can be made."""

    controller: str
    parent: Path
    version: int


def hierarchies(root: Path = CGROUP_ROOT, membership: str | None = None) -> dict[str, Hierarchy | str]:
    """For each controller, where groups can be made, or one sentence why they cannot.

    root: the mounted control groups. membership: text of /proc/self/cgroup.
    """
    text = Path("/proc/self/cgroup").read_text() if membership is None else membership
    own_groups = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        own_groups.update(dict.fromkeys(names.split(","), path))
    return {controller: _hierarchy(controller, root, own_groups) for controller in CONTROLLERS}


def _hierarchy(controller: str, root: Path, own_groups: dict[str, str]) -> Hierarchy | str:
    version = 1 if controller in own_groups else 2
    top = root / controller if version == 1 else root
    group = own_groups.get(controller, own_groups.get("", "/"))
    named = os.environ.get(CGROUP_VARIABLE)
    if not (top / "cgroup.procs").exists():
        return f"{controller} control groups are not mounted at {top}"
    if named is None and group != "/":
        return f"the {controller} group {group} belongs to another supervisor; name one of ours in ${CGROUP_VARIABLE}"
    parent = top / (named or "").strip("/")
    if not os.access(parent, os.W_OK | os.X_OK) or os.statvfs(parent).f_flag & os.ST_RDONLY:
        return f"{parent} cannot be written by this user"
    if version == 2:
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        if controller not in enabled:
            return f"{parent}/cgroup.subtree_control does not enable {controller}; write +{controller} into it"
    return Hierarchy(controller, parent, version)


class Cgroup(LimitEnforcer):
    """One sandbox's group in each controller that can be used."""

    def __init__(self, name: str, limits: Limits, available: dict[str, Hierarchy | str]) -> None:
        """available: as `hierarchies` returns it."""
        self._folders: dict[str, Path] = {}
        for controller, hierarchy in available.items():
            if isinstance(hierarchy, Hierarchy):
                self._folders[controller] = self._make(name, limits, hierarchy)
        self.controllers = frozenset(self._folders)

    def adopt(self, pids: list[int]) -> None:
        """Move processes in; their future children follow by themselves.

        Raises SandboxError if the kernel refuses one.
        """
        for folder in set(self._folders.values()):
            for pid in pids:
                try:
                    (folder / "cgroup.procs").write_text(str(pid))
                except OSError as error:
                    raise SandboxError(
                        f"{folder}: process {pid} cannot be moved in ({error.strerror}); unset ${CGROUP_VARIABLE} "
                        "or name a group that this user may write"
                    ) from error

    def broke(self) -> str | None:
        """The limit that the kernel had to enforce, if any; a group is still there after the end."""
        pids, memory = self._folders.get("pids"), self._folders.get("memory")
        if memory is not None:
            for name in ("memory.oom_control", "memory.events"):
                if read_counter(memory / name, "oom_kill"):
                    return "memory"
        if pids is not None and read_counter(pids / "pids.events", "max"):
            return "processes"
        return None

    def remove(self) -> None:
        """Delete the groups; their processes must have ended."""
        for folder in set(self._folders.values()):
            for attempt in range(REMOVE_TRIES):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError as error:  # busy: a process that was killed is still in it for a moment
                    if attempt == REMOVE_TRIES - 1:
                        logger.warning("control group %s could not be removed: %s", folder, error.strerror)
                    time.sleep(0.02)

    def _make(self, name: str, limits: Limits, hierarchy: Hierarchy) -> Path:
        sweep(hierarchy.parent)
        folder = hierarchy.parent / f"agent2-{os.getpid()}-{name}"
        folder.mkdir(exist_ok=True)
        if hierarchy.controller == "pids":
            (folder / "pids.max").write_text(str(limits.processes + OWN_PROCESSES))
        else:
            file = "memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max"
            (folder / file).write_text(str(int(limits.memory_gib * GIB)))
            # without a limit on swap, what does not fit into memory would go there
            for swap, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", int(limits.memory_gib * GIB))):
                if (folder / swap).exists():
                    (folder / swap).write_text(str(value))
            group_kill = folder / "memory.oom.group"
            if group_kill.exists():
                group_kill.write_text("1")
        return folder


def sweep(parent: Path) -> None:
    """Delete empty groups of harnesses that were killed."""
    for folder in parent.glob("agent2-*-*"):
        owner = folder.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            try:
                folder.rmdir()
            except OSError as error:
                logger.info("the control group %s of a killed harness stays: %s", folder, error.strerror)


def read_counter(path: Path, key: str) -> int:
    """The number after `key` in a kernel file of "key number" lines; 0 where the file does not exist."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
    except OSError:  # no such file, or the group was removed just now
        return 0
    return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == key), 0)


def scopes_unusable(manager: Path | None = None, *, as_root: bool | None = None) -> str | None:
    """One sentence why no scope can be made here; None if one can. manager: default `MANAGER`."""
    if shutil.which("systemd-run") is None or not (manager or MANAGER).is_dir():
        return "systemd does not run this machine"
    if os.geteuid() == 0 if as_root is None else as_root:
        return None
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    if not Path(runtime, "systemd").is_dir():
        return "this user has no systemd manager; log in with a session, or run: loginctl enable-linger"
    user = os.getuid()
    controllers_file = Path(f"/sys/fs/cgroup/user.slice/user-{user}.slice/user@{user}.service/cgroup.controllers")
    if not controllers_file.exists() or "memory" not in controllers_file.read_text().split():
        return (
            "this user's systemd manager may not limit memory; as root: systemctl edit user@.service, with "
            "[Service] Delegate=memory pids"
        )
    return None


class SystemdScope(LimitEnforcer):
    """One sandbox's scope, which holds its limits; systemd removes an empty one."""

    controllers = frozenset({"memory", "pids"})

    def __init__(self, limits: Limits, *, as_root: bool | None = None) -> None:
        self._limits = limits
        self._as_root = os.geteuid() == 0 if as_root is None else as_root
        self._unit = f"agent2-{os.getpid()}-{next(_numbers)}"
        self._folder: Path | None = None
        self._broke: str | None = None

    def command(self) -> tuple[str, ...]:
        """The prefix of the sandbox's command line."""
        return (
            "systemd-run",
            *(() if self._as_root else ("--user",)),
            *("--scope", "--quiet", "--collect", f"--unit={self._unit}"),
            *("-p", f"MemoryMax={int(self._limits.memory_gib * GIB)}", "-p", "MemorySwapMax=0"),
            *("-p", f"TasksMax={self._limits.processes + OWN_PROCESSES}", "--"),
        )

    def adopt(self, pids: list[int]) -> None:
        """The scope holds them already; remembers where its counters are."""
        for line in Path(f"/proc/{pids[0]}/cgroup").read_text().splitlines():
            path = line.split(":", 2)[2]
            if self._unit in path and line.startswith("0::"):
                self._folder = Path("/sys/fs/cgroup") / path.strip("/")

    def adopt_fork(self, pid: int) -> None:
        """Move it into the scope, which root may and other users often may not."""
        try:
            if self._folder is None:
                raise SandboxError(f"{self._unit}: where this scope keeps its processes is not known")
            (self._folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise SandboxError(f"process {pid} cannot be moved into {self._unit} ({error.strerror})") from error

    def look(self) -> None:
        """Read the counters while they are there."""
        if self._folder is None or self._broke is not None:
            return
        if read_counter(self._folder / "memory.events", "oom_kill"):
            self._broke = "memory"
        elif read_counter(self._folder / "pids.events", "max"):
            self._broke = "processes"

    def broke(self) -> str | None:
        """The limit that the kernel had to enforce, if `look` came in time to read it."""
        return self._broke


def enforced_by(as_root: bool) -> dict[str, str]:
    """For each of "memory" and "pids" that the kernel limits here, by what. as_root: whether we have root's rights."""
    grouped = {name for name, hierarchy in hierarchies().items() if isinstance(hierarchy, Hierarchy)}
    if "memory" not in grouped and scopes_unusable(as_root=as_root) is None:
        return dict.fromkeys(("memory", "pids"), "systemd scope")
    return dict.fromkeys(grouped, "control group")


def make_enforcer(limits: Limits, as_root: bool) -> tuple[LimitEnforcer, tuple[str, ...]]:
    """What holds the limits of one program, and the prefix of its command line."""
    if "systemd scope" in enforced_by(as_root).values():
        scope = SystemdScope(limits, as_root=as_root)
        return scope, scope.command()
    return Cgroup(str(next(_numbers)), limits, hierarchies()), ()


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the filter has to know of one processor architecture."""

    audit: int
    """Its AUDIT_ARCH constant, by which the kernel tells the filter whose numbers a call has."""
    calls: Mapping[str, int]
    """Name of a system call -> its number."""


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, _COMMON | {
        "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "socketpair": 53, "clone": 56, "semget": 64,
        "semop": 65, "semctl": 66, "shmdt": 67, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71,
        "syslog": 103, "pivot_root": 155, "acct": 163, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "init_module": 175, "delete_module": 176, "quotactl": 179, "semtimedop": 220,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "vmsplice": 278,
        "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308, "finit_module": 313,
        "kexec_file_load": 320, "bpf": 321, "memfd_create": 319, "userfaultfd": 323,
    }),
    "aarch64": Architecture(0xC00000B7, _COMMON | {
        "umount2": 39, "mount": 40, "pivot_root": 41, "quotactl": 60, "vmsplice": 75, "acct": 89, "unshare": 97,
        "kexec_load": 104, "init_module": 105, "delete_module": 106, "syslog": 116, "reboot": 142, "msgget": 186,
        "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193,
        "shmget": 194, "shmctl": 195, "shmat": 196, "shmdt": 197, "socket": 198, "socketpair": 199, "add_key": 217,
        "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
        "fanotify_init": 262, "open_by_handle_at": 265, "setns": 268, "finit_module": 273, "bpf": 280,
        "memfd_create": 279, "userfaultfd": 282, "kexec_file_load": 294,
    }),
}  # fmt: skip


def call_filter(machine: str | None = None, *, memory_files: bool = True) -> bytes | None:
    """The compiled filter; None for an architecture that is not in `ARCHITECTURES`. `machine`: default this one.

    memory_files: whether `memfd_create` passes. One that was sent into a socket is in no process, so only a control
    group counts it.
    """
    architecture = ARCHITECTURES.get(platform.machine() if machine is None else machine)
    if architecture is None:
        return None
    steps: list[_Step] = []
    label_positions: dict[str, int] = {}
    absent = ABSENT if memory_files else (*ABSENT, "memfd_create")
    for label, block in _blocks(architecture, absent).items():
        label_positions[label] = len(steps)
        steps += block
    code = b""
    for position, (operation, operand, label) in enumerate(steps):
        jump = label_positions[label] - position - 1 if label else 0  # counted from the next step
        code += struct.pack("=HBBI", operation, jump, 0, operand)  # struct sock_filter: code, jt, jf, k
    return code


def call_filter_hex(*, memory_files: bool) -> str | None:
    """The filter in hexadecimal, for a `Plan`; None as for `call_filter`."""
    code = call_filter(memory_files=memory_files)
    return None if code is None else code.hex()


def _blocks(machine: Architecture, absent: tuple[str, ...]) -> dict[str, list[_Step]]:
    """Labelled pieces of the filter; each ends in a return, and jumps lead forward only."""
    calls = machine.calls
    first, third = (LOAD_WORD, FIRST_ARGUMENT_AT, ""), (LOAD_WORD, FIRST_ARGUMENT_AT + 16, "")
    allow = (RETURN, ALLOW, "")

    def refuse(code: int) -> _Step:
        return RETURN, REFUSE | code, ""

    return {
        "start": [(LOAD_WORD, ARCHITECTURE_AT, ""), (JUMP_EQUAL, machine.audit, "known"), refuse(errno.ENOSYS)],
        "known": [
            (LOAD_WORD, NUMBER_AT, ""),
            (JUMP_AT_LEAST, FOREIGN_CALLS, "absent"),
            *((JUMP_EQUAL, calls[name], "absent") for name in absent),
            *((JUMP_EQUAL, calls[name], "refused") for name in REFUSED),
            *((JUMP_EQUAL, calls[name], name) for name in ("clone", "unshare", "socket", "socketpair")),
            allow,
        ],
        "unshare": [first, (JUMP_IF_SET, NEW_NAMESPACES | CLONE_NEWTIME, "refused"), allow],
        # not CLONE_NEWTIME: the lowest byte of clone's flags is a signal
        "clone": [first, (JUMP_IF_SET, NEW_NAMESPACES, "refused"), allow],
        "socket": [
            first,
            (JUMP_EQUAL, UNIX, "allowed"),
            *((JUMP_EQUAL, family, "internet") for family in (INET, INET6)),
            (JUMP_EQUAL, NETLINK, "netlink"),
            refuse(errno.EAFNOSUPPORT),
        ],
        "socketpair": [first, (JUMP_EQUAL, UNIX, "allowed"), refuse(errno.EAFNOSUPPORT)],
        "internet": [
            third,
            *((JUMP_EQUAL, protocol, "allowed") for protocol in PROTOCOLS),
            refuse(errno.EPROTONOSUPPORT),
        ],
        # NETLINK_ROUTE is how a program lists its own addresses
        "netlink": [third, (JUMP_EQUAL, 0, "allowed"), refuse(errno.EPROTONOSUPPORT)],
        "allowed": [allow],
        "refused": [refuse(errno.EPERM)],
        "absent": [refuse(errno.ENOSYS)],
    }
