"""Runs mini-swe-agent and prints the messages of its trajectory as JSON lines while it works.

mini-swe-agent rewrites one file after each step. The file is in the agent's home, which is gone at the end, so
that it is not part of the workspace; what is new in it is printed. Arguments: the command line of mini-swe-agent.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

PERIOD_S = 2.0


def main() -> int:
    """Run it to its end; its exit status is ours."""
    trajectory = Path(os.environ["HOME"]) / "trajectory.json"
    process = subprocess.Popen([*sys.argv[1:], "--output", str(trajectory)])
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    code, printed = None, 0
    while code is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(PERIOD_S)
        printed = print_new(trajectory, printed)
    return code if code >= 0 else 128 - code


def print_new(trajectory: Path, printed: int) -> int:
    """Print the messages after the first `printed`; returns how many are printed now."""
    try:
        messages = json.loads(trajectory.read_text(encoding="utf-8"))["messages"]
    except (OSError, ValueError, KeyError):
        return printed  # not there yet, or just being written
    if len(messages) > printed:
        print("\n" + json.dumps({"messages": messages[printed:]}), flush=True)
    return max(printed, len(messages))


if __name__ == "__main__":
    sys.exit(main())
