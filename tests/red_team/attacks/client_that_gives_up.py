"""Give up waiting and ask again, as clients do after a timeout: is every try billed?"""

import asyncio
from collections.abc import Callable

import httpx
from aiohttp import web

from agent2.llm.records import WireProtocol
from gateway_fakes import request_of, settle, usual
from red_team.frame import Outcome
from red_team.providers import gateway
from red_team.scene import LONGEST_S, Scene

AIM = "a provider's bill for three calls where one was wanted"
DEFENCE = "the same request again gets the answer of the call that is under way"

PATH, BODY = request_of(WireProtocol.OPENAI_CHAT, "slow")


async def slow(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(2.5)
    return usual(request, await request.read())


def tries(client: httpx.Client, until_seen: Callable[[], None]) -> None:
    """until_seen: returns when the one who is asked has seen all that was sent; a slow machine is no defence."""
    for wait_s in (0.4, 0.4, 200):
        try:
            client.post(PATH, json=BODY, timeout=wait_s)
        except httpx.ReadTimeout:
            until_seen()


def attempt(scene: Scene) -> Outcome:
    with gateway(scene) as (provider, client, settings):
        provider.then(slow, slow, slow)
        tries(client, lambda: settle(settings))
        n_calls = len(provider.requests)
    return Outcome(n_calls > 1, f"{n_calls} call(s) to the provider")


def control(scene: Scene) -> Outcome:
    with gateway(scene) as (provider, _, _), httpx.Client(base_url=provider.url, timeout=LONGEST_S) as direct:
        provider.then(slow, slow, slow)
        tries(direct, lambda: None)
        n_calls = len(provider.requests)
    return Outcome(n_calls == 3, f"{n_calls} calls without a gateway")
