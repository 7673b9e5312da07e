"""Hold as many open files as the host will give."""

from red_team.moves import judge_words, program_moves
from red_team.scene import SMALL

AIM = "to starve the host of descriptors"
DEFENCE = "RLIMIT_NOFILE"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
held = []
try:
    while len(held) < 1000:
        held.append(open("/dev/null"))
    message = f"done: {len(held)} descriptors"
except OSError as error:
    message = f"refused after {len(held)}: {error}"
del held
print(message)
"""

attempt, control = program_moves(PROGRAM, judge_words, limits=SMALL)
