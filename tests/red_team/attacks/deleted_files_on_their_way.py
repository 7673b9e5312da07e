"""Delete files and send them into a socket: they are in no folder and in no process."""

from red_team.moves import holding_moves
from red_team.scene import SMALL

AIM = "to fill the host's disk"
DEFENCE = "while descriptors wait in messages, the watchdog counts what was written and no file explains"

PROGRAM = """
import os, socket, time
here, there = socket.socketpair()
block = os.urandom(1 << 20)
for _ in range(15):
    file = os.open("gone", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.unlink("gone")
    for _ in range(20):
        os.write(file, block)
    os.fsync(file)
    socket.send_fds(here, [b"x"], [file])
    os.close(file)
    time.sleep(0.05)
time.sleep(HOLD_S)
print(f"done: 300 MiB held for {HOLD_S} s in files that are nowhere")
"""

attempt, control = holding_moves(PROGRAM, limits=SMALL)
