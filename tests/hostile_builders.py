"""Files that a stranger could leave in the place of an honest one, and a limit on time and memory for the reader."""

import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

LONGEST_CPU_S = 30
LONGEST_S = 600
"""On the clock; a loaded machine is slow, and only a wait that never ends should reach it."""
MORE_BYTES = 6 << 30
"""Of address space, beyond what this process has: a device of zeros that is read ends there, not with the machine's
memory."""


class TooLongError(BaseException):
    """No Exception and no OSError, which a command may take for a file that cannot be read."""


@contextmanager
def bounded():
    """A time and memory limit around a command in this process."""

    def stop(number, frame):
        raise TooLongError(f"the command took longer than {LONGEST_CPU_S} s of the processor or {LONGEST_S} s in all")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    n_pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (n_pages * resource.getpagesize() + MORE_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, LONGEST_CPU_S)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def pipe(path):
    os.mkfifo(path)


def zeros(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


def deep(path):
    path.write_text("[" * 300_000)


def deep_objects(path):
    path.write_text('{"a":' * 300_000 + "\n")


def large(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)  # holes, which take no room


def large_number(path):
    path.write_text('{"step": ' + "9" * 6_000 + ', "format": 1' + "0" * 400 + "}\n")


def not_utf8(path):
    path.write_bytes(b'{"name": "\xff\xfe"}\n')


def aliases(path):
    """A YAML text of a few lines that expands to 10^9 values; no JSON."""
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path.write_text("\n".join(["a0: &a0 [x]", *rows, ""]))


HOSTILE = [pipe, zeros, folder, deep, deep_objects, large, large_number, not_utf8, aliases]


def nest(folder: Path, depth: int) -> None:
    """Folders in folders, as a program makes them that goes into each."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("inner", dir_fd=descriptor)
        inner = os.open("inner", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
