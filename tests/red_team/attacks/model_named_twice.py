"""Ask for a dearer model under a second spelling of the field, beside the one that the gateway sets."""

import json

from red_team.providers import body_moves

AIM = "another model than the trial's driver"
DEFENCE = "other spellings of what decides the price are refused"

BODY = b'{"model":"m","Model":"the-dearest","messages":[]}'


def answers(body: bytes) -> str:
    """A provider whose reader takes the last field that is the same without its case."""
    model = [value for name, value in json.loads(body).items() if name.lower() == "model"][-1]
    return f"{model} answers" if model == "the-dearest" else ""


attempt, control = body_moves(BODY, answers)
