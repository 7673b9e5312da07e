"""Submit an adapter whose `target_modules` is a regular expression that takes for ever, to be evaluated for nothing."""

import json
import time

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader that is busy for ever, at nobody's cost"
DEFENCE = "module names in an adapter are literal; anything else is refused at the door"

PATTERN = r"([a-z0-9_.]+)+!"
PLACES = (
    {"target_modules": PATTERN},
    {"exclude_modules": PATTERN},
    {"modules_to_save": [PATTERN]},
    {"rank_pattern": {PATTERN: 4}},
    {"alpha_pattern": {PATTERN: 4}},
    {"layers_to_transform": [0], "layers_pattern": PATTERN},
)


def attempt(scene: Scene) -> Outcome:
    slowest = 0.0
    for change in PLACES:
        folder = scene.fresh_folder("pattern")
        config = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], **change}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        (folder / "adapter_model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
        started = time.monotonic()
        status, answer = scene.submit("output/pattern")
        slowest = max(slowest, time.monotonic() - started)
        if status != 400 or not any(key in str(answer.get("error")) for key in change):
            return Outcome(True, f"{change}: {status}, {answer.get('error')}")
    return Outcome(slowest > 200, f"{len(PLACES)} refused, the slowest after {slowest:.1f} s")


def control(scene: Scene) -> Outcome:
    """What peft does with it."""
    program = (
        "import re, sys; from peft import LoraConfig; c = LoraConfig(r=2, target_modules=sys.argv[1]); "
        "re.fullmatch(c.target_modules, 'model.layers.0.self_attn.q_proj')"
    )
    outcome = in_time(program, PATTERN, seconds=20, memory_gib=16)
    return Outcome(outcome == "hangs", f"one module name: it {outcome or 'ended'}")
