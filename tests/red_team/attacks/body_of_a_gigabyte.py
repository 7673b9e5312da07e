"""Send a body of a gigabyte, announced and unannounced, to a server that might read it all."""

from collections.abc import Iterator

import httpx
import psutil

from red_team.frame import Outcome
from red_team.naive import naive_api
from red_team.scene import Scene

AIM = "a grader without memory"
DEFENCE = "a limit on the body, counted while it arrives"

MIB = 1 << 20
TOTAL = 1024


def attempt(scene: Scene) -> Outcome:
    sizes, statuses = [psutil.Process().memory_info().rss], []
    for headers in ({}, {"Content-Length": str(TOTAL * MIB)}):
        with scene.client() as client:
            try:
                statuses.append(client.post("/submit", content=_chunks(sizes), headers=headers).status_code)
            except httpx.TransportError:
                statuses.append(413)  # hung up on while it talked
    grown = (max(sizes) - sizes[0]) / MIB
    detail = f"{statuses} while {len(sizes) - 1} MiB were sent, at most {grown:.0f} MiB more memory"
    return Outcome(grown > 200 or statuses != [413, 413], detail)


def control(scene: Scene) -> Outcome:
    """The naive API and less than half of it."""
    with naive_api() as (client, pid):
        server = psutil.Process(pid)
        before, n_mib = server.memory_info().rss, 400
        peak = client.post("/submit", content=b"x" * n_mib * MIB).json()["n_bytes"]
        grown = (server.memory_info().rss - before) / MIB
        high = _high_water_mib(pid)
    return Outcome(high > n_mib * 0.9, f"read {peak // MIB} MiB, {max(grown, high):.0f} MiB of memory at its height")


def _high_water_mib(pid: int) -> float:
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _chunks(sizes: list[int]) -> Iterator[bytes]:
    """A gigabyte, and on the way the size of this process, which is the server's too."""
    me = psutil.Process()
    for _ in range(TOTAL):
        yield b"x" * MIB
        sizes.append(me.memory_info().rss)
