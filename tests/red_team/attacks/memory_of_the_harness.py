"""Attach to a process of the harness and search its memory."""

from red_team.moves import victim_moves

AIM = "secrets in memory"
DEFENCE = "process namespace, no capabilities"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import ctypes, re
libc = ctypes.CDLL(None, use_errno=True)
victim = targets["victim"]
if libc.ptrace(16, victim, None, None) != 0:  # PTRACE_ATTACH
    print("no such process here:", os.strerror(ctypes.get_errno()))
for line in open(f"/proc/{victim}/maps") if os.path.exists(f"/proc/{victim}/maps") else []:
    span, rights = line.split()[:2]
    if not rights.startswith("rw"):
        continue
    start, end = (int(word, 16) for word in span.split("-"))
    with open(f"/proc/{victim}/mem", "rb") as memory:
        memory.seek(start)
        try:
            found = re.findall(rb"marker-[0-9a-f]{16}", memory.read(end - start))
        except OSError:
            continue
    print(*(word.decode() for word in found))
"""

attempt, control = victim_moves(PROGRAM)
