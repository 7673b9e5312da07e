"""Watches what no limit of the kernel holds here: memory, disk use of the workspace, and the process count.

Soft: it looks about ten times a second, so a fast program overshoots before it is stopped. Memory is what processes
hold, what they keep in memory files without mapping it, and what may be in the buffers of their sockets: as much as
the kernel's own memory has grown, and no more than so many sockets can hold. (System V segments, and memory files
where the limit is soft, are refused by the filter of system calls: they cannot be attributed.)

Disk is walked seldom, but at once when the file system has lost as much as is still allowed. Deleted files that are
still open or mapped count. A deleted file on its way through a unix socket is in no process; while such messages
wait, space counts that the file system lost, that the program wrote, and that no file explains.
"""

import errno
import math
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent2.sandbox.spec import GIB, HOST_DISK, Limits

SHARE = 0.05
"""Of the time, at most this share is spent on looking at memory, and as much on walking the workspace."""
MIN_MEMORY_INTERVAL_S = 0.1
MIN_DISK_INTERVAL_S = 0.5
MAX_ENTRIES = 1_000_000
"""Of the workspace; more would take too long to walk."""
FREE_FLOOR_GIB = 0.25
"""Of the host's disk; below it the program is stopped."""
MIN_GROWTH = 32 << 20
"""Of the kernel's memory; less is not attributed to the program."""
FREE_SOCKETS = 8
"""Sockets of a kind that is not counted."""
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was passed."""

    limit: str
    sentence: str


class Watchdog:
    """Looks at one sandbox."""

    def __init__(self, limits: Limits, folders: tuple[Path, ...], *, memory_is_hard: bool) -> None:
        """folders: whose disk use counts together; the first is the workspace."""
        self._limits = limits
        self._folders = folders
        self._memory_is_hard = memory_is_hard
        self._next_memory_look = 0.0
        self._next_disk_look = 0.0
        self._known_use = 0
        self._known_free = 0
        self._least_kernel: int | None = None
        self._hiding_since: _DiskState | None = None
        self.peak_processes = 0
        """Most processes and threads seen at one look."""

    def look(self, root: psutil.Process, now: float, joined: tuple[int, ...] = ()) -> Breach | None:
        """Measure what is due; returns the limit that is passed, if any.

        root: the sandbox's outermost process. joined: processes that entered the sandbox from outside.
        """
        if now >= self._next_memory_look:
            started = time.monotonic()
            breach = self._look_at_processes([root.pid, *descendants(root.pid, *joined), *joined])
            spent = time.monotonic() - started
            self._next_memory_look = now + max(MIN_MEMORY_INTERVAL_S, spent / SHARE)
            if breach is not None:
                return breach
        started = time.monotonic()
        try:
            # between two walks only the free space of the file system is asked for, which costs nothing
            if now < self._next_disk_look and not self._may_be_full():
                return None
            breach = self._look_at_disk([root.pid, *descendants(root.pid, *joined), *joined])
        except FileNotFoundError as error:
            return Breach("watch", f"was stopped because {error.filename} was removed while it ran")
        spent = time.monotonic() - started
        self._next_disk_look = now + max(MIN_DISK_INTERVAL_S, spent / SHARE)
        return breach

    def _look_at_processes(self, pids: list[int]) -> Breach | None:
        self.peak_processes = max(self.peak_processes, _n_tasks(pids))
        if self._memory_is_hard:
            return None
        limit = self._limits.memory_gib * GIB
        in_files = _memory_files(pids) + self._in_sockets(pids)
        used = sum(map(_resident, pids)) + in_files
        if used > limit:  # pages shared after a fork, and mapped memory files, were counted several times: look closely
            parts = [_proportional_memory(pid) for pid in pids]
            used = sum(part.private for part in parts) + max(in_files, sum(part.shared for part in parts))
        if used <= limit:
            return None
        return Breach("memory", f"used {used / GIB:.2f} GiB of memory, {self._limits.memory_gib:g} GiB are allowed")

    def _in_sockets(self, pids: list[int]) -> int:
        """Bytes that the program's sockets may hold: what the kernel's memory grew by, but no more than they can."""
        kernel = _kernel_memory()
        self._least_kernel = kernel if self._least_kernel is None else min(self._least_kernel, kernel)
        growth = kernel - self._least_kernel
        if growth < MIN_GROWTH:
            return 0
        # the second process is in the sandbox's network namespace; the outermost one is still in ours
        return min(growth, _socket_capacity(pids[1] if len(pids) > 1 else pids[0]))

    def _may_be_full(self) -> bool:
        """Whether the file system has lost, since the last walk, as much as was still allowed then."""
        lost = max(0, self._known_free - _free_bytes(self._folders[0]))
        return self._known_free > 0 and self._known_use + lost > self._limits.disk_gib * GIB

    def _look_at_disk(self, pids: list[int]) -> Breach | None:
        use, free = 0, _free_bytes(self._folders[0])
        for folder in self._folders:
            part = disk_use(folder)
            if isinstance(part, str):
                return Breach("disk", part)
            use += part
        use += _deleted_bytes(pids, self._folders)
        use += self._in_transit(pids, use, free)
        self._known_use, self._known_free = use, free
        if use > self._limits.disk_gib * GIB:
            allowed = f"{self._limits.disk_gib:g} GiB are allowed"
            return Breach("disk", f"filled the workspace with {use / GIB:.2f} GiB, {allowed}")
        if free < FREE_FLOOR_GIB * GIB:
            return Breach(HOST_DISK, f"was stopped because the host's disk has only {free / GIB:.2f} GiB left")
        return None

    def _in_transit(self, pids: list[int], use: int, free: int) -> int:
        """Bytes of deleted files that may be in messages that have not been received yet.

        Counted from the first look at which there were such messages: what the file system lost, and the program
        wrote, beyond what its files grew by.
        """
        if not _hides_files(pids):
            self._hiding_since = None
            return 0
        now = _DiskState(use, free, _bytes_written(pids))
        since = self._hiding_since
        if since is None:
            self._hiding_since = now
            return 0
        grown = now.use - since.use
        return int(max(0, min(since.free - now.free - grown, now.written - since.written - max(0, grown))))


@dataclass(frozen=True, slots=True)
class _DiskState:
    use: int
    free: int
    written: float
    """By the program, since it started; infinite where that is not known."""


def process_tree(root: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants; empty when it is gone."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def disk_use(folder: Path) -> int | str:
    """Bytes allocated below a folder, links not followed; a sentence if it cannot be determined.

    What vanishes during the walk is not counted.
    """
    total, entries = 0, 0
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return f"made more than {MAX_ENTRIES} files and folders in the workspace"
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_blocks * 512
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed or replaced while we looked
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                return f"made a folder that cannot be measured: {error.strerror}"
            return "nested folders so deeply in the workspace that their paths are too long"
    return total


def descendants(*roots: int) -> list[int]:
    """Process ids of all descendants, of the first root first; one pass over /proc, so that it can be asked often."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
            children.setdefault(parent, []).append(int(name))
    pids = []
    for root in roots:
        pending = [root]
        while pending:
            below = children.get(pending.pop(), [])
            pids += below
            pending += below
    return pids


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of one process, shared pages divided among their users."""

    private: int
    shared: int
    """Of memory that is not of a file on disk and may be shared: memory files, /dev/shm, shared mappings."""


def _free_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def _n_tasks(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/task"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
    return total


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _memory_files(pids: list[int]) -> int:
    """Bytes of all memory files (memfd_create) that these processes hold, each once."""
    sizes = {}
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                if os.readlink(path).startswith("/memfd:"):
                    status = os.stat(path)
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended, or changes its user right now
    return sum(sizes.values())


def _kernel_memory() -> int:
    """Bytes that the kernel holds for itself, the buffers of sockets among them, on the whole machine."""
    sizes = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            sizes[name] = int(value.split()[0]) * 1024
    not_kernel = ("MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "KReclaimable")
    return sizes["MemTotal"] - sum(sizes.get(name, 0) for name in not_kernel)


def _socket_capacity(pid: int) -> int:
    """The most bytes that the sockets in a process's network namespace can hold, in messages under way too."""
    core = 2 * max(_setting("core/wmem_max"), _setting("core/rmem_max"))
    tcp = _setting("ipv4/tcp_rmem") + _setting("ipv4/tcp_wmem")
    capacity = 0
    for tables, socket_bytes in ((("unix", "udp", "udp6", "netlink"), core), (("tcp", "tcp6"), tcp)):
        capacity += (
            max(0, sum(_n_lines(Path(f"/proc/{pid}/net/{table}")) for table in tables) - FREE_SOCKETS) * socket_bytes
        )
    return capacity


