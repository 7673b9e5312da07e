"""Send memory files into a socket and close them: they are in no process while nobody receives them."""

from red_team.moves import holding_moves
from red_team.scene import SMALL

AIM = "to starve the host of memory"
DEFENCE = "memory control group; without one memory files are refused"

PROGRAM = """
import os, socket, time
here, there = socket.socketpair()
try:
    for number in range(20):
        file = os.memfd_create("held")
        for _ in range(20):
            os.write(file, bytes(1 << 20))
        socket.send_fds(here, [b"x"], [file])
        os.close(file)
        time.sleep(0.01)
except OSError as error:
    raise SystemExit(print("refused:", error))
time.sleep(HOLD_S)
print(f"done: 400 MiB held for {HOLD_S} s in no process")
"""

attempt, control = holding_moves(PROGRAM, limits=SMALL)
