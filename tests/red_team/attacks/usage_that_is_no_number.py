"""An endpoint that tells its usage as texts, negative numbers or nothing: a budget that counts it as 0 never ends."""

from agent2.llm.records import WireProtocol
from gateway_fakes import request_of, saying
from red_team.frame import Outcome
from red_team.providers import gateway
from red_team.scene import Scene

AIM = "a budget that never ends"
DEFENCE = "usage that is no count is estimated from the texts"

CHOICES = [{"message": {"role": "assistant", "content": "x" * 4000}}]
USAGES = [{"prompt_tokens": "9"}, {"prompt_tokens": -5}, {"prompt_tokens": 0.5}, {"prompt_tokens": None}, None]
N_CALLS = 30


def attempt(scene: Scene) -> Outcome:
    path, body = request_of(WireProtocol.OPENAI_CHAT)
    with gateway(scene, max_tokens=20_000, unlisted_output_tokens=2_000) as (provider, client, _):
        for number in range(N_CALLS):
            provider.then(saying(200, {"choices": CHOICES, "usage": USAGES[number % len(USAGES)]}))
        statuses = [client.post(path, json=body).status_code for _ in range(N_CALLS)]
    n_made = statuses.count(200)
    return Outcome(n_made > 15, f"{n_made} of {N_CALLS} calls were made on a budget for 10")


def control(scene: Scene) -> Outcome:
    """A budget that takes what is no number for nothing."""
    spent = 0
    for number in range(N_CALLS):
        count = (USAGES[number % len(USAGES)] or {}).get("prompt_tokens")
        spent += count if isinstance(count, int) and count > 0 else 0
    return Outcome(spent == 0, f"{N_CALLS} calls cost {spent} tokens")
