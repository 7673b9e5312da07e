"""Makes the weights of `tiny-household` that the package ships, and shows what post-training makes of them.

    python benchmarks/tiny_household.py make              train from the recipe; writes the folder that is shipped
    python benchmarks/tiny_household.py scores [FOLDER]   success on dev games, greedy and at temperature 1

Everything runs on one torch thread of a CPU. `make` takes six to fifteen minutes.
"""

import sys
from pathlib import Path

from agent2.arena.base_models import BASE_MODELS, ensure_base_model
from agent2.benchmarks.household.base import make
from agent2.training.running import use_threads
from agent2.training.visible import dev_scores

ENTRY = BASE_MODELS["tiny-household"]
PACKAGED = Path(__file__).parent.parent / "src" / "agent2" / "benchmarks" / "household" / "tiny-household"
N_GAMES = 300


def show_scores(folder: Path) -> None:
    """Success and views, one column for each temperature."""
    columns = [dev_scores(folder, ["household"], N_GAMES, temperature)["household"] for temperature in (0.0, 1.0)]
    print(f"{f'{N_GAMES} dev games':32}{'greedy':>10}{'T = 1':>10}")
    for view in columns[0]:
        print(f"{view:32}" + "".join(f"{column[view]:10.3f}" for column in columns if view in column))


def main(arguments: list[str]) -> None:
    """Run one of the two."""
    use_threads()
    match arguments:
        case ["make"]:
            print(make(ENTRY, PACKAGED, print))
        case ["scores"]:
            show_scores(ensure_base_model("tiny-household", print))
        case ["scores", folder]:
            show_scores(Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
