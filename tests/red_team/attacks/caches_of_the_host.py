"""Search temporary folders and caches that programs of one host usually share."""

from red_team.moves import program_moves

AIM = "hidden items in a cache"
DEFENCE = "own /tmp, /dev/shm and home, in memory"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import pathlib, tempfile
for place in [os.path.dirname(targets["home"]), "/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/var/cache"]:
    for path in pathlib.Path(place).rglob("*.jsonl"):
        try:
            print(path.read_text(errors="replace")[:2000])
        except OSError:
            pass
"""

attempt, control = program_moves(PROGRAM)
