"""Send a body of empty objects: each takes three bytes on the way and a hundred once it is parsed."""

import psutil

from gateway_fakes import agent, running
from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.providers import gateway_settings
from red_team.scene import Scene

AIM = "a gateway that runs out of memory"
DEFENCE = "values are counted before anything is parsed"

SIZE = 24 * 2**20
BODY = b'{"messages":[' + b",".join([b"{}"] * (SIZE // 3)) + b"]}"


def attempt(scene: Scene) -> Outcome:
    folder = scene.root / "empty-objects"
    folder.mkdir(exist_ok=True)
    settings = gateway_settings(folder, "http://127.0.0.1:9")
    with running(settings) as (process, client):
        watched = psutil.Process(process.pid)
        before = watched.memory_info().rss
        status = client.post("/v1/chat/completions", content=BODY).status_code
        with agent(settings) as again:
            alive = again.get("/health").status_code == 200
        grown = (watched.memory_info().rss - before) / len(BODY)
    return Outcome(
        status != 400 or not alive or grown > 8, f"status {status}; {grown:.1f} bytes a byte; alive: {alive}"
    )


def control(scene: Scene) -> Outcome:
    program = (
        "import json, resource; body = '{\"m\":[' + ','.join(['{}'] * 2000000) + ']}'; held = json.loads(body);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // len(body))"
    )
    outcome = in_time(program)
    return Outcome(outcome.isdigit() and int(outcome) > 20, f"parsed at once: {outcome} bytes of memory a byte")
