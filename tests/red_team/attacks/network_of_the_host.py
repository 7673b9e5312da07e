"""Connect to an address of the host, as a way to any network."""

from red_team.moves import program_moves

AIM = "a way out"
DEFENCE = "network namespace"

PROGRAM = """
import json, os
targets = json.loads(os.environ["TARGETS"])
import socket
try:
    print(socket.create_connection((targets["address"], targets["port"]), 3).recv(100).decode())
except OSError as error:
    print("no way:", error)
"""

attempt, control = program_moves(PROGRAM)
