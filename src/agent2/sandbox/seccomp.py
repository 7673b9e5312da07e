"""A system call filter that keeps a program from making user namespaces of its own.

In a user namespace anybody is root for the kernel: may mount memory file systems that no size limit covers, and
reaches kernel code that is closed to ordinary users. The filter answers EPERM to `setns` and to `unshare` and `clone`
with CLONE_NEWUSER, ENOSYS to `clone3` (whose flags a filter cannot read; C libraries then use `clone`) and to calls
of a foreign architecture (32-bit programs do not run). Everything else is allowed.

Only for x86-64 and 64-bit ARM; elsewhere there is no filter. Format: classic BPF, linux/filter.h and seccomp(2).
"""

import errno
import platform
import struct
from dataclasses import dataclass

CLONE_NEWUSER = 0x10000000
LOAD_WORD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_IF_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
ALLOW = 0x7FFF0000
REFUSE = 0x00050000
FOREIGN_CALLS = 0x40000000
"""On x86-64, numbers from here on belong to the x32 interface."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Numbers of one architecture."""

    audit: int
    clone: int
    clone3: int
    unshare: int
    setns: int


MACHINES = {
    "x86_64": Machine(audit=0xC000003E, clone=56, clone3=435, unshare=272, setns=308),
    "aarch64": Machine(audit=0xC00000B7, clone=220, clone3=435, unshare=97, setns=268),
}


def user_namespace_filter(machine: str | None = None) -> bytes | None:
    """The compiled filter; None for an architecture that is not in `MACHINES`. `machine`: default this one."""
    numbers = MACHINES.get(platform.machine() if machine is None else machine)
    if numbers is None:
        return None
    # A jump holds how many instructions to skip when true and when false; the comment says where it lands.
    program = [
        (LOAD_WORD, 0, 0, ARCHITECTURE_AT),  # 0
        (JUMP_EQUAL, 0, 10, numbers.audit),  # 1: other -> 12
        (LOAD_WORD, 0, 0, NUMBER_AT),  # 2
        (JUMP_AT_LEAST, 8, 0, FOREIGN_CALLS),  # 3: -> 12
        (JUMP_EQUAL, 7, 0, numbers.clone3),  # 4: -> 12
        (JUMP_EQUAL, 5, 0, numbers.setns),  # 5: -> 11
        (JUMP_EQUAL, 1, 0, numbers.unshare),  # 6: -> 8
        (JUMP_EQUAL, 0, 2, numbers.clone),  # 7: other -> 10
        (LOAD_WORD, 0, 0, FIRST_ARGUMENT_AT),  # 8
        (JUMP_IF_SET, 1, 0, CLONE_NEWUSER),  # 9: -> 11
        (RETURN, 0, 0, ALLOW),  # 10
        (RETURN, 0, 0, REFUSE | errno.EPERM),  # 11
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),  # 12
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
