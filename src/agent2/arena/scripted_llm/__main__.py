"""`python -m agent2.arena.scripted_llm --script FILE` serves until it is stopped; the first line printed is its URL."""

import argparse
import os
import socket
import sys
from pathlib import Path

import uvicorn

from agent2.arena.scripted_llm.conversation import load_script
from agent2.arena.scripted_llm.server import make_app
from agent2.errors import Agent2Error

KEY_VARIABLE = "SCRIPTED_LLM_KEY"
"""If set, requests must carry this key."""


def main() -> None:
    """Serve a script on a loopback port or a unix socket."""
    parser = argparse.ArgumentParser(prog="python -m agent2.arena.scripted_llm", description=__doc__)
    parser.add_argument("--script", required=True, help="YAML file with the steps, or arithmetic, the packaged one")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0: a free one")
    parser.add_argument("--socket", type=Path, help="unix socket, instead of a port")
    parser.add_argument("--log", type=Path, help="file to append one JSON line a request to")
    given = parser.parse_args()
    try:
        app = make_app(load_script(given.script), given.log, os.environ.get(KEY_VARIABLE))
    except Agent2Error as error:
        sys.exit(f"{parser.prog}: {error}")
    listener, url = _listen(given.port, given.socket)
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int, path: Path | None) -> tuple[socket.socket, str]:
    if path is not None:
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        return listener, f"unix:{path}"
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()  # who reads the address may connect at once
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


if __name__ == "__main__":
    main()
