"""A system call filter: refuses kernel interfaces that no namespace covers, or that no limit of a sandbox counts.

- Namespaces of one's own (`clone`, `unshare`, `setns`): in a user namespace anybody is root for the kernel, may mount
  memory file systems that no size limit covers, and reaches kernel code that is closed to ordinary users.
- Socket families other than unix, IPv4, IPv6 and routing information: AF_VSOCK has the host's own addresses whatever
  the network namespace, others are kernel code that is not needed here. Of IP only TCP, UDP and ICMP.
- Keyrings: the session keyring of the harness is inherited.
- System V IPC and pages given to pipes (`vmsplice`): memory of no process. Memory files where no control group
  counts them.
- bpf, perf events, userfaultfd, io_uring, the mount interface, kernel modules and the kernel's log.

Everything else is allowed. `clone3` (whose flags a filter cannot read; C libraries then use `clone`) and calls of a
foreign architecture do not exist (32-bit programs do not run).

Only for x86-64 and 64-bit ARM; elsewhere there is no filter. Format: classic BPF, linux/filter.h and seccomp(2).
"""

import errno
import platform
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWUSER, -NS, -CGROUP, -UTS, -IPC, -PID and -NET."""
CLONE_NEWTIME = 0x80
LOAD_WORD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_IF_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
ALLOW = 0x7FFF0000
REFUSE = 0x00050000
FOREIGN_CALLS = 0x40000000
"""On x86-64, numbers from here on belong to the x32 interface."""
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
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


@dataclass(frozen=True, slots=True)
class Machine:
    """One architecture."""

    audit: int
    calls: Mapping[str, int]


MACHINES = {
    "x86_64": Machine(0xC000003E, _COMMON | {
        "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "socketpair": 53, "clone": 56, "semget": 64,
        "semop": 65, "semctl": 66, "shmdt": 67, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71,
        "syslog": 103, "pivot_root": 155, "acct": 163, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "init_module": 175, "delete_module": 176, "quotactl": 179, "semtimedop": 220,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "vmsplice": 278,
        "perf_event_open": 298, "fanotify_init": 300, "open_by_handle_at": 304, "setns": 308, "finit_module": 313,
        "kexec_file_load": 320, "bpf": 321, "memfd_create": 319, "userfaultfd": 323,
    }),
    "aarch64": Machine(0xC00000B7, _COMMON | {
        "umount2": 39, "mount": 40, "pivot_root": 41, "quotactl": 60, "vmsplice": 75, "acct": 89, "unshare": 97,
        "kexec_load": 104, "init_module": 105, "delete_module": 106, "syslog": 116, "reboot": 142, "msgget": 186,
        "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193,
        "shmget": 194, "shmctl": 195, "shmat": 196, "shmdt": 197, "socket": 198, "socketpair": 199, "add_key": 217,
        "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
        "fanotify_init": 262, "open_by_handle_at": 265, "setns": 268, "finit_module": 273, "bpf": 280,
        "memfd_create": 279, "userfaultfd": 282, "kexec_file_load": 294,
    }),
}  # fmt: skip

_Step = tuple[int, int, str]
"""Operation, operand, and the label to jump to where its claim is true; "" continues."""


def call_filter(machine: str | None = None, *, memory_files: bool = True) -> bytes | None:
    """The compiled filter; None for an architecture that is not in `MACHINES`. `machine`: default this one.

    memory_files: whether `memfd_create` passes. One that was sent into a socket is in no process, so only a control
    group counts it.
    """
    known = MACHINES.get(platform.machine() if machine is None else machine)
    if known is None:
        return None
    steps: list[_Step] = []
    places: dict[str, int] = {}
    absent = ABSENT if memory_files else (*ABSENT, "memfd_create")
    for label, block in _blocks(known, absent):
        places[label] = len(steps)
        steps += block
    code = b""
    for at, (operation, operand, label) in enumerate(steps):
        taken = places[label] - at - 1 if label else 0
        code += struct.pack("=HBBI", operation, taken, 0, operand)
    return code


def filter_in_words(*, memory_files: bool) -> str | None:
    """The filter in hexadecimal, for a plan."""
    code = call_filter(memory_files=memory_files)
    return None if code is None else code.hex()


def _blocks(machine: Machine, absent: tuple[str, ...]) -> Iterator[tuple[str, list[_Step]]]:
    """Labelled pieces of the filter; each ends in a return, and jumps lead forward only."""
    calls = machine.calls
    yield (
        "start",
        [
            (LOAD_WORD, ARCHITECTURE_AT, ""),
            (JUMP_EQUAL, machine.audit, "known"),
            (RETURN, REFUSE | errno.ENOSYS, ""),
        ],
    )
    yield (
        "known",
        [
            (LOAD_WORD, NUMBER_AT, ""),
            (JUMP_AT_LEAST, FOREIGN_CALLS, "absent"),
            *((JUMP_EQUAL, calls[name], "absent") for name in absent),
            *((JUMP_EQUAL, calls[name], "refused") for name in REFUSED),
            (JUMP_EQUAL, calls["clone"], "clone"),
            (JUMP_EQUAL, calls["unshare"], "unshare"),
            (JUMP_EQUAL, calls["socket"], "socket"),
            (JUMP_EQUAL, calls["socketpair"], "pair"),
            (RETURN, ALLOW, ""),
        ],
    )
    yield (
        "unshare",
        [
            (LOAD_WORD, FIRST_ARGUMENT_AT, ""),
            (JUMP_IF_SET, NEW_NAMESPACES | CLONE_NEWTIME, "refused"),
            (RETURN, ALLOW, ""),
        ],
    )
    yield (
        "clone",
        [  # whose lowest byte is a signal
            (LOAD_WORD, FIRST_ARGUMENT_AT, ""),
            (JUMP_IF_SET, NEW_NAMESPACES, "refused"),
            (RETURN, ALLOW, ""),
        ],
    )
    yield (
        "socket",
        [
            (LOAD_WORD, FIRST_ARGUMENT_AT, ""),
            (JUMP_EQUAL, UNIX, "allowed"),
            (JUMP_EQUAL, INET, "internet"),
            (JUMP_EQUAL, INET6, "internet"),
            (JUMP_EQUAL, NETLINK, "netlink"),
            (RETURN, REFUSE | errno.EAFNOSUPPORT, ""),
        ],
    )
    yield (
        "pair",
        [
            (LOAD_WORD, FIRST_ARGUMENT_AT, ""),
            (JUMP_EQUAL, UNIX, "allowed"),
            (RETURN, REFUSE | errno.EAFNOSUPPORT, ""),
        ],
    )
    yield (
        "internet",
        [
            (LOAD_WORD, FIRST_ARGUMENT_AT + 16, ""),
            *((JUMP_EQUAL, protocol, "allowed") for protocol in PROTOCOLS),
            (RETURN, REFUSE | errno.EPROTONOSUPPORT, ""),
        ],
    )
    yield (
        "netlink",
        [
            (LOAD_WORD, FIRST_ARGUMENT_AT + 16, ""),
            (JUMP_EQUAL, 0, "allowed"),  # NETLINK_ROUTE: how a program lists its own addresses
            (RETURN, REFUSE | errno.EPROTONOSUPPORT, ""),
        ],
    )
    yield "allowed", [(RETURN, ALLOW, "")]
    yield "refused", [(RETURN, REFUSE | errno.EPERM, "")]
    yield "absent", [(RETURN, REFUSE | errno.ENOSYS, "")]
