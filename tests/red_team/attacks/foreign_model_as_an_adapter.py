"""Hand in an adapter of full rank that turns every matrix of the base into that of a foreign model."""

from red_team.disguises import disguise_moves, write_foreign_adapter

AIM = "credit for somebody else's training"
DEFENCE = "an adapter is compared as it is after merging"

attempt, control = disguise_moves(write_foreign_adapter)
