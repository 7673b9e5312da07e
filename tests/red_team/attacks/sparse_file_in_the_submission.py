"""Submit a file that takes no space in the workspace and all of it in a copy."""

from agent2.arena.grader.submission import SnapshotLimits, take_snapshot
from red_team.frame import Outcome
from red_team.scene import Scene

AIM = "a full disk of the grader"
DEFENCE = "sizes are summed by length before a byte is read"

SIZE = 300 << 20


def attempt(scene: Scene) -> Outcome:
    _make(scene)
    status, answer = scene.submit("output/sparse")
    taken = sum(p.stat().st_size for p in scene.paths.root.glob("submissions/*/snapshot/*") if p.stat().st_size >= SIZE)
    is_refused_for_size = "are allowed" in str(answer.get("error"))  # else it was copied before it was refused
    return Outcome(taken > 0 or not is_refused_for_size, f"{status}: {answer.get('error')}")


def control(scene: Scene) -> Outcome:
    """Without the limit on bytes."""
    _make(scene)
    target = scene.root / "sparse-copy"
    info = take_snapshot(scene.paths.workspace, "output/sparse", target, SnapshotLimits(max_bytes=SIZE * 2))
    blocks = (scene.paths.workspace / "output" / "sparse" / "model.safetensors").stat().st_blocks * 512
    (target / "model.safetensors").unlink()
    return Outcome(info.size_bytes > SIZE > blocks, f"{blocks} bytes became {info.size_bytes}")


def _make(scene: Scene) -> None:
    folder = scene.copy_of_base("sparse")
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(SIZE)
