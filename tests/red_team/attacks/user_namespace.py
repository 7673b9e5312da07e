"""Make a user namespace of one's own, to mount what has no limits."""

from red_team.moves import judge_words, program_moves

AIM = "capabilities"
DEFENCE = "system-call filter, no capabilities"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000 | 0x00020000) == 0 and libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0:
    print("done: a mount of my own")
else:
    print("refused:", os.strerror(ctypes.get_errno()))
"""

attempt, control = program_moves(PROGRAM, judge_words)
