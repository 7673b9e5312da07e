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

Corpus of the tiny base model. Whole visits of the train pool in the shop itself. Each shopper has a care of its own:
the share of actions in which it does what the expert would do; otherwise it searches for a word or two, opens any
result, takes any option or none, buys too early, or asks for something that is not there. So the model knows the pages
and the actions, and buying the right product as one habit among several. A product number, a price, a word and an
option are one token each. In the first stage every token is learned, the shop's own too; in the second one only actions
are.

Promises: no item holds its target product or an action; one seed, one catalogue and one corpus on every machine; the
corpus has only instructions of the train pool. The catalogue is public: anybody who has it may search it by program.
Does NOT compare with published WebShop scores, and does NOT look like a real shop: its vocabulary is small, so that a
model of under a million weights can learn it. A gain on such a base shows that a pipeline works, not that it would
teach a model anything that it did not have in it.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agent2.benchmarks.home import Players, Source, at_random, pick, require_keys
from agent2.environments.shop import (
    BACK,
    BUY,
    DETAILS,
    INSTRUCTION,
    NAME,
    NEW_SEARCH,
    NEXT,
    NOTHING_FOUND,
    REFUSALS,
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
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress, TinyRecipe
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
_HIGHEST_PRICE, _HIGHEST_LIMIT = 94, 130
_NAVIGATION = frozenset({*DETAILS, BACK, BUY, NEXT, NEW_SEARCH})
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
    page = chat[-1].content
    if f"[{BUY}]" in page:
        return f"choose[{BUY}]"
    first = page.partition("[")[2].partition("]")[0]
    return f"search[{item.payload['instruction']}]" if first == "search" else f"choose[{first}]"


def random_button(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    """A button of the page, all equally likely; at the search box, a word of the instruction."""
    buttons = [part.partition("]")[0] for part in chat[-1].content.split("[")[1:]]
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


@dataclass(frozen=True, slots=True)
class ShopCorpus:
    """How the corpus is drawn; shares are 0 to 1."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_chats: int = 12_000
    careless_share: float = 0.3
    """Of visits whose shopper never does what the expert would do."""
    max_care: float = 1.0
    """The other shoppers draw their care up to this evenly."""
    impossible_share: float = 0.08
    """Of careless actions: a button of another page."""
    seed: int = 0


def corpus_chats(settings: ShopCorpus) -> list[list[Message]]:
    """The visits: instruction, action, page, action and so on; the last message is an action."""
    rng = np.random.default_rng([settings.seed, 0x5409])
    shop = Shop()
    tasks = shop.train_draws(rng)
    return [_visit(shop, next(tasks), settings, rng) for _ in range(settings.n_chats)]


def _visit(shop: Shop, task: ShoppingTask, settings: ShopCorpus, rng: np.random.Generator) -> list[Message]:
    """One visit, up to the order or the last turn."""
    care = 0.0 if rng.random() < settings.careless_share else settings.max_care * rng.random()
    world = shop.environment()
    chat = list(world.reset(shop.item(task, Split.TRAIN, None), 0))
    for turn in range(shop.max_turns):
        if rng.random() < care:
            action = world.ask_expert()
        else:
            action = careless_action(world.admissible(), task.text, settings.impossible_share, rng)
        chat.append(Message("assistant", action))
        step = world.act(action)
        if step.done or turn == shop.max_turns - 1:
            break
        chat.append(Message("user", step.observation or ""))
    return chat


def careless_action(
    possible: Sequence[str], instruction: str, impossible_share: float, rng: np.random.Generator
) -> str:
    """The next action of a careless shopper.

    possible: the actions that the page allows. At the search box, the goods and a word or two of the instruction; of
    results, any; of a product, any option, often none, and `buy now` soon.
    """
    if rng.random() < impossible_share:
        return f"choose[{pick(rng, (*sorted(VALUES), *DETAILS, BUY, BACK, NEXT))}]"
    if possible[0].startswith("search["):
        kind, *further_words = read_instruction(instruction).query.split()
        words = [word for word in further_words if rng.random() < 0.4]
        return f"search[{' '.join(([kind] if rng.random() < 0.8 else []) + words) or kind}]"
    buttons = [action.removeprefix("choose[").removesuffix("]") for action in possible]
    navigation = [name for name in buttons if name in _NAVIGATION]
    choices = [name for name in buttons if name not in _NAVIGATION]
    if BUY in navigation and rng.random() < 0.3:
        return f"choose[{BUY}]"
    return f"choose[{pick(rng, choices if choices and rng.random() < 0.85 else navigation)}]"


def single_tokens(n_products: int) -> tuple[str, ...]:
    """Strings that become one token each: words, options, products, prices, and set phrases of the pages."""
    aisles = {name for department in DEPARTMENTS for name in (department.name, *department.aisles)}
    words = sorted({*KINDS, *ATTRIBUTES, *VALUES, *aisles})
    openings = [re.split(r"\{\w+\}", f"{INSTRUCTION}{wording}") for wording in WORDINGS]
    phrases = {part.rstrip() for parts in openings for part in parts if len(part.rstrip()) > 1}
    bottom = f"[{NEW_SEARCH}]"
    return (
        *(f" {word}" for word in words),
        *words,
        *(f"[{value}]" for value in sorted(VALUES)),
        *(f"[p{number}]" for number in range(n_products)),
        *(f" ${price}" for price in range(_HIGHEST_PRICE + 1)),
        *(f" {limit} dollars" for limit in range(10, _HIGHEST_LIMIT + 1, 10)),
        *sorted(phrases - {" dollars"}),
        *(f"\n{axis}:" for axis in ("color", *(department.axis for department in DEPARTMENTS))),
        *(f"[{name}]" for name in (*DETAILS, BACK, BUY, NEXT, NEW_SEARCH)),
        f"\n[{NEXT}] {bottom}",
        f"\n[{NEXT}] [{BACK}] {bottom}",
        f"\n[{BACK}] {bottom}",
        f"\n{bottom}",
        "\n" + " ".join(f"[{name}]" for name in (*DETAILS, BACK, NEW_SEARCH, BUY)),
        f"\n[{BACK}]",
        "\n[search]",
        *(f"{detail}:" for detail in DETAILS),
        NOTHING_FOUND,
        " (chosen: ",
        "page ",
        " of ",
        "item:",
        "search[",
        "choose",
        ", from the",
        " aisle",
        " for",
        *REFUSALS,
    )


def init_related_tokens(model: Any, tokenizer: Any) -> None:
    """Start similar tokens near each other, so that what is learned of one serves all.

    A word with a space before it, without one and in brackets share a vector; products share one, prices another, along
    which they are ordered; each has a part of its own. Without it, most of the training goes into a thousand products.
    """
    import torch

    embeddings_VD = model.get_input_embeddings().weight
    token_ids = {piece: tokenizer.convert_tokens_to_ids(piece) for piece in single_tokens(Shop.n_products)}
    noise_3D = torch.randn((3, embeddings_VD.shape[1]), generator=torch.Generator().manual_seed(0))
    product_D, price_D, slope_D = noise_3D * model.config.initializer_range
    with torch.no_grad():
        for piece, row in token_ids.items():
            bare = piece.strip(" []")
            if piece.startswith("[p") and piece[2:-1].isdigit():
                embeddings_VD[row] += product_D
            elif amount := re.fullmatch(r" \$?(\d+)(?: dollars)?", piece):
                embeddings_VD[row] = OWN_PART * embeddings_VD[row] + price_D
                embeddings_VD[row] += slope_D * (int(amount[1]) / _HIGHEST_LIMIT * 4 - 2)
            elif bare != piece and bare in token_ids:
                embeddings_VD[row] = OWN_PART * embeddings_VD[row] + embeddings_VD[token_ids[bare]]


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import (  # here: torch, which looking up the recipe does not need
        StageOptions,
        build_chat_base,
    )

    stage_options = StageOptions(1, N_TOKENIZER_CHATS)
    return build_chat_base(
        entry,
        out_dir,
        on_progress,
        ShopCorpus,
        lambda corpus: [corpus_chats(corpus)] * 2,
        prepare=init_related_tokens,
        stage_options=stage_options,
    )


SIZE = TinyRecipe(
    target=0.0,
    hidden_size=96,
    n_layers=3,
    n_heads=4,
    feed_forward_size=256,
    max_vocabulary=300,
    context_tokens=1024,
    warmup_steps=20,
)
BASE = BaseModel(
    version="2",
    recipe=ChatRecipe(SIZE, steps=(120, 420), pieces=single_tokens(Shop.n_products)),
    corpus=ShopCorpus(),
    builder=build,
    shipped=f"{__name__}:tiny-shop",
    sample=lambda corpus: corpus_chats(replace(corpus, n_chats=N_SAMPLE_CHATS)),
)
"""The recipe of `tiny-shop`."""
