"""The generated catalogue: any number of products, each computed from its number and the catalogue's seed.

Five departments with four kinds of goods each. A product has four of its department's ten attributes, two in its title
and two among its features, a price, and some values of two axes of options. So several products fit an instruction,
more of them the larger the catalogue is, and which of their options there are is seen on their pages only.

Promises: one seed, one catalogue, on every machine. Does NOT look like a real shop: words are few, so that a model of
under a million weights can learn them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent2.environments.shop.store import Product
from agent2.errors import ConfigError

MAX_PRODUCTS = 10_000_000
COLORS = ("black", "blue", "brown", "green", "pink", "red", "white", "yellow")
N_COLORS, N_SIZES = 5, 3
"""Values that a product offers, of its department's."""


@dataclass(frozen=True, slots=True)
class Department:
    """One part of the shop."""

    name: str
    aisles: Mapping[str, tuple[str, str]]
    """Aisle -> its two kinds of goods."""
    attributes: Sequence[str]
    axis: str
    """Of the options beside the color."""
    values: Sequence[str]

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """(aisle, kind) of all goods."""
        return [(aisle, kind) for aisle, kinds in self.aisles.items() for kind in kinds]


DEPARTMENTS = (
    Department(
        "clothing",
        MappingProxyType({"tops": ("shirt", "jacket"), "bottoms": ("trousers", "skirt")}),
        ("breathable", "casual", "elastic", "formal", "hooded", "lined", "reversible", "slim", "warm", "washable"),
        "size",
        ("small", "medium", "large", "huge"),
    ),
    Department(
        "kitchen",
        MappingProxyType({"pots": ("kettle", "pan"), "table": ("bowl", "jug")}),
        ("coated", "deep", "heatproof", "heavy", "lidded", "magnetic", "rustproof", "shallow", "stackable", "thick"),
        "material",
        ("steel", "glass", "clay", "copper"),
    ),
    Department(
        "electronics",
        MappingProxyType({"sound": ("speaker", "headset"), "light": ("lamp", "torch")}),
        ("bright", "cordless", "digital", "dimmable", "portable", "quiet", "robust", "smart", "solar", "waterproof"),
        "pack",
        ("single", "double", "triple", "family"),
    ),
    Department(
        "beauty",
        MappingProxyType({"hair": ("shampoo", "comb"), "skin": ("cream", "soap")}),
        ("gentle", "herbal", "medical", "mild", "natural", "oily", "organic", "scentless", "smooth", "vegan"),
        "bottle",
        ("tiny", "short", "tall", "giant"),
    ),
    Department(
        "garden",
        MappingProxyType({"tools": ("rake", "spade"), "seating": ("bench", "hammock")}),
        ("ergonomic", "extendable", "firm", "flexible", "foldable", "light", "padded", "rotating", "sharp", "sturdy"),
        "length",
        ("half", "normal", "long", "extra"),
    ),
)


class Dice:
    """Draws from a digest; the same key gives the same draws on every machine."""

    def __init__(self, key: str) -> None:
        self._left = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=24).digest(), "big")

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        self._left, drawn = divmod(self._left, n)
        return drawn

    def some(self, options: Sequence[str], k: int) -> list[str]:
        """K different ones, in the order in which they were drawn."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(k)]


@dataclass(frozen=True, slots=True)
class GeneratedProducts:
    """A catalogue of n products."""

    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for a size that cannot be made."""
        if not 1 <= self.n <= MAX_PRODUCTS:
            raise ConfigError(f"shop: a catalogue of {self.n} products; ask for 1 to {MAX_PRODUCTS}")

    @property
    def store_name(self) -> str:
        """Names everything that the texts depend on."""
        return f"shop-v1-{self.n}-{self.seed}"

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, number: int) -> Product:
        dice = Dice(f"shop product {self.seed} {number}")
        department = DEPARTMENTS[dice.below(len(DEPARTMENTS))]
        aisle, kind = department.kinds[dice.below(len(department.kinds))]
        attributes = dice.some(department.attributes, 4)
        return Product(
            id=f"p{number}",
            title=f"{attributes[0]} {attributes[1]} {kind}",
            name=kind,
            query=kind,
            category=f"{department.name} › {aisle} › {kind}",
            price=float(5 + dice.below(90)),
            options={
                "color": sorted(dice.some(COLORS, N_COLORS)),
                department.axis: sorted(dice.some(department.values, N_SIZES), key=department.values.index),
            },
            attributes=attributes,
            features=attributes[2:],
            description=f"a {kind} for {department.name}, from the {aisle} aisle",
        )
