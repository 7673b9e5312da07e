"""The shop benchmark: instructions to be carried out in a generated text shop, by the order alone.

There are 1,000 products. An item is an instruction (a kind
of goods, two attributes, a color, a second option, a price limit); success is a published reward of 1, and the reward
is a view. Target products fall into pools by a public hash of what they are, so that no two splits ask for the same
attributes and options of the same kind of goods; hidden instructions are drawn under the installation secret.

Completions are drawn at temperature 0.5, one attempt an item: at 1 a tiny model often names products of no page.

Promises: no item holds its target product or an action. The catalogue is public, and whoever has it may search it
by program. Does NOT compare with published WebShop scores.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from agent2.benchmarks.home import Players, at_random, require_keys
from agent2.benchmarks.keyed_splits import Source
from agent2.benchmarks.shop.catalogue import COLORS, DEPARTMENTS, GeneratedProducts
from agent2.environments.shop.expert import ShoppingWish, price_limit, shop_by
from agent2.environments.shop.store import Product, Store, index_products, require_store_name, words_of
from agent2.environments.shop.world import BUY, NAME, VERSION, OpenStore, ShopSettings, ShopWorld
from agent2.errors import EnvironmentFailed, shown
from agent2.records import Item, JsonValue, Message, SamplingSettings, Scorer, Split
from agent2.scorers.purchase import PurchaseScorer

PAGE_SIZE = 5
MAX_TURNS = 10
WORDINGS = (
    "i need a {0} {kind} that is {1}, {color}, {value}, and price lower than {limit} dollars",
    "find me a {color} {kind}, {0} and {1}, {value}, and price lower than {limit} dollars",
    "i am looking for a {kind} in {color} and {value}, {0}, {1}, and price lower than {limit} dollars",
    "buy a {0} and {1} {value} {kind} in {color}, and price lower than {limit} dollars",
)
KINDS = {kind: department for department in DEPARTMENTS for _, kind in department.kinds}
ATTRIBUTES = frozenset(word for department in DEPARTMENTS for word in department.attributes)
VALUES = frozenset((*COLORS, *(value for department in DEPARTMENTS for value in department.values)))
ROW_KEYS = ("id", "prompt", "instruction", "store", "goal", "task_type")


@dataclass(frozen=True, slots=True)
class Errand:
    """What an instruction asks for."""

    product: Product
    """One that fits."""
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


def draw_errand(rng: np.random.Generator, products: GeneratedProducts) -> Errand:
    """An errand that some product fits. The limit is one of the next four multiples of ten, as published."""
    product = products[int(rng.integers(len(products)))]
    first, second = (product.attributes[int(place)] for place in rng.permutation(4)[:2])
    colors, values = product.options.values()
    return Errand(
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


def wish_of(instruction: str) -> ShoppingWish:
    """What a reader of an instruction of the shop looks for."""
    words = words_of(instruction)
    kinds, attributes = [w for w in words if w in KINDS], [w for w in words if w in ATTRIBUTES]
    options = [word for word in words if word in VALUES]
    return ShoppingWish(" ".join((*kinds, *attributes, *options)), options, price_limit(instruction))


def expert(item: Item, chat: Sequence[Message]) -> str:
    """What a shopper does next who has read the chat and nothing else."""
    return shop_by(wish_of, chat)


def buys_the_first(item: Item, chat: Sequence[Message]) -> str:
    """A trick: the whole instruction as query, then the first result as it is."""
    page = chat[-1].content
    if f"[{BUY}]" in page:
        return f"choose[{BUY}]"
    first = page.partition("[")[2].partition("]")[0]
    return f"search[{item.payload['instruction']}]" if first == "search" else f"choose[{first}]"


def random_button(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    """A button of the page, all as likely; where words are typed, a word of the instruction."""
    buttons = [part.partition("]")[0] for part in chat[-1].content.split("[")[1:]]
    if buttons == ["search"]:
        words = words_of(str(item.payload["instruction"]))
        return f"search[{words[int(rng.integers(len(words)))]}]"
    return f"choose[{buttons[int(rng.integers(len(buttons)))]}]" if buttons else ""


class TextShop:
    """What benchmarks of a text shop share: `shop` and the published one."""

    name: str
    version = "1.0"
    primary_metric = "success"
    attempts = 1

    def __init__(self, settings: ShopSettings, find_store: OpenStore, wish_of: Callable[[str], ShoppingWish]) -> None:
        """find_store: takes the store that an item names. wish_of: what a reader of an instruction looks for."""
        self.settings, self.find_store, self.wish_of = settings, find_store, wish_of

    def environment(self) -> ShopWorld:
        """A fresh visit, in which an expert can be asked who reads what the model reads."""
        return ShopWorld(self.settings, self.find_store, lambda chat: shop_by(self.wish_of, chat))

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A search for what each instruction names: all that can be said before a page was seen."""
        return [f"search[{self.wish_of(str(item.payload['instruction'])).query}]" for item in items]

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
    shortcuts={"a player that buys the first result as it is": buys_the_first},
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
        super().__init__(ShopSettings(max_turns=MAX_TURNS, page_size=PAGE_SIZE), self._store, wish_of)
        self.tool_protocol = {"page_size": PAGE_SIZE, "products": self.n_products}
        self._source: Source[Errand] = Source(
            self.name, lambda rng: draw_errand(rng, self.products), lambda errand: errand.canonical, lambda e: e.text
        )

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n instructions of a split. Raises ConfigError without the secret for a hidden one."""
        return [self.item(one, split, secret) for one in self._source.first(split, n, secret)]

    def train_draws(self, rng: np.random.Generator) -> Iterator[Errand]:
        """Endless errands of the train pool, for a corpus."""
        return self._source.train_draws(rng)

    def scorer(self) -> Scorer:
        """A reward of 1 or not."""
        return PurchaseScorer()

    def environment_version(self) -> str:
        """Name and version of the world, its settings and its catalogue."""
        return f"{NAME}-v{VERSION}+{self.settings.digest}+{self.products.store_name}"

    def players(self) -> Players:
        """Who brackets the instructions."""
        return SHOP_PLAYERS

    def item(self, errand: Errand, split: Split, secret: bytes | None) -> Item:
        """An errand as an item."""
        product = errand.product
        goal = {
            "name": product.name,
            "query": product.query,
            "category": product.category,
            "attributes": list(errand.attributes),
            "options": [errand.color, errand.value],
            "price_upper": errand.price_upper,
        }
        payload = {
            "instruction": errand.text,
            "store": self.products.store_name,
            "goal": goal,
            "task_type": KINDS[product.name].name,
            "canonical": errand.canonical,
        }
        return Item(self._source.item_id(errand, split, secret), split, errand.text, payload=payload)

    def _store(self, name: JsonValue) -> Store:
        if require_store_name(name) != self.products.store_name:
            raise EnvironmentFailed(
                f"{self.name}: the item is of store {shown(str(name))}, this one is {self.products.store_name}"
            )
        return store_of(self.products)
