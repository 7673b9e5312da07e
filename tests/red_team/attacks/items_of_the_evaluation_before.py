"""Search an evaluation's memory for the items of the evaluation before it."""

from red_team.forking import next_moves

AIM = "hidden items of another split, which the server would have played before"
DEFENCE = "the server never reads a job; each goes to the process that evaluates it, by standard input"

PROGRAM = """
import re

items = set()
with open("/proc/self/maps") as lines, open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in lines:
        span, rights = line.split()[:2]
        if rights.startswith("rw"):
            start, end = (int(number, 16) for number in span.split("-"))
            try:
                memory.seek(start)
                items |= set(re.findall(rb"Calculate [-+*/() 0-9]{5,40}", memory.read(end - start)))
            except (OSError, ValueError):
                pass  # pages of the kernel's own
report(f"done: {len(items)} items" if items else "no item in memory")
"""

attempt, control = next_moves(PROGRAM, way="same")
