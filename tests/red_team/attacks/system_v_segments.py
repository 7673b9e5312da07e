"""Hold memory in System V segments that no process is attached to."""

from red_team.moves import judge_words, program_moves
from red_team.scene import SMALL

AIM = "to starve the host of memory"
DEFENCE = "System V IPC does not exist inside"

PROGRAM = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
kept = []
for _ in range(20):
    segment = libc.shmget(0, 20 << 20, 0o1600)
    if segment < 0:
        break
    place = libc.shmat(segment, None, 0)
    ctypes.memset(ctypes.c_void_p(place), 1, 20 << 20)
    libc.shmdt(ctypes.c_void_p(place))
    kept.append(segment)
for segment in kept:
    libc.shmctl(segment, 0, None)
print("done:" if len(kept) == 20 else "refused after", len(kept) * 20, "MiB in segments")
"""

attempt, control = program_moves(PROGRAM, judge_words, limits=SMALL)
