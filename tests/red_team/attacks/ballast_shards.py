"""Submit shards that no checkpoint needs, sparse and so free for their author, to fill the grader's disk for good."""

import shutil
from pathlib import Path

from red_team.frame import Outcome
from red_team.naive import naive_copy
from red_team.scene import Scene

AIM = "a full disk of the grader, at no cost"
DEFENCE = "shards beside a whole file are not copied, holes stay holes, what a checkpoint does not need is removed"

N_SHARDS = 20
SHARD_BYTES = 8 << 20


def attempt(scene: Scene) -> Outcome:
    folder = _make(scene)
    before = _taken(scene.paths.root / "submissions")
    status, answer = scene.submit("output/ballast", wait=False)
    cost = _taken(scene.paths.root / "submissions") - before
    fair = 2 * _taken(scene.base) + (1 << 20)  # a model like the base, and what a trial keeps of any submission
    detail = f"{status}: {_taken(folder)} bytes on disk cost the grader {cost}, a sound one at most {fair}"
    return Outcome(cost > fair or status not in (200, 202), f"{detail} {answer.get('error') or ''}")


def control(scene: Scene) -> Outcome:
    """A grader that copies whatever is named like a shard, byte by byte."""
    folder = _make(scene)
    copy = naive_copy(folder, scene.root / "ballast-copy")
    for shard in copy.glob("model-ballast-*"):
        shard.write_bytes(shard.read_bytes())
    cost, before = _taken(copy), _taken(folder)
    shutil.rmtree(copy)
    return Outcome(cost > 10 * before, f"{before} bytes on disk became {cost}")


def _make(scene: Scene) -> Path:
    folder = scene.copy_of_base("ballast")
    for number in range(N_SHARDS):
        with (folder / f"model-ballast-{number}.safetensors").open("wb") as file:
            file.truncate(SHARD_BYTES)
    return folder


def _taken(folder: Path) -> int:
    """Bytes on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
