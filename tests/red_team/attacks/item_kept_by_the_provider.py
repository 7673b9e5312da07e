"""Refer to an earlier answer by its id alone, without the kind that says so."""

import json

from red_team.providers import body_moves

AIM = "content that is in no record and no reservation"
DEFENCE = "an item with an id and nothing else is refused"


def reads(body: bytes) -> str:
    """A provider that looks up items that are only an id."""
    stored_ids = [item["id"] for item in json.loads(body).get("input", []) if set(item) == {"id"}]
    return f"the provider adds what it keeps as {stored_ids[0]}" if stored_ids else ""


attempt, control = body_moves(b'{"model":"m","input":[{"id":"msg_1"}]}', reads, "/v1/responses")
