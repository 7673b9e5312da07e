"""Spell a field as only a lenient reader of JSON takes it (Go's, for one, does not look at the case)."""

from red_team.providers import WEB, body_moves, fetches, image

AIM = "a provider that tells the outside world"
DEFENCE = "names of fields are compared without case and underscores"

attempt, control = body_moves(image(WEB, "Image_URL"), fetches)
