"""Talk to a grader that listens on loopback TCP, where every program of the host can: no token, guesses, tricks."""

from functools import partial

import httpx

from agent2.arena.grader.server import ApiInfo, make_app, serve_on_loopback
from red_team.frame import Outcome
from red_team.scene import LONGEST_S, Scene

AIM = "submissions in another's name"
DEFENCE = "a bearer token, compared in constant time"

TOKEN = "7f3a-of-the-trial"
TRICKS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer undefined"},
    {"Authorization": TOKEN},
    {"Authorization": f"bearer {TOKEN[:-1]}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "grader"},
    {"Cookie": f"token={TOKEN}"},
    {"X-Original-URL": "/health", "X-HTTP-Method-Override": "GET"},
)


def attempt(scene: Scene) -> Outcome:
    return _try(scene, TOKEN)


def control(scene: Scene) -> Outcome:
    return _try(scene, None)


def _try(scene: Scene, token: str | None) -> Outcome:
    server = serve_on_loopback(make_app(scene.grader, ApiInfo("arithmetic", "/workspace", {}), token))
    try:
        url = f"http://127.0.0.1:{server.port}"
        get = partial(httpx.get, timeout=LONGEST_S)
        codes = [get(f"{url}{path}", headers=t).status_code for t in TRICKS for path in ("/submissions", "/best")]
        codes.append(get(f"{url}/submissions?token={TOKEN}").status_code)
    finally:
        server.stop()
    return Outcome(200 in codes, f"{len(codes)} tries, answers {sorted(set(codes))}")
