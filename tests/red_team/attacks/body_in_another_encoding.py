"""Send a body in UTF-16: Python's reader of JSON guesses the encoding, one that searches bytes sees nothing."""

from red_team.frame import Move, Outcome
from red_team.providers import WEB, body_moves, fetches, image
from red_team.scene import Scene

AIM = "a provider that tells the outside world"
DEFENCE = "a body is UTF-8"

BODY = image(WEB).decode().encode("utf-16")
attempt: Move = body_moves(BODY, fetches)[0]


def control(scene: Scene) -> Outcome:
    """A filter that searches the bytes."""
    did = "" if b"image_url" in BODY else fetches(BODY)
    return Outcome(bool(did), did or "the search held")
