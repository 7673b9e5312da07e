"""Submit ten thousand times, as fast as the API answers."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from red_team.frame import Outcome
from red_team.naive import naive_api
from red_team.scene import Scene

AIM = "a grader that is busy for ever, a full disk"
DEFENCE = "attempts are limited beside submissions; a full trial answers at once"

N = 10_000
N_CLIENTS = 16


def attempt(scene: Scene) -> Outcome:
    with scene.second_grader() as (client_of, grader):
        shutil.copytree(scene.base, grader.settings.paths.workspace / "output" / "model")
        started = time.monotonic()

        def submit_many(index: int) -> int:
            with client_of() as client:
                path = {"model_path": "output/model", "wait": False}
                return sum(client.post("/submit", json=path).status_code == 202 for _ in range(N // N_CLIENTS))

        with ThreadPoolExecutor(N_CLIENTS) as pool:
            n_accepted = sum(pool.map(submit_many, range(N_CLIENTS)))
        seconds, budget = time.monotonic() - started, scene.config.budget.submissions
        with client_of() as client:
            is_alive = client.get("/health").status_code == 200
    detail = f"{N} in {seconds:.0f} s: {n_accepted} queued, {budget} allowed, healthy after it: {is_alive}"
    return Outcome(n_accepted > budget or not is_alive, detail)


def control(scene: Scene) -> Outcome:
    with naive_api() as (client, _):
        for _ in range(N):
            last = client.post("/submit", content=b'{"model_path": "output/none"}')
    queue = last.json()["queue"]
    return Outcome(queue >= N, f"{queue} evaluations wait")
