"""Half a character in the output of a tool: every later request carries it, and a strict reader refuses them all."""

import msgspec

from red_team.frame import Outcome
from red_team.providers import gateway
from red_team.scene import Scene

AIM = "an agent that can make no further call"
DEFENCE = "half characters are replaced on the way"

BODY = b'{"model":"m","messages":[{"role":"tool","content":"cut \\ud83d"}]}'


def attempt(scene: Scene) -> Outcome:
    with gateway(scene) as (provider, client, _):
        status = client.post("/v1/chat/completions", content=BODY).status_code
        sent = provider.requests[0]["body"] if provider.requests else b""
    is_blocked = status != 200 or b"\\ud83d" in sent
    return Outcome(is_blocked, f"status {status}, the provider got {sent[-40:]!r}")


def control(scene: Scene) -> Outcome:
    try:
        msgspec.json.decode(BODY)
    except msgspec.DecodeError as error:
        return Outcome(True, f"a strict reader says: {error}")
    return Outcome(False, "a strict reader took it")
