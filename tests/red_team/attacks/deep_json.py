"""Send JSON that nests deeper than a recursive parser can follow."""

import time

from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader that crashes or hangs"
DEFENCE = "a limit on nesting, counted before anything is parsed"


def attempt(scene: Scene) -> Outcome:
    statuses = []
    with scene.client() as client:
        for depth in (200, 30_000):
            for opening, closing in (("[", "]"), ('{"a":', "}")):
                body = (opening * depth + "1" + closing * depth)[: 60 << 10]
                started = time.monotonic()
                answer = client.post("/submit", content=body, headers={"Content-Type": "application/json"})
                statuses.append(answer.status_code)
                if time.monotonic() - started > 200 or answer.status_code >= 500:
                    return Outcome(True, f"depth {depth}: {answer.status_code}")
        alive = client.get("/health").status_code
    return Outcome(alive != 200 or 200 in statuses, f"answers {sorted(set(statuses))}, healthy after it")


def control(scene: Scene) -> Outcome:
    outcome = in_time("import json; json.loads('[' * 100_000 + ']' * 100_000); print('read')", seconds=120)
    return Outcome(outcome.startswith("breaks"), f"json.loads {outcome}")
