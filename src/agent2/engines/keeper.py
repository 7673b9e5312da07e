"""Runs one command and ends its whole process group when standard input closes: also when its parent was killed.

`python keeper.py COMMAND...`, on the standard library alone. Exits with the command's code, or 128 and its signal.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

PATIENCE_S = 10.0
"""Between asking the group to end and ending it."""


def keep(command: list[str]) -> int:
    """Start the command in a process group of its own; its exit code."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def signal_group(number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)

    def end_with_parent() -> None:
        while os.read(0, 4096):  # not sys.stdin, whose lock a thread may not hold when Python ends
            pass
        signal_group(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        signal_group(signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    code = process.wait()
    signal_group(signal.SIGKILL)  # children that outlive the server would hold its port and memory
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent says when, by closing standard input
    sys.exit(keep(sys.argv[1:]))
