"""Runs a command that dies with its parent.

    python leash.py PARENT COMMAND...

PARENT is the process id that is waiting; if it is gone already, nothing is started. Standard library only, since it is
run without site packages.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Become the command; returns only if the parent is gone."""
    parent, *command = arguments
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the kernel was told
        return 128 + signal.SIGKILL
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
