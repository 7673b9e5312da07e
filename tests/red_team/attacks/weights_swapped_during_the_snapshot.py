"""Rewrite the weights again and again while they are copied, for a mixture that nobody handed in."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent2.arena.grader.submission import SnapshotLimits, take_snapshot
from agent2.errors import SubmissionError
from red_team.frame import Outcome
from red_team.naive import naive_copy
from red_team.scene import Scene

AIM = "weights that pass the check and differ from what is played"
DEFENCE = "everything is compared again after the copy; what changed meanwhile is refused"

SIZE = 48 << 20
TRIES = 12
CONTROL_TRIES = 400
"""It ends at the first mixture; on a busy machine the writer may not run during a copy."""


def attempt(scene: Scene) -> Outcome:
    folder = scene.fresh_folder("rewritten")
    n_refused = 0
    with _rewritten(folder / "model.safetensors"):
        for number in range(TRIES):
            target = scene.root / f"snapshot-{number}"
            try:
                info = take_snapshot(scene.paths.workspace, "output/rewritten", target, SnapshotLimits())
            except SubmissionError:
                n_refused += 1
                continue
            if _is_mixture(info.path / "model.safetensors"):
                return Outcome(True, f"a mixture was taken in at try {number}")
    return Outcome(False, f"{n_refused} of {TRIES} refused, the others whole")


def control(scene: Scene) -> Outcome:
    folder = scene.fresh_folder("rewritten")
    with _rewritten(folder / "model.safetensors"):
        for number in range(CONTROL_TRIES):
            if _is_mixture(naive_copy(folder, scene.root / "naive") / "model.safetensors"):
                return Outcome(True, f"a mixture at try {number}")
    return Outcome(False, f"no mixture in {CONTROL_TRIES} tries")


@contextmanager
def _rewritten(path: Path) -> Iterator[None]:
    path.write_bytes(b"0" * SIZE)
    writer = multiprocessing.get_context("spawn").Process(target=_rewrite, args=(str(path),), daemon=True)
    writer.start()
    while path.read_bytes()[:1] == b"0":  # until the writer is at work
        time.sleep(0.1)
    try:
        yield
    finally:
        writer.kill()
        writer.join()
        path.unlink()


def _rewrite(path: str) -> None:
    turn = 0
    while True:
        turn += 1
        with open(path, "r+b") as file:
            for _ in range(SIZE >> 20):
                file.write(b"01"[turn % 2 : turn % 2 + 1] * (1 << 20))


def _is_mixture(path: Path) -> bool:
    return len(set(path.read_bytes()[:: 1 << 16])) > 1
