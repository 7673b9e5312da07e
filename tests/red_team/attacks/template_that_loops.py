"""Submit a chat template that takes years to render."""

import time

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader that hangs"
DEFENCE = "the template of a submission is never rendered"

TEMPLATE = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages }}"


def attempt(scene: Scene) -> Outcome:
    (scene.copy_of_base("loop") / "chat_template.jinja").write_text(TEMPLATE)
    started = time.monotonic()
    status, answer = scene.submit("output/loop")
    seconds = time.monotonic() - started
    return Outcome(answer.get("score") is None, f"{status}, scored {answer.get('score')} after {seconds:.1f} s")


def control(scene: Scene) -> Outcome:
    folder = scene.copy_of_base("loop")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    program = (
        "import sys; from transformers import AutoTokenizer; t = AutoTokenizer.from_pretrained(sys.argv[1]); "
        "t.apply_chat_template([{'role': 'user', 'content': '1 + 1'}], tokenize=False)"
    )
    outcome = in_time(program, folder, seconds=25, memory_gib=16)
    return Outcome(outcome == "hangs", f"rendering it {outcome}")
