"""Connect to an abstract unix socket, which no mount hides."""

from red_team.moves import program_moves

AIM = "services of the host's session"
DEFENCE = "network namespace"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import socket
try:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\\0" + targets["abstract"])
        print(client.recv(100).decode())
except OSError as error:
    print("no way:", error)
"""

attempt, control = program_moves(PROGRAM)
