"""The shop benchmark: instructions to be carried out in a generated text shop, scored by the order alone.

Items. There are 1,000 products. An item is an instruction (a kind of goods, two attributes, a color, a second option, a
price limit); success is a published reward of 1, and the reward is a view. Target products fall into pools by a public
hash of what they are, so that no two splits ask for the same attributes and options of the same kind of goods; hidden
instructions are drawn under the installation secret. Completions are drawn at temperature 0.5, one attempt an item: at
1 a tiny model often names products that are on no page.

Catalogue. Each product is computed from its number and the catalogue's seed: five departments with four kinds of goods
each. A product has four of its department's ten attributes, two in its title and two among its features, a price, and
some values of two axes of options. So several products fit an instruction, more of them the larger the catalogue is,
and which options they have is only on their pages.

Promises: no item holds its target product or an action; one seed, one catalogue on every machine. The catalogue is
public: anybody who has it may search it by program. Does NOT compare with published WebShop scores, and does NOT look
like a real shop: its vocabulary is small, so that a model of under a million weights can learn it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Players, Source, at_random, require_keys
from agent2.environments.shop import (
    BACK,
    BUY,
    DETAILS,
    NAME,
    NEW_SEARCH,
    NEXT,
    VERSION,
    OpenStore,
    Product,
    ShoppingRequest,
    ShopSettings,
    ShopWorld,
    Store,
    index_products,
    price_limit,
    require_store_name,
    shopper_action,
    tokenize,
)
from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.records import Item, JsonValue, Message, SamplingSettings, Scorer, Split
from agent2.scorers.reward import PurchaseScorer

MAX_PRODUCTS = 10_000_000
COLORS = ("black", "blue", "brown", "green", "pink", "red", "white", "yellow")
N_COLORS, N_SIZES = 5, 3
"""How many colors and how many values of its department's axis a product offers."""
PAGE_SIZE = 5
MAX_TURNS = 10
WORDINGS = (
    "i need a {0} {kind} that is {1}, {color}, {value}, and price lower than {limit} dollars",
    "find me a {color} {kind}, {0} and {1}, {value}, and price lower than {limit} dollars",
    "i am looking for a {kind} in {color} and {value}, {0}, {1}, and price lower than {limit} dollars",
    "buy a {0} and {1} {value} {kind} in {color}, and price lower than {limit} dollars",
)
ROW_KEYS = ("id", "prompt", "instruction", "store", "goal", "task_type")
N_TOKENIZER_CHATS = 1000
"""Visits from which the rest of the vocabulary is learned, beside `single_tokens`."""
OWN_PART = 0.5
"""Share of a token's initial vector that is its own; the rest it has in common with tokens like it."""
HIGHEST_PRICE, HIGHEST_LIMIT = 94, 130
NAVIGATION = frozenset({*DETAILS, BACK, BUY, NEXT, NEW_SEARCH})
"""Buttons that are neither a product nor an option."""


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
KINDS = {kind: department for department in DEPARTMENTS for _, kind in department.kinds}
ATTRIBUTES = frozenset(word for department in DEPARTMENTS for word in department.attributes)
VALUES = frozenset((*COLORS, *(value for department in DEPARTMENTS for value in department.values)))


class KeyedDraws:
    """Draws from a digest; the same key gives the same draws on every machine."""

    def __init__(self, key: str) -> None:
        self._digits = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=24).digest(), "big")

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        self._digits, number = divmod(self._digits, n)
        return number

    def sample(self, options: Sequence[str], k: int) -> list[str]:
        """K different options, in the order in which they were drawn."""
        remaining = list(options)
        return [remaining.pop(self.below(len(remaining))) for _ in range(k)]


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
        draws = KeyedDraws(f"shop product {self.seed} {number}")
        department = DEPARTMENTS[draws.below(len(DEPARTMENTS))]
        aisle, kind = department.kinds[draws.below(len(department.kinds))]
        attributes = draws.sample(department.attributes, 4)
        return Product(
            id=f"p{number}",
            title=f"{attributes[0]} {attributes[1]} {kind}",
            name=kind,
            query=kind,
            category=f"{department.name} › {aisle} › {kind}",
            price=float(5 + draws.below(90)),
            options={
                "color": sorted(draws.sample(COLORS, N_COLORS)),
                department.axis: sorted(draws.sample(department.values, N_SIZES), key=department.values.index),
            },
            attributes=attributes,
            features=attributes[2:],
            description=f"a {kind} for {department.name}, from the {aisle} aisle",
        )


