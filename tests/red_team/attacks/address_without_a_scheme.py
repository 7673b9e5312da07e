"""Leave the scheme out: relative to the provider, such an address is one on the web."""

from red_team.providers import body_moves, fetches, image

AIM = "a provider that tells the outside world"
DEFENCE = "only data: passes"

attempt, control = body_moves(image("//example.org/what-the-agent-tells"), fetches)
