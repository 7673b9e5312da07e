"""Read the installation secret, the caches of base cards and another trial by their paths on the host."""

from red_team.moves import program_moves

AIM = "the secret, hidden items"
DEFENCE = "mount namespace with explicit binds"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import pathlib
places = [targets["secret"], *pathlib.Path(targets["home"]).rglob("*"), *pathlib.Path(targets["other"]).rglob("*")]
for path in places:
    try:
        content = open(path, "rb").read()
    except OSError:
        continue
    print(content.hex(), content.decode(errors="replace"))
"""

attempt, control = program_moves(PROGRAM)
