"""Submit a tokenizer whose normalizer makes every character ten times as many, again and again."""

import json

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader without memory"
DEFENCE = "the tokenizer of a submission is never loaded"


def attempt(scene: Scene) -> Outcome:
    _make(scene)
    status, answer = scene.submit("output/tokenizer")
    return Outcome(answer.get("score") is None, f"{status}, scored {answer.get('score')}")


def control(scene: Scene) -> Outcome:
    folder = _make(scene)
    program = (
        "import sys; from transformers import AutoTokenizer; t = AutoTokenizer.from_pretrained(sys.argv[1]); "
        "print(len(t('Calculate 1 + 1')['input_ids']))"
    )
    outcome = in_time(program, folder, seconds=60, memory_gib=6)
    return Outcome(outcome.startswith("breaks") or outcome == "hangs", f"one prompt: it {outcome}")


def _make(scene: Scene) -> object:
    folder = scene.copy_of_base("tokenizer")
    record = json.loads((folder / "tokenizer.json").read_text())
    tenfold = {"type": "Replace", "pattern": {"Regex": "."}, "content": "C" * 10}
    record["normalizer"] = {"type": "Sequence", "normalizers": [tenfold] * 12}
    (folder / "tokenizer.json").write_text(json.dumps(record))
    return folder
