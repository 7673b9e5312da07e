"""Start processes without end (here: up to 300)."""

from red_team.moves import judge_words, program_moves
from red_team.scene import SMALL

AIM = "to starve the host of processes"
DEFENCE = "pids control group, RLIMIT_NPROC of a user of its own"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import time
made = []
try:
    while len(made) < 300:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        made.append(child)
    message = f"done: {len(made)} processes"
except OSError as error:
    message = f"refused after {len(made)}: {error}"
for child in made:
    os.kill(child, 9)
print(message)
"""

attempt, control = program_moves(PROGRAM, judge_words, limits=SMALL)
