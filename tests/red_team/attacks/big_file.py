"""Write one file beyond the limit, with a hole so that it costs nothing."""

from red_team.moves import judge_words, program_moves
from red_team.scene import SMALL

AIM = "to overflow what reads it"
DEFENCE = "RLIMIT_FSIZE"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open("big", "wb") as file:
        file.truncate(200 << 20)
    print("done: a file of", os.path.getsize("big") >> 20, "MiB")
except OSError as error:
    print("refused:", error)
finally:
    os.path.exists("big") and os.unlink("big")
"""

attempt, control = program_moves(PROGRAM, judge_words, limits=SMALL)
