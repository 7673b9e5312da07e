"""Take more memory than allowed, spread over two processes so that no single one is large."""

from red_team.moves import holding_moves
from red_team.scene import SMALL

AIM = "to starve the host of memory"
DEFENCE = "memory control group, else the watchdog"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import time
child = os.fork()
held = []
for _ in range(300):
    held.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.002)
if child == 0:
    time.sleep(HOLD_S + 60)
    os._exit(0)
time.sleep(HOLD_S)
sizes = [open(f"/proc/{pid}/statm").read().split()[1] for pid in (os.getpid(), child)]
both = sum(int(size) * 4 for size in sizes)
os.kill(child, 9)
print("done:" if both > 500 * 1024 else "only", both // 1024, f"MiB held for {HOLD_S} s")
"""

attempt, control = holding_moves(PROGRAM, limits=SMALL)
