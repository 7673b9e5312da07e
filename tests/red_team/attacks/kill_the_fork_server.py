"""Kill whatever an evaluation was forked from, by every number and group that it may have."""

from red_team.forking import next_moves

AIM = "no more evaluations, or ones that another server has to fork"
DEFENCE = "the server is in no process namespace, session or process group of an evaluation"

PROGRAM = """
import json, os, signal

# nothing beyond the server is aimed at, so that a hole in the sandbox harms no other process of this host
server, parent = json.loads(sys.argv[1])["server"], os.getppid()
gentle = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
for number in gentle:
    signal.signal(number, signal.SIG_IGN)
n_taken = 0
for target in [parent] if IS_NAIVE else [server, -server, parent]:
    for number in (*gentle, *((signal.SIGSTOP, signal.SIGKILL) if target else ())):  # 0: this process and its group
        try:
            os.kill(target, number)
            n_taken += target != 0
        except OSError:
            pass
report(f"{n_taken} signals were taken")
"""

attempt, control = next_moves(PROGRAM)
