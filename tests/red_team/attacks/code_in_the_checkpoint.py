"""Submit a config that names Python code of the folder as the model's class."""

from pathlib import Path

from red_team.frame import Outcome
from red_team.naive import edit_config, in_time
from red_team.scene import Scene

AIM = "code in the grader"
DEFENCE = "checkpoints with code of their own are refused; remote code is never trusted"

MODEL = """
from transformers import LlamaConfig, LlamaForCausalLM
open({proof!r}, "w").close()


class Mine(LlamaForCausalLM):
    pass
"""


def attempt(scene: Scene) -> Outcome:
    proof = _proof(scene)
    _make(scene, proof)
    status, answer = scene.submit("output/code")
    return Outcome(proof.exists(), f"{status}: {answer.get('error')}")


def control(scene: Scene) -> Outcome:
    proof = _proof(scene)
    folder = _make(scene, proof)
    program = "import sys; from transformers import AutoModelForCausalLM as A; "
    program += "A.from_pretrained(sys.argv[1], trust_remote_code=True)"
    outcome = in_time(program, folder, seconds=600, memory_gib=16)
    return Outcome(proof.exists(), f"the model's code ran ({outcome or 'and the model was loaded'})")


def _proof(scene: Scene) -> Path:
    proof = scene.root / "proof-of-code"
    proof.unlink(missing_ok=True)
    return proof


def _make(scene: Scene, proof: Path) -> Path:
    folder = scene.copy_of_base("code")
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"})
    (folder / "modeling_mine.py").write_text(MODEL.format(proof=str(proof)))
    return folder
