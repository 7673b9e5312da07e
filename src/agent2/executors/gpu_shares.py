"""GPUs of this machine, each owned by one job or one scoring at a time.

Whoever holds the lock of a GPU's file owns it, across all processes of an installation: two sweeps share out one
machine. A job's process inherits the locks of its GPUs, so that they are its own until it ends, and not until the one
that started it ends. A trial that was started by hand, or by Ray or Slurm, takes them itself (`owning`). Scorings have
locks of their own kind: a GPU may be set for both, and two scorings on one GPU wait for each other. Locks are those of
one machine, also where several machines have one home on a network. What runs outside this installation is not seen,
and whoever may write to its home can remove a lock.
"""

import fcntl
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent2 import installation
from agent2.errors import ConfigError, MachineError

LOOK_S = 0.5
"""Between two looks for a GPU that is free."""


@dataclass(frozen=True, slots=True)
class GpuShare:
    """GPUs that one job owns."""

    numbers: tuple[int, ...]
    descriptors: tuple[int, ...]
    """Of the locks, for the job's process to inherit."""

    def release(self) -> None:
        """Give them up, as far as this process holds them."""
        for descriptor in self.descriptors:
            with suppress(OSError):
                os.close(descriptor)


def lock_folder() -> Path:
    """Where this installation keeps the locks of this machine's GPUs."""
    return installation.home() / "gpus" / re.sub(r"\W", "_", socket.gethostname())


class GpuShares:
    """Hands out a machine's GPUs."""

    def __init__(self, numbers: Sequence[int], folder: Path | None = None) -> None:
        """numbers: as in /dev/nvidia<number>. folder: of the locks; None: the installation's."""
        self.numbers = tuple(numbers)
        self._folder = lock_folder() if folder is None else folder
        _make(self._folder)
        self._mutex = threading.Lock()

    def take(self, count: int, is_wanted: Callable[[], bool] = lambda: True) -> GpuShare | None:
        """So many free GPUs, all at once; waits for them. None once is_wanted says no.

        Raises ConfigError for more than there are, MachineError where locks cannot be had.
        """
        if count > len(set(self.numbers)):
            raise ConfigError(f"{count} GPUs are asked for at once, and {len(set(self.numbers))} are shared out")
        return self._waited(lambda: self._try(self.numbers, count), is_wanted)

    def take_these(self, numbers: Sequence[int], is_wanted: Callable[[], bool] = lambda: True) -> GpuShare | None:
        """Exactly these, which a resumed job began with; waits for them. None once is_wanted says no."""
        return self._waited(lambda: self.try_these(numbers), is_wanted)

    def try_these(self, numbers: Sequence[int]) -> GpuShare | None:
        """Exactly these, where they are free now."""
        once = tuple(dict.fromkeys(numbers))
        return self._try(once, len(once))

    def _waited(self, attempt: Callable[[], GpuShare | None], is_wanted: Callable[[], bool]) -> GpuShare | None:
        while is_wanted():
            share = attempt()
            if share is not None:
                return share
            time.sleep(LOOK_S)
        return None

    def _try(self, numbers: Sequence[int], count: int) -> GpuShare | None:
        """All or none: two jobs that each held half of what both need would wait forever."""
        held: dict[int, int] = {}
        with self._mutex, ExitStack() as unless_all:
            for number in dict.fromkeys(numbers):
                if len(held) == count:
                    break
                descriptor = try_lock(self._folder / f"{number}.lock")
                if descriptor is not None:
                    held[number] = descriptor
                    unless_all.callback(os.close, descriptor)
            if len(held) < count:
                return None
            unless_all.pop_all()
            return GpuShare(tuple(held), tuple(held.values()))


@contextmanager
def owning(numbers: Sequence[int], on_wait: Callable[[str], None], folder: Path | None = None) -> Iterator[None]:
    """Own GPUs for what this process starts on them: by the locks that its sweep gave it, or by new ones.

    Waits while others own them. on_wait: takes one sentence then. A lock counts as given only if this process holds the
    open file that has it; nothing that it is told counts. Raises MachineError where locks cannot be had.
    """
    folder = lock_folder() if folder is None else folder
    if numbers:
        _make(folder)
    missing = [number for number in numbers if not _has_inherited(folder / f"{number}.lock")]
    if not missing:
        yield
        return
    shares = GpuShares(missing, folder)
    share = shares.try_these(missing)
    if share is None:
        on_wait(f"GPU {', '.join(map(str, missing))}: waits until the trial that owns it has ended")
        share = shares.take_these(missing)
    try:
        yield
    finally:
        if share is not None:
            share.release()


def _has_inherited(path: Path) -> bool:
    """Whether a descriptor that this process was started with has the lock of this file."""
    try:
        file = path.lstat()
    except OSError:
        return False
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError, ValueError):
            is_inherited = os.get_inheritable(int(name))  # what this process opened for itself is not
            if is_inherited and os.path.samestat(os.fstat(int(name)), file):
                fcntl.flock(int(name), fcntl.LOCK_EX | fcntl.LOCK_NB)  # changes nothing where it has the lock
                return True
    return False


@contextmanager
def scoring_on(gpu: int | None, is_wanted: Callable[[], bool], folder: Path | None = None) -> Iterator[None]:
    """Own the scoring on a GPU; waits while another scoring of this installation has it. None: the CPU needs no lock.

    Returns without it once is_wanted says no: the caller stops then.
    """
    if gpu is None:
        yield
        return
    folder = lock_folder() if folder is None else folder
    _make(folder)
    descriptor = None
    while is_wanted() and (descriptor := try_lock(folder / f"scoring-{gpu}.lock")) is None:
        time.sleep(LOOK_S)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Lock a file, made if missing; the descriptor that holds the lock, or None while another one does.

    Raises MachineError for what is no file of ours (a link, a pipe), or cannot be opened or locked.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise MachineError(_unusable(path, error.strerror)) from error
        is_kept = False
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise MachineError(_unusable(path, "no regular file"))
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_kept = _is_at(descriptor, path)
            if is_kept:
                return descriptor
        except BlockingIOError:
            return None
        except OSError as error:
            raise MachineError(_unusable(path, error.strerror)) from error
        finally:
            if not is_kept:
                os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the path still names this file: whoever comes next would lock another one."""
    try:
        at_path = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(at_path, os.fstat(descriptor))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(_unusable(folder, error.strerror)) from error


def _unusable(path: Path, cause: str | None) -> str:
    return (
        f"{path}: cannot be used for the locks of GPUs ({cause}); end what runs on GPUs here, remove it, and see that "
        "$AGENT2_HOME is yours and on a file system with locks"
    )
