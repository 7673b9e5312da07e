"""Watch for the process that evaluates a submission, and read hidden items out of its memory, job and scratch files."""

import shutil

from red_team.frame import Outcome
from red_team.moves import judge_loot
from red_team.scene import Scene

AIM = "hidden items while they are played"
DEFENCE = "process and mount namespaces"

PROGRAM = """
import json, os, re, signal, time, httpx
targets = json.loads(os.environ["TARGETS"])

def lines_of(number):
    return dict(line.split(":", 1) for line in open(f"/proc/{number}/status"))

def evaluates(number):
    if b"grader.child" not in open(f"/proc/{number}/cmdline", "rb").read():
        return False
    if len(lines_of(number)["NSpid"].split()) == 1:
        return False  # the server, or what waits for its fork: they have no items
    while number not in (0, targets["harness"]):
        number = int(lines_of(number)["PPid"])
    return number != 0  # otherwise it is of another trial of this host

def items_in(number):
    items = set()
    os.kill(number, signal.SIGSTOP)  # an evaluation of a second would end while it is read
    try:
        for line in open(f"/proc/{number}/maps"):
            span, rights = line.split()[:2]
            if rights.startswith("rw"):
                start, end = (int(word, 16) for word in span.split("-"))
                with open(f"/proc/{number}/mem", "rb") as memory:
                    memory.seek(start)
                    items |= set(re.findall(rb"Calculate [-+*/() 0-9]{5,40}", memory.read(end - start)))
    finally:
        os.kill(number, signal.SIGCONT)
    return items

body = {"model_path": "output/watched", "wait": False}
print(httpx.post(targets["grading_url"] + "/submit", json=body, timeout=300).status_code)
ends_at = time.time() + 250
found = set()
while not found and time.time() < ends_at:
    for number in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))), reverse=True):  # ours is the newest
        try:
            if evaluates(number):
                found |= items_in(number)
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
