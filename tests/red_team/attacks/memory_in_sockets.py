"""Fill the buffers of sockets that nobody reads: memory that is in no process."""

from dataclasses import replace

from red_team.moves import holding_moves
from red_team.scene import SMALL

AIM = "to starve the host of memory"
DEFENCE = "memory control group, else the watchdog counts what the sockets can hold"

PROGRAM = """
import socket, time
kept, sent = [], 0
while sent < 450 << 20:
    pair = socket.socketpair()
    kept.append(pair)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        end.setblocking(False)
        try:
            while True:
                sent += end.send(bytes(60_000))
        except BlockingIOError:
            pass
    time.sleep(0.002)
time.sleep(HOLD_S)
print("done:", sent >> 20, f"MiB held for {HOLD_S} s in", len(kept), "pairs of sockets")
"""

attempt, control = holding_moves(PROGRAM, limits=replace(SMALL, open_files=4096))
