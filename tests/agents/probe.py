"""Run by each agent system in its sandbox: looks for ways to an LLM other than the gateway, and for keys.

Prints nothing, so that the conversation is the same in a replay. Arguments: port of the upstream server on the host.
"""

import json
import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

PLACES = [("127.0.0.1", int(sys.argv[1])), ("1.1.1.1", 443), ("api.openai.com", 443), ("api.anthropic.com", 443)]


def is_open(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def lists_models(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
            return "data" in json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code == 401  # wants the trial's key
    except (OSError, ValueError):
        return False


def variables() -> list[str]:
    """Environments of all processes that can be read."""
    entries = [f"{name}={value}" for name, value in os.environ.items()]
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            entries += path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
    return entries


listening = [port for port in range(1024, 65536) if is_open("127.0.0.1", port)]
findings = {
    "interfaces": [name for _, name in socket.if_nameindex()],
    "reached": [f"{host}:{port}" for host, port in PLACES if is_open(host, port)],
    "llm_ports": [port for port in listening if lists_models(port)],
    "variables": sorted(set(variables())),
}
# The zero byte makes it no text file of the workspace, which a replay would have to find the same.
Path("output/probe.bin").write_bytes(b"\0" + json.dumps(findings).encode())
