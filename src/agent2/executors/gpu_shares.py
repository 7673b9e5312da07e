"""GPUs of this machine, each owned by one job or one scoring at a time.

Whoever holds the lock of a GPU's file owns it, across all processes of an installation: two sweeps share out one
machine. A job's process inherits the locks of its GPUs, so that they are its own until it ends, and not until the one
that started it ends. Scorings have locks of their own kind: a GPU may be set for both, and two scorings on one GPU wait
for each other. What runs outside this installation, or was started by hand, is not seen.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent2 import installation

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
    """Where this installation keeps the locks of its GPUs."""
    return installation.home() / "gpus"


class GpuShares:
    """Hands out a machine's GPUs."""

    def __init__(self, numbers: Sequence[int], folder: Path | None = None) -> None:
        """numbers: as in /dev/nvidia<number>. folder: of the locks; None: the installation's."""
        self.numbers = tuple(numbers)
        self._folder = lock_folder() if folder is None else folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.Lock()

    def take(self, count: int, is_wanted: Callable[[], bool] = lambda: True) -> GpuShare | None:
        """So many free GPUs, all at once; waits for them. None once is_wanted says no."""
        return self._waited(lambda: self._try(self.numbers, count), is_wanted)

    def take_these(self, numbers: Sequence[int], is_wanted: Callable[[], bool] = lambda: True) -> GpuShare | None:
        """Exactly these, which a resumed job began with; waits for them. None once is_wanted says no."""
        return self._waited(lambda: self._try(numbers, len(numbers)), is_wanted)

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
        with self._mutex:
            for number in numbers:
                if len(held) == count:
                    break
                descriptor = try_lock(self._folder / f"{number}.lock")
                if descriptor is not None:
                    held[number] = descriptor
            share = GpuShare(tuple(held), tuple(held.values()))
            if len(held) == count:
                return share
            share.release()
            return None


@contextmanager
def scoring_on(gpu: int | None, is_wanted: Callable[[], bool], folder: Path | None = None) -> Iterator[None]:
    """Own the scoring on a GPU; waits while another scoring of this installation has it. None: the CPU needs no lock.

    Returns without it once is_wanted says no: the caller stops then.
    """
    if gpu is None:
        yield
        return
    folder = lock_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = None
    while is_wanted() and (descriptor := try_lock(folder / f"scoring-{gpu}.lock")) is None:
        time.sleep(LOOK_S)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Lock a file, made if missing; the descriptor that holds the lock, or None while another one does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