@dataclass(frozen=True, slots=True)
class ShoppingTask:
    """What an instruction asks for."""

    product: Product
    """The product it was drawn from; others may fit too."""
    attributes: tuple[str, str]
    color: str
    value: str
    """Of the second axis."""
    price_upper: int
    wording: int

    @property
    def canonical(self) -> str:
        """What splits must not share: the kind of goods with attributes and options."""
        return " ".join((self.product.name, *sorted(self.attributes), self.color, self.value))

    @property
    def text(self) -> str:
        """The instruction."""
        return WORDINGS[self.wording].format(
            *self.attributes, kind=self.product.name, color=self.color, value=self.value, limit=self.price_upper
        )


def draw_shopping_task(rng: np.random.Generator, products: GeneratedProducts) -> ShoppingTask:
    """A shopping task that some product fits. The limit is one of the next four multiples of ten, as published."""
    # the order of the draws is part of every item: items, ids and splits change with it
    product = products[int(rng.integers(len(products)))]
    first, second = (product.attributes[int(place)] for place in rng.permutation(4)[:2])
    colors, values = product.options.values()
    return ShoppingTask(
        product=product,
        attributes=(first, second),
        color=colors[int(rng.integers(len(colors)))],
        value=values[int(rng.integers(len(values)))],
        price_upper=(int(product.price) // 10 + 1 + int(rng.integers(1, 4))) * 10,
        wording=int(rng.integers(len(WORDINGS))),
    )


@cache
def store_of(products: GeneratedProducts) -> Store:
    """The store of a catalogue, indexed once in a process: 0.2 s for 1,000 products."""
    return index_products(products.store_name, products)


def read_instruction(instruction: str) -> ShoppingRequest:
    """What a reader of an instruction of the shop looks for."""
    words = tokenize(instruction)
    kinds, attributes = [w for w in words if w in KINDS], [w for w in words if w in ATTRIBUTES]
    options = [word for word in words if word in VALUES]
    return ShoppingRequest(" ".join((*kinds, *attributes, *options)), options, price_limit(instruction))


def expert(item: Item, chat: Sequence[Message]) -> str:
    """The next action of a shopper that has read the chat and nothing else."""
    return shopper_action(read_instruction, chat)


def buy_first_result(item: Item, chat: Sequence[Message]) -> str:
    """A shortcut: the whole instruction as query, then the first result without its options."""
    page = chat[-1].text
    if f"[{BUY}]" in page:
        return f"choose[{BUY}]"
    first = page.partition("[")[2].partition("]")[0]
    return f"search[{item.payload['instruction']}]" if first == "search" else f"choose[{first}]"


def random_button(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    """A button of the page, all equally likely; at the search box, a word of the instruction."""
    buttons = [part.partition("]")[0] for part in chat[-1].text.split("[")[1:]]
    if buttons == ["search"]:
        words = tokenize(str(item.payload["instruction"]))
        return f"search[{words[int(rng.integers(len(words)))]}]"
    return f"choose[{buttons[int(rng.integers(len(buttons)))]}]" if buttons else ""


class TextShop:
    """What benchmarks of a text shop share: `shop` and the published one."""

    name: str
    version = "1.0"
    primary_metric = "success"
    attempts = 1

    def __init__(
        self, settings: ShopSettings, find_store: OpenStore, read_instruction: Callable[[str], ShoppingRequest]
    ) -> None:
        """find_store: opens the store that an item names."""
        self.settings, self.find_store, self.read_instruction = settings, find_store, read_instruction

    def environment(self) -> ShopWorld:
        """A fresh visit, with an expert that reads what the model reads."""
        return ShopWorld(self.settings, self.find_store, lambda chat: shopper_action(self.read_instruction, chat))

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A search for what each instruction names: all that is known before a page was seen."""
        return [f"search[{self.read_instruction(str(item.payload['instruction'])).query}]" for item in items]

    def visible_row(self, item: Item) -> dict[str, JsonValue]:
        """A visible item as a row of train.jsonl: enough to play and to score it, no action."""
        return {"id": item.id, "prompt": item.prompt, **{key: item.payload[key] for key in ROW_KEYS[2:]}}

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of such a row. Raises ConfigError for another kind of row."""
        require_keys(row, ROW_KEYS, self.name)
        payload = {key: row[key] for key in ROW_KEYS[2:]}
        return Item(str(row["id"]), Split.TRAIN, str(row["prompt"]), payload=payload)


SHOP_PLAYERS = Players(
    oracle=expert,
    random=at_random(random_button),
    ceiling_at_least=0.95,
    floor_at_most=0.05,
    shared_content=lambda item: str(item.payload["canonical"]),
    content_name="goods with the same attributes and options",
    n_played=75,
    shortcuts={"a player that buys the first result as it is": buy_first_result},
    forget=store_of.cache_clear,
)


class Shop(TextShop):
    """Instructions in a shop of 1,000 products, in four disjoint splits."""

    name = "shop"
    sampling = SamplingSettings(temperature=0.5, max_tokens=24)
    max_turns = MAX_TURNS
    n_products = 1000

    def __init__(self) -> None:
        self.products = GeneratedProducts(self.n_products)
        super().__init__(ShopSettings(max_turns=MAX_TURNS, page_size=PAGE_SIZE), self._store, read_instruction)
        self.tool_protocol = {"page_size": PAGE_SIZE, "products": self.n_products}
        self._source: Source[ShoppingTask] = Source(
            self.name,
            lambda rng: draw_shopping_task(rng, self.products),
            lambda task: task.canonical,
            lambda task: task.text,
        )

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n instructions of a split. Raises ConfigError without the secret for a hidden split."""
        return [self.item(task, split, secret) for task in self._source.first(split, n, secret)]

    def train_draws(self, rng: np.random.Generator) -> Iterator[ShoppingTask]:
        """Endless shopping tasks of the train pool, for a corpus."""
        return self._source.train_draws(rng)

    def scorer(self) -> Scorer:
        """Whether the order has a reward of 1."""
        return PurchaseScorer()

    def environment_version(self) -> str:
        """Name and version of the world, its settings and its catalogue."""
        return f"{NAME}-v{VERSION}+{self.settings.digest}+{self.products.store_name}"

    def players(self) -> Players:
        """The expert, a random player, and a shortcut that must not win."""
        return SHOP_PLAYERS

    def item(self, task: ShoppingTask, split: Split, secret: bytes | None) -> Item:
        """A shopping task as an item."""
        product = task.product
        goal = {
            "name": product.name,
            "query": product.query,
            "category": product.category,
            "attributes": list(task.attributes),
            "options": [task.color, task.value],
            "price_upper": task.price_upper,
        }
        payload = {
            "instruction": task.text,
            "store": self.products.store_name,
            "goal": goal,
            "task_type": KINDS[product.name].name,
            "canonical": task.canonical,
        }
        return Item(self._source.item_id(task, split, secret), split, task.text, payload=payload)

    def _store(self, name: JsonValue) -> Store:
        if require_store_name(name) != self.products.store_name:
            raise EnvironmentFailed(
                f"{self.name}: the item belongs to store {quoted(str(name))}, this one is {self.products.store_name}"
            )
        return store_of(self.products)
