"""Follow links and '..' out of the workspace, and the roots and folders that /proc offers."""

from red_team.moves import program_moves

AIM = "the secret through the workspace"
DEFENCE = "private root, own /proc"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import glob
os.makedirs("links", exist_ok=True)
link = "links/out"
if not os.path.islink(link):
    os.symlink(targets["secret"], link)
ways = [link, "/workspace/../../.." + targets["secret"]]
ways += [root + targets["secret"] for root in glob.glob("/proc/[0-9]*/root")]
ways += [cwd + "/home/secret" for cwd in glob.glob("/proc/[0-9]*/cwd")]
for way in ways:
    try:
        print(open(way, "rb").read().hex())
    except OSError:
        pass
os.unlink(link)
"""

attempt, control = program_moves(PROGRAM)