def _setting(name: str) -> int:
    """The last number in a file below /proc/sys/net; where it cannot be read, the kernel's usual one."""
    try:
        return int(Path(f"/proc/sys/net/{name}").read_text().split()[-1])
    except (OSError, ValueError):
        return 212_992 if "core" in name else 6 << 20


def _n_lines(table: Path) -> int:
    """Lines below the head of a kernel table."""
    try:
        return max(0, table.read_bytes().count(b"\n") - 1)
    except OSError:
        return 0  # the process ended, or the kernel has no such sockets


def _deleted_bytes(pids: list[int], folders: tuple[Path, ...]) -> int:
    """Bytes of deleted files, of these folders' file systems and owners, that processes hold open or mapped."""
    owners = {(status.st_dev, status.st_uid) for status in map(os.stat, folders)}
    sizes = {}
    for pid in pids:
        for folder in ("fd", "map_files"):
            try:
                names = os.listdir(f"/proc/{pid}/{folder}")
            except OSError:
                continue  # it ended, or does not show itself, which `_hides_files` reports
            for name in names:
                try:
                    status = os.stat(f"/proc/{pid}/{folder}/{name}")
                except OSError:
                    continue  # closed just now
                is_deleted = status.st_nlink == 0 and stat.S_ISREG(status.st_mode)
                if is_deleted and (status.st_dev, status.st_uid) in owners:
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _hides_files(pids: list[int]) -> bool:
    """Whether descriptors wait in messages on unix sockets, or a process does not show what it has open."""
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fdinfo"):
                with open(f"/proc/{pid}/fdinfo/{name}", "rb") as file:
                    match = re.search(rb"^scm_fds:\s*(\d+)", file.read(4096), re.MULTILINE)
                if match is not None and int(match[1]) > 0:
                    return True
        except PermissionError:
            return True
        except OSError:
            continue  # it ended
    return False


def _bytes_written(pids: list[int]) -> float:
    """Bytes that processes, and their children that ended, sent to disks; infinite where one does not report it."""
    total = 0
    for pid in pids:
        try:
            match = re.search(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
        except PermissionError:
            return math.inf
        except OSError:
            continue  # it ended
        total += int(match[1]) if match is not None else 0
    return total


def _proportional_memory(pid: int) -> MemoryUse:
    """Memory of a process by kind; its resident memory if the kernel does not tell the kinds."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return MemoryUse(_resident(pid), 0)
    sizes = {fields[0]: int(fields[1]) * 1024 for fields in (line.split() for line in lines[1:])}
    shared = sizes.get("Pss_Shmem:", 0)
    return MemoryUse(sizes.get("Pss:", 0) - shared, shared)
