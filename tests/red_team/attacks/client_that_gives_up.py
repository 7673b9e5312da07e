"""Give up waiting and ask again, as clients do after a timeout: is every try billed?"""

import asyncio

import httpx
from aiohttp import web

from agent2.llm.records import WireProtocol
from gateway_fakes import request_of, usual
from red_team.frame import Outcome
from red_team.providers import gateway
from red_team.scene import Scene

AIM = "a provider's bill for three calls where one was wanted"
DEFENCE = "the same request again gets the answer of the call that is under way"

PATH, BODY = request_of(WireProtocol.OPENAI_CHAT, "slow")


async def slow(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(2.5)
    return usual(request, await request.read())


def tries(client: httpx.Client) -> None:
    for wait_s in (0.4, 0.4, 30):
        try:
            client.post(PATH, json=BODY, timeout=wait_s)
        except httpx.ReadTimeout:
            continue


def attempt(scene: Scene) -> Outcome:
    with gateway(scene) as (provider, client, _):
        provider.then(slow, slow, slow)
        tries(client)
        n_calls = len(provider.requests)
    return Outcome(n_calls > 1, f"{n_calls} call(s) to the provider")


def control(scene: Scene) -> Outcome:
    with gateway(scene) as (provider, _, _), httpx.Client(base_url=provider.url) as direct:
        provider.then(slow, slow, slow)
        tries(direct)
        n_calls = len(provider.requests)
    return Outcome(n_calls == 3, f"{n_calls} calls without a gateway")
