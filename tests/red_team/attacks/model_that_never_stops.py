"""Submit a model that never ends its answer, with settings that ask for endless ones."""

import time

from red_team.frame import Outcome
from red_team.naive import edit_config, in_time
from red_team.scene import Scene

AIM = "a grader that is busy for ever"
DEFENCE = "our own limit on new tokens; a deadline for each evaluation"


def attempt(scene: Scene) -> Outcome:
    _make(scene)
    started = time.monotonic()
    status, answer = scene.submit("output/endless")
    seconds = time.monotonic() - started
    return Outcome(seconds > 250, f"{status} after {seconds:.1f} s: {answer.get('score')} {answer.get('error') or ''}")


def control(scene: Scene) -> Outcome:
    """A grader that generates as the folder says."""
    folder = _make(scene)
    program = (
        "import sys, torch; from transformers import AutoModelForCausalLM as A; "
        "m = A.from_pretrained(sys.argv[1]); m.generate(torch.tensor([[4, 5]]))"
    )
    outcome = in_time(program, folder, seconds=25, memory_gib=16)
    return Outcome(outcome == "hangs", f"generating {outcome or 'ended'}")


def _make(scene: Scene) -> object:
    folder = scene.copy_of_base("endless")
    edit_config(folder, "generation_config.json", max_new_tokens=10**7, min_new_tokens=10**7, eos_token_id=31)
    return folder
