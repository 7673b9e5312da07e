"""The closed world: invented beings, each with one value for every property.

The facts are fixed and public, as those of a textbook are; what is hidden is which question is asked with which
options. A model can only know them from having read them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

BEINGS = (
    "arlo", "bexa", "cori", "dunu", "elmi", "fola", "giso", "hara", "ilpo", "joka", "kemi", "lusa",
    "mavo", "nebi", "oruk", "pilo", "quen", "rasu", "soti", "tavo", "ulma", "vesu", "wido", "zefa",
)  # fmt: skip
PROPERTIES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "color": ("red", "blue", "green", "gold", "black", "white", "pink", "gray"),
        "food": ("fish", "rice", "nuts", "bread", "honey", "grass", "corn", "milk"),
        "home": ("cave", "lake", "tree", "hill", "desert", "river", "island", "forest"),
    }
)
_WORLD_SEED = 20_260_801


def _facts() -> Mapping[tuple[str, str], str]:
    rng = np.random.default_rng(_WORLD_SEED)
    return MappingProxyType(
        {
            (being, name): values[int(rng.integers(len(values)))]
            for being in BEINGS
            for name, values in PROPERTIES.items()
        }
    )


FACTS = _facts()
"""(being, property) -> value."""
