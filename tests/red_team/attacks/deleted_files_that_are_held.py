"""Delete files that are still open: a walk through the workspace does not find what they take."""

from red_team.moves import holding_moves
from red_team.scene import SMALL

AIM = "to fill the host's disk"
DEFENCE = "the watchdog counts deleted files that are held"

PROGRAM = """
import os, time
kept, block = [], os.urandom(1 << 20)
for _ in range(15):
    kept.append(os.open("gone", os.O_RDWR | os.O_CREAT | os.O_EXCL))
    os.unlink("gone")
    for _ in range(20):
        os.write(kept[-1], block)
    os.fsync(kept[-1])
time.sleep(HOLD_S)
print(f"done: 300 MiB held for {HOLD_S} s in deleted files")
"""

attempt, control = holding_moves(PROGRAM, limits=SMALL)
