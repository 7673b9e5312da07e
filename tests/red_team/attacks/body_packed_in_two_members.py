"""Pack a body as two gzip members: a filter that stops after the first sees half of what the provider reads."""

import gzip

from red_team.providers import WEB, body_moves, fetches, image

AIM = "a provider that tells the outside world"
DEFENCE = "every member is read, and what was read is sent unpacked"

WHOLE = image(WEB)
HARMLESS = b'{"messages":[]}'
BODY = gzip.compress(HARMLESS + b" " * 9) + gzip.compress(WHOLE)


def second_half(body: bytes) -> str:
    """A provider that reads the last line, as some do with JSON lines; of a body that was unpacked whole."""
    last = body[len(HARMLESS) + 9 :] if body.startswith(HARMLESS) else body
    return fetches(last) if last else ""


attempt, control = body_moves(BODY, second_half, headers={"content-encoding": "gzip"})
