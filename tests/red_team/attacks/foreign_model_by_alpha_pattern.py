"""Hide a foreign model in an adapter whose `alpha_pattern` makes it a thousand times what `lora_alpha` says."""

from pathlib import Path

from red_team.disguises import HIDDEN_SIZE, MODULES, disguise_moves, write_foreign_adapter

AIM = "credit for somebody else's training"
DEFENCE = "the audit merges with the code that the grader merges with, every setting included"

FACTOR = 1000.0


def disguise(base: Path, folder: Path) -> None:
    pattern = dict.fromkeys(MODULES, HIDDEN_SIZE * FACTOR)
    write_foreign_adapter(base, folder, scale=FACTOR, alpha_pattern=pattern)


attempt, control = disguise_moves(disguise)
