"""Give one name twice, deep in a message: some readers take the first, some the last."""

import json

from red_team.providers import WEB, body_moves

AIM = "a provider that tells the outside world"
DEFENCE = "a body is parsed once, a name twice is refused, and what was parsed is sent"

PART = '{"type":"image_url","image_url":{"url":"%s"},"image_url":{"url":"data:,x"}}' % WEB  # noqa: UP031
BODY = '{"model":"m","messages":[{"role":"user","content":[%s]}]}' % PART  # noqa: UP031


def first_wins(body: bytes) -> str:
    """A provider whose reader takes the first of two."""

    def keep(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return dict(reversed(pairs))

    url = json.loads(body, object_pairs_hook=keep)["messages"][0]["content"][0]["image_url"]["url"]
    return f"the provider fetches {url}" if url.startswith("http") else ""


attempt, control = body_moves(BODY.encode(), first_wins)
