"""Looks at processes of other programs that tests share."""

import time
from collections.abc import Sequence

import psutil


def outlived(processes: Sequence[psutil.Process], timeout_s: float = 120.0) -> list[psutil.Process]:
    """Those that still run after so long; a zombie does not count."""
    ends_at = time.monotonic() + timeout_s
    while (survivors := [process for process in processes if _runs(process)]) and time.monotonic() < ends_at:
        time.sleep(0.02)
    return survivors


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
