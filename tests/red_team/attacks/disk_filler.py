"""Fill the workspace beyond the limit with many files, each of a legal size."""

from red_team.moves import holding_moves
from red_team.scene import SMALL

AIM = "to fill the host's disk"
DEFENCE = "disk limit of the workspace"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import shutil, time
os.makedirs("fill", exist_ok=True)
try:
    for number in range(20):
        with open(f"fill/{number}", "wb") as file:
            file.write(b"x" * (20 << 20))
            file.flush()
            os.fsync(file.fileno())
        time.sleep(0.1)
    time.sleep(HOLD_S)
    size = sum(os.path.getsize(f"fill/{name}") for name in os.listdir("fill"))
    print("done:", size >> 20, f"MiB kept for {HOLD_S} s")
except OSError as error:
    print("refused:", error)
finally:
    shutil.rmtree("fill")
"""

attempt, control = holding_moves(PROGRAM, limits=SMALL)
