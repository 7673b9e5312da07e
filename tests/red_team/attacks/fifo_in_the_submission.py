"""Submit a pipe that nobody writes to, so that whoever opens it waits for ever."""

import os
import time

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader that hangs"
DEFENCE = "opened without waiting; only regular files count"


def attempt(scene: Scene) -> Outcome:
    started = time.monotonic()
    _make(scene)
    status, answer = scene.submit("output/pipe")
    seconds = time.monotonic() - started
    return Outcome(seconds > 200 or status == 200, f"{status} after {seconds:.1f} s: {answer.get('error')}")


def control(scene: Scene) -> Outcome:
    path = _make(scene)
    outcome = in_time("import sys; print(len(open(sys.argv[1], 'rb').read()))", path, seconds=5)
    return Outcome(outcome == "hangs", f"open() {outcome}")


def _make(scene: Scene) -> str:
    folder = scene.copy_of_base("pipe")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    return str(folder / "model.safetensors")
