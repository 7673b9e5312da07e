"""Connect to a service that listens on the host's loopback."""

from red_team.moves import program_moves

AIM = "databases, metadata services, notebooks"
DEFENCE = "network namespace"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import socket
try:
    print(socket.create_connection(("127.0.0.1", targets["port"]), 3).recv(100).decode())
except OSError as error:
    print("no way:", error)
"""

attempt, control = program_moves(PROGRAM)
