"""Submit weights of NaN and infinity, and finite ones that overflow on the way to the logits."""

import numpy as np
from safetensors.numpy import save_file

from red_team.frame import Outcome
from red_team.naive import in_time, weights_of
from red_team.scene import Scene

AIM = "a score from comparisons that are all false, or a grader that crashes"
DEFENCE = "weights are checked for numbers; a completion without usable logits is the model's failure"


def attempt(scene: Scene) -> Outcome:
    answers = []
    for value in (np.nan, np.inf, 3e38):
        _make(scene, value)
        status, answer = scene.submit("output/numbers")
        score, baseline = answer.get("score"), answer.get("baseline_score") or 0.0
        answers.append(f"{value:g}: {status}, {score if score is not None else answer.get('error')}")
        if score is not None and score > baseline:
            return Outcome(True, answers[-1])
    _, again = _make(scene, None), scene.submit("output/numbers")
    return Outcome(again[1].get("score") is None, "; ".join(answers)[:300])


def control(scene: Scene) -> Outcome:
    folder = _make(scene, np.nan)
    program = (
        "import sys, torch; from transformers import AutoModelForCausalLM as A; "
        "m = A.from_pretrained(sys.argv[1]); "
        "p = torch.softmax(m(torch.tensor([[4, 5]])).logits[0, -1], -1); print(torch.multinomial(p, 1))"
    )
    outcome = in_time(program, folder, seconds=600, memory_gib=16)
    return Outcome(outcome.startswith("breaks"), f"sampling {outcome}")


def _make(scene: Scene, value: float | None) -> object:
    folder = scene.copy_of_base("numbers")
    if value is not None:
        weights = weights_of(folder)
        weights["lm_head.weight"] = np.full_like(weights["lm_head.weight"], value)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
