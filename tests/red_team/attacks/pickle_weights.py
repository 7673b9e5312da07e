"""Submit weights that run a program when they are loaded: a pickle, also under the name of safetensors."""

import os
import pickle
from pathlib import Path

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "code in the grader"
DEFENCE = "safetensors only; pickles are never opened"


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.proof}",)


def attempt(scene: Scene) -> Outcome:
    proof, answers = _proof(scene), []
    for name in ("pytorch_model.bin", "model.safetensors"):
        _make(scene, proof, name)
        status, answer = scene.submit("output/pickle")
        answers.append(f"{status}: {answer.get('error')}")
    return Outcome(proof.exists(), answers[0])


def control(scene: Scene) -> Outcome:
    proof = _proof(scene)
    path = _make(scene, proof, "pytorch_model.bin")
    in_time("import sys, torch; torch.load(sys.argv[1], weights_only=False)", path, seconds=300, memory_gib=16)
    return Outcome(proof.exists(), "torch.load ran the program")


def _proof(scene: Scene) -> Path:
    proof = scene.root / "proof"
    proof.unlink(missing_ok=True)
    return proof


def _make(scene: Scene, proof: Path, name: str) -> Path:
    folder = scene.copy_of_base("pickle")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb(proof)))
    return folder / name
