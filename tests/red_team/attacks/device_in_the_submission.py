"""Submit an endless device as weights, by link (anybody can) and as a device node (root in a container can)."""

import os
import stat
from contextlib import suppress

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a full disk or memory of the grader"
DEFENCE = "links are not followed; only regular files count"


def attempt(scene: Scene) -> Outcome:
    answers = []
    for is_node in (False, True):
        with suppress(PermissionError):
            _make(scene, is_node=is_node)
            status, answer = scene.submit("output/device")
            answers.append(f"{status}: {answer.get('error')}")
            if status == 200:
                return Outcome(True, "the device was taken in")
    return Outcome(not answers, answers[-1] if answers else "nothing was submitted")


def control(scene: Scene) -> Outcome:
    path = _make(scene, is_node=False)
    outcome = in_time("import sys; print(len(open(sys.argv[1], 'rb').read()))", path, seconds=30, memory_gib=0.5)
    return Outcome(outcome == "hangs" or outcome.startswith("breaks"), f"reading it all {outcome}")


def _make(scene: Scene, *, is_node: bool) -> str:
    folder = scene.copy_of_base("device")
    path = folder / "model.safetensors"
    path.unlink()
    if is_node:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    else:
        os.symlink("/dev/zero", path)
    return str(path)
