"""A text store: a searchable catalogue, the world in which one visit is played, and an expert shopper.

Store. Products are numbered from 0; a BM25 index over their words is kept on disk and memory-mapped.

    <worlds>/<store name>/
    ├── index/           bm25s: term weights (.npy, memory-mapped) and the vocabulary
    ├── products.jsonl   one product a line; only of a catalogue that was read from files
    ├── places.npy       where each line begins, memory-mapped
    └── store.json       number of products, digest of their texts, version of this layout

A generated catalogue computes each product from its number, so that a million of them take no memory. Words are runs
of letters and digits in lower case, without stemming; ranking is BM25 with k1 = 0.9 and b = 0.4, ties by number.

World. One visit to a store, from the instruction to the order.

    search[words]      results, some a page, as `[id] title $price`
    choose[button]     whatever the page shows in brackets: a product, an option, next >, < prev, features,
                       description, back to search, buy now; `click[button]` is the same

An action is its first line; brackets have to enclose all of it, so that half an action is none. Foolish actions
(no such button here, too long, empty) are answered in one sentence and counted; they never raise. `buy now` places
the order and ends the visit. Titles and texts of products are shown on one line, without control characters, and
brackets in them become parentheses: whatever a catalogue says, a button is what the page offers.

Expert. Reads what a player reads: searches, opens the first result within the price, chooses options, buys. It is a
function of the chat alone, so the same chat gets the same action in every process. A function of the benchmark reads
the instruction into a `ShoppingRequest`; options on the page are chosen where the instruction names them. The expert
goes back for another product only if a requested option is not on the page.

Promises: the same catalogue gives the same ranking on every machine; a folder appears whole or not at all, and of two
concurrent builders the first to finish wins. A world is single use; the same item, store and actions give the same
pages and state; what is scored is the order. Does NOT download or judge, and does NOT end a visit at the turn cap:
the caller stops there.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.records import Item, JsonValue, Message, Step, digest_of

K1, B = 0.9, 0.4
"""BM25 parameters of the published search engine."""
MAX_RESULTS = 50
"""Of one search; as published."""
MAX_QUERY_WORDS = 50
N_CACHED_PRODUCTS = 4096
LAYOUT = 1
"""Version of the folder's layout."""
RECORD, LINES, PLACES, INDEX = "store.json", "products.jsonl", "places.npy", "index"
_WORD = re.compile(r"[a-z0-9]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NAME = "shop"
VERSION = "1.0"
MAX_ACTION_CHARS = 400
"""Longer actions are not read."""
MAX_TEXT_CHARS = 1500
"""Of a description or list of features; the rest is cut off."""
INSTRUCTION = "Instruction: "
BUY, NEXT, BACK, NEW_SEARCH = "buy now", "next >", "< prev", "back to search"
DETAILS = ("features", "description")
NOTHING_FOUND = "Nothing was found."
TOO_LONG = f"Invalid action: longer than {MAX_ACTION_CHARS} characters."
NO_ACTION = "Invalid action: write search[words] or choose[button]."
NO_SEARCH_BOX = f"Invalid action: there is no search box here; choose[{NEW_SEARCH}] first."
NO_WORDS = "Invalid action: name at least one word to search for."
NO_BUTTON = "Invalid action: there is no such button on this page."
REFUSALS = (TOO_LONG, NO_ACTION, NO_SEARCH_BOX, NO_WORDS, NO_BUTTON)
"""What is answered to foolish actions."""
_ACTION = re.compile(r"(search|choose|click)\[([^\[\]]*)\]", re.IGNORECASE)
_BRACKETS = str.maketrans("[]", "()")
_PRICE_LIMIT = re.compile(r"price lower than (\d+(?:\.\d+)?)")
_ROW = re.compile(r"^\[([^\]]+)\] (.*) ?\$(\d+(?:\.\d+)?)$", re.MULTILINE)
_AXIS = re.compile(r"^([^\[\]\n:]+): ((?:\[[^\]]+\] ?)+)(?:\(chosen: (.*)\))?$", re.MULTILINE)
_BUTTON = re.compile(r"\[([^\]]+)\]")
MAX_OPENED = 4
"""Products that the expert opens before it buys one that lacks a requested option."""


@dataclass(frozen=True, slots=True)
class Product:
    """What is on sale."""

    id: str
    title: str
    """As shown."""
    name: str
    """What its type is read from; of the published catalogue the title, of a generated one the bare noun."""
    query: str
    """The search word under which it is filed."""
    category: str
    """From the department down, divided by ›."""
    price: float
    """In dollars."""
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Axis (color, size) -> values."""
    attributes: Sequence[str] = ()
    """What annotators say of it; shown nowhere."""
    features: Sequence[str] = ()
    description: str = ""

    @property
    def text(self) -> str:
        """What is searched: title, description, first feature and options, as published, and the remaining features."""
        options = (f"{axis} {' '.join(values)}" for axis, values in self.options.items())
        return " ".join((self.title, self.description, *self.features, *options))


class Products(Protocol):
    """A catalogue: products by number from 0."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, number: int) -> Product:
        """One product."""


def tokenize(text: str) -> list[str]:
    """Runs of letters and digits, in lower case."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, slots=True)
class Store:
    """A catalogue that can be searched."""

    name: str
    size: int
    """Products."""
    product: Callable[[int], Product]
    """By number; the most recent ones are cached."""
    engine: Any
    """A `bm25s.BM25` whose weights are memory-mapped."""

    def search(self, query: str) -> list[int]:
        """Numbers of the products that share a word with the query, best first, at most `MAX_RESULTS`."""
        vocabulary = self.engine.vocab_dict
        ids = [vocabulary[word] for word in tokenize(query)[:MAX_QUERY_WORDS] if word in vocabulary]
        if not ids:
            return []
        scores_N: NDArray[np.float32] = self.engine.get_scores_from_ids(ids)
        n_results = min(MAX_RESULTS, int(np.count_nonzero(scores_N)))
        if n_results == len(scores_N):
            numbers = np.arange(n_results)
        else:
            # not argpartition: of the products that tie at the threshold it keeps any, and ties go by number here
            threshold = np.partition(scores_N, len(scores_N) - n_results)[len(scores_N) - n_results]
            above = np.flatnonzero(scores_N > threshold)
            numbers = np.concatenate([above, np.flatnonzero(scores_N == threshold)[: n_results - len(above)]])
        return [int(number) for number in numbers[np.lexsort((numbers, -scores_N[numbers]))]]


def open_store(folder: Path, products: Products | None = None) -> Store:
    """The store in a folder. products: None: read from the folder's own file.

    Raises EnvironmentFailed if there is no whole store in the folder, or its index is of another catalogue.
    """
    import bm25s

    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        catalogue = ProductFile(folder) if products is None else products
        engine = bm25s.BM25.load(folder / INDEX, mmap=True, show_progress=False)
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentFailed(f"{folder}: contains no store ({type(error).__name__}: {error}); remove it") from error
    if record.get("layout") != LAYOUT or record.get("n_products") != len(catalogue):
        raise EnvironmentFailed(
            f"{folder}: is a store of {record.get('n_products')} products in layout {record.get('layout')}, "
            f"{len(catalogue)} in layout {LAYOUT} are needed; remove the folder, and it is made again"
        )
    return Store(folder.name, len(catalogue), lru_cache(N_CACHED_PRODUCTS)(catalogue.__getitem__), engine)


def index_products(name: str, products: Products) -> Store:
    """A store whose index is in memory, for catalogues of thousands. Raises ConfigError for an empty one."""
    engine, _, _ = _build_index(name, (products[number].text for number in range(len(products))))
    return Store(name, len(products), lru_cache(N_CACHED_PRODUCTS)(products.__getitem__), engine)


def build_store(folder: Path, products: Products | Iterator[Product], keeps_products: bool = False) -> None:
    """Index a catalogue in a folder that is not there yet.

    products: an iterator is read once, so that a file need not fit into memory. keeps_products: write them too.

    Drafts that a killed process left of this folder are removed first.
    Raises ConfigError for an empty catalogue and for an id that appears twice.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft, lock = _open_draft(folder)
    try:
        catalogue = products if isinstance(products, Iterator) else (products[n] for n in range(len(products)))
        texts = (
            _write_products(draft, catalogue, folder.name)
            if keeps_products
            else (product.text for product in catalogue)
        )
        engine, digest, n_products = _build_index(folder.name, texts)
        engine.save(draft / INDEX, show_progress=False)
        record = {"layout": LAYOUT, "n_products": n_products, "texts": digest}
        (draft / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
        for path in (draft, *draft.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a sandboxed process reads it as another user
        try:
            draft.rename(folder)
        except OSError:
            # another builder's folder is in the way: its store is the same, so the draft is dropped
            if not (folder / RECORD).is_file():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(lock)


def _open_draft(folder: Path) -> tuple[Path, int]:
    """A new draft beside a folder, with its lock; drafts that a killed process left are removed.

    The kernel releases a flock when its process ends, however it ends: an unlocked draft has no builder.
    """
    parent_fd = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(parent_fd, fcntl.LOCK_EX)  # else a draft could be taken for abandoned before it is locked
        for abandoned in folder.parent.glob(f".{folder.name}-*"):
            abandoned_fd = os.open(abandoned, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(BlockingIOError):  # its builder still runs
                fcntl.flock(abandoned_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(abandoned, ignore_errors=True)
            os.close(abandoned_fd)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return draft, lock
    finally:
        os.close(parent_fd)


def _build_index(name: str, texts: Iterable[str]) -> tuple[Any, str, int]:
    """A `bm25s.BM25` over some texts, and digest and number of the texts."""
    import bm25s  # only worlds of this kind need it

    vocabulary: dict[str, int] = {}
    digest = hashlib.sha256()
    ids = []
    for text in texts:
        digest.update(text.encode())
        ids.append(np.array([vocabulary.setdefault(word, len(vocabulary)) for word in tokenize(text)], dtype=np.int32))
    if not ids:
        raise ConfigError(f"{name}: the catalogue has no products; give it at least 1")
    engine = bm25s.BM25(k1=K1, b=B)
    engine.index((ids, vocabulary), show_progress=False)
    return engine, digest.hexdigest(), len(ids)


def _write_products(folder: Path, products: Iterable[Product], name: str) -> Iterator[str]:
    """Write the lines of a catalogue; yields the text of each product."""
    places, ids = [0], set[str]()
    with (folder / LINES).open("wb") as file:
        for product in products:
            if product.id in ids:
                raise ConfigError(f"{name}: two products have the id {quoted(product.id)}; ids must be distinct")
            ids.add(product.id)
            file.write(msgspec.json.encode(asdict(product)) + b"\n")
            places.append(file.tell())
            yield product.text
    np.save(folder / PLACES, np.array(places, dtype=np.int64))


class ProductFile:
    """The catalogue of a store that keeps its products; lines are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the files are not there."""
        self._lines = np.memmap(folder / LINES, dtype=np.uint8, mode="r")
        self._places = np.load(folder / PLACES, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, number: int) -> Product:
        line = self._lines[int(self._places[number]) : int(self._places[number + 1])].tobytes()
        return msgspec.json.decode(line, type=Product)


def require_store_name(name: object) -> str:
    """A name that stays inside the folder of stores. Raises EnvironmentFailed for anything else."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EnvironmentFailed(f"store {quoted(str(name))}: not the name of a store; use the item as it was given")
    return name


OpenStore = Callable[[JsonValue], Store]
"""The store that an item names."""
Adviser = Callable[[Sequence[Message]], str]
"""The next action of an expert, from the chat so far."""


class StorePage(StrEnum):
    """The page that a visitor is on."""

    SEARCH = "search"
    RESULTS = "results"
    ITEM = "item"
    DETAIL = "item detail"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class ShopSettings:
    """How a store is shown."""

    # field names are in the digest that the environment version carries
    max_turns: int = 10
    page_size: int = 10
    """Results on a page."""
    wording: str = "{instruction}"
    """What the first message says around the instruction."""

    def __post_init__(self) -> None:
        """Raises ConfigError for pages or visits without room."""
        if self.max_turns < 1 or self.page_size < 1:
            raise ConfigError(
                f"store settings: max_turns is {self.max_turns} and page_size {self.page_size}; both need at least 1"
            )

    @property
    def digest(self) -> str:
        """Eight characters; equal exactly when all settings are."""
        return digest_of(asdict(self))[:8]


@dataclass(slots=True)
class _Visit:
    """The state of a visit."""

    page: StorePage = StorePage.SEARCH
    results: list[int] = field(default_factory=list)
    page_number: int = 0
    product: Product | None = None
    detail: str = ""
    chosen: dict[str, str] = field(default_factory=dict)
    order: dict[str, JsonValue] | None = None
    n_turns: int = 0
    n_invalid: int = 0
    n_searches: int = 0
    n_opened: int = 0
    n_asked: int = 0


class ShopWorld:
    """Plays one item, whose payload holds `instruction`, `store` and `task_type`."""

    def __init__(self, settings: ShopSettings, find_store: OpenStore, adviser: Adviser) -> None:
        """A world for one visit. find_store: takes the item's `store`. adviser: who answers `ask_expert`."""
        self._settings, self._find_store, self._adviser = settings, find_store, adviser
        self._visit = _Visit()
        self._store: Store | None = None
        self._item: Item | None = None
        self._chat: list[Message] = []

    @property
    def max_turns(self) -> int:
        """Most actions that are taken; one more raises."""
        return self._settings.max_turns

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The instruction and the search page; the seed changes nothing.

        Raises EnvironmentFailed when reused, or for an item without an instruction or a store that is there.
        """
        if self._item is not None:
            raise EnvironmentFailed(f"store world was already used and cannot play {item.id!r}; make a fresh one")
        instruction = item.payload.get("instruction")
        if not isinstance(instruction, str) or not instruction:
            raise EnvironmentFailed(f"item {item.id!r} has no instruction; it belongs to another world")
        self._store = self._find_store(item.payload.get("store"))
        self._item = item
        # replace, not format: an instruction of a user may contain braces
        text = self._settings.wording.replace("{instruction}", f"{INSTRUCTION}{one_line(instruction)}\n[search]")
        self._chat = [Message("user", text)]
        return list(self._chat)

    def act(self, action: str) -> Step:
        """Carry out one action. Raises EnvironmentFailed before reset, after the end and beyond the turn cap."""
        visit, store = self._visiting()
        if visit.n_turns >= self._settings.max_turns:
            raise EnvironmentFailed(
                f"store world: turn {visit.n_turns + 1} is beyond the cap of {self._settings.max_turns}; stop there"
            )
        visit.n_turns += 1
        refusal = self._carry_out(visit, store, action)
        if refusal:
            visit.n_invalid += 1
        if visit.order is not None:
            return Step(None, done=True)
        reply = refusal or self._page_text(visit, store)
        self._chat += [Message("assistant", action[:MAX_ACTION_CHARS]), Message("user", reply)]
        return Step(reply, done=False)

    def state(self) -> Mapping[str, JsonValue]:
        """What scorers read: `order` (None, or product, options, price), `task_type`, counts; `answer` is None."""
        visit = self._visit
        return {
            "answer": None,
            "order": visit.order,
            "task_type": None if self._item is None else self._item.payload.get("task_type"),
            "page": str(visit.page),
            "n_turns": visit.n_turns,
            "n_invalid": visit.n_invalid,
            "n_searches": visit.n_searches,
            "n_opened": visit.n_opened,
            "n_asked": visit.n_asked,
        }

    def ask_expert(self) -> str:
        """The next action of an expert that has read what the player has. Raises EnvironmentFailed unless in play."""
        visit, _ = self._visiting()
        visit.n_asked += 1
        return self._adviser(self._chat)

    def admissible(self) -> tuple[str, ...]:
        """The buttons of the page; where words are typed, one search for each word of the instruction."""
        visit, store = self._visiting()
        if visit.page is StorePage.SEARCH and self._item is not None:
            words = dict.fromkeys(tokenize(str(self._item.payload["instruction"])))
            return tuple(f"search[{word}]" for word in words)
        return tuple(f"choose[{button}]" for button in self._buttons(visit, store))

    def _visiting(self) -> tuple[_Visit, Store]:
        if self._store is None or self._visit.order is not None:
            raise EnvironmentFailed(
                f"store world is {'not started' if self._store is None else 'over'}; call reset on a fresh one"
            )
        return self._visit, self._store

    def _carry_out(self, visit: _Visit, store: Store, action: str) -> str:
        """Apply an action; returns why it cannot be done, empty for one that was."""
        if len(action) > MAX_ACTION_CHARS:
            return TOO_LONG
        line = action.strip().split("\n", 1)[0].strip()
        parsed = _ACTION.fullmatch(line)
        if parsed is None:
            return NO_ACTION
        verb, argument = parsed[1].lower(), one_line(parsed[2])
        if verb == "search":
            if visit.page is not StorePage.SEARCH:
                return NO_SEARCH_BOX
            if not tokenize(argument):
                return NO_WORDS
            visit.page, visit.results, visit.page_number = StorePage.RESULTS, store.search(argument), 0
            visit.n_searches += 1
            return ""
        button = argument.lower()
        if button not in self._buttons(visit, store):
            return NO_BUTTON
        self._press(visit, store, button)
        return ""

    def _press(self, visit: _Visit, store: Store, button: str) -> None:
        """Carry out a button of the page."""
        if button == NEW_SEARCH:
            visit.page, visit.product, visit.chosen = StorePage.SEARCH, None, {}
        elif button == BACK and visit.page is StorePage.DETAIL:
            visit.page = StorePage.ITEM
        elif button == BACK and visit.page is StorePage.ITEM:
            visit.page, visit.product, visit.chosen = StorePage.RESULTS, None, {}
        elif visit.page is StorePage.RESULTS and button in (NEXT, BACK):
            visit.page_number += 1 if button == NEXT else -1
        elif visit.page is StorePage.RESULTS:
            # actions are compared in lower case, ids are shown so
            on_page = {product.id.lower(): product for product in self._on_page(visit, store)}
            visit.page, visit.product, visit.chosen = StorePage.ITEM, on_page[button], {}
            visit.n_opened += 1
        elif visit.product is not None and button == BUY:
            visit.page, visit.order = StorePage.LEFT, order_record(visit.product, visit.chosen)
        elif visit.page is StorePage.ITEM and button in DETAILS:
            visit.page, visit.detail = StorePage.DETAIL, button
        elif visit.product is not None:
            axis = next(axis for axis, values in option_buttons(visit.product).items() if button in values)
            visit.chosen[axis] = button

    def _buttons(self, visit: _Visit, store: Store) -> list[str]:
        """What can be chosen on the page."""
        match visit.page:
            case StorePage.RESULTS:
                n_pages = self._page_count(visit)
                ids = [product.id.lower() for product in self._on_page(visit, store)]
                around = [NEXT] * (visit.page_number + 1 < n_pages) + [BACK] * (visit.page_number > 0)
                return [*ids, *around, NEW_SEARCH]
            case StorePage.ITEM if visit.product is not None:
                options = (value for values in option_buttons(visit.product).values() for value in values)
                return [*dict.fromkeys(options), *DETAILS, BACK, NEW_SEARCH, BUY]
            case StorePage.DETAIL:
                return [BACK]
            case _:
                return []

    def _on_page(self, visit: _Visit, store: Store) -> list[Product]:
        first = visit.page_number * self._settings.page_size
        return [store.product(number) for number in visit.results[first : first + self._settings.page_size]]

    def _page_count(self, visit: _Visit) -> int:
        return -(-len(visit.results) // self._settings.page_size)

    def _page_text(self, visit: _Visit, store: Store) -> str:
        """The page as a player reads it."""
        if visit.page is StorePage.SEARCH:
            return "[search]"
        if visit.page is StorePage.DETAIL and visit.product is not None:
            text = visit.product.description if visit.detail == DETAILS[1] else ", ".join(visit.product.features)
            return f"{visit.detail}: {one_line(text)[:MAX_TEXT_CHARS]}\n[{BACK}]"
        if visit.page is StorePage.RESULTS:
            rows = [
                f"[{product.id.lower()}] {one_line(product.title)} {dollars(product.price)}"
                for product in self._on_page(visit, store)
            ]
            head = f"page {visit.page_number + 1} of {self._page_count(visit)}" if rows else NOTHING_FOUND
            n_rows = len(rows)
            return "\n".join([head, *rows, " ".join(f"[{name}]" for name in self._buttons(visit, store)[n_rows:])])
        assert visit.product is not None
        product = visit.product
        lines = [f"item: {one_line(product.title)} {dollars(product.price)}"]
        for axis, values in option_buttons(product).items():
            picked = f" (chosen: {visit.chosen[axis]})" if axis in visit.chosen else ""
            lines.append(f"{one_line(axis)}: {' '.join(f'[{value}]' for value in values)}{picked}")
        return "\n".join([*lines, " ".join(f"[{name}]" for name in (*DETAILS, BACK, NEW_SEARCH, BUY))])


def option_buttons(product: Product) -> dict[str, list[str]]:
    """The option values of each axis as buttons: in lower case, on one line; a button belongs to the first axis."""
    # an option with the name of a fixed button is not offered: it would press that button
    taken = {NEW_SEARCH, BACK, BUY, NEXT, *DETAILS}
    options: dict[str, list[str]] = {}
    for axis, values in product.options.items():
        names = dict.fromkeys(one_line(value).lower() for value in values)
        options[axis] = [name for name in names if name and name not in taken]
        taken |= set(names)
    return {axis: names for axis, names in options.items() if names}


def order_record(product: Product, chosen: Mapping[str, str]) -> dict[str, JsonValue]:
    """An order as it is in the state: all that a reward depends on."""
    return {
        "product": product.id,
        "options": dict(chosen),
        "price": product.price,
        "name": product.name,
        "query": product.query,
        "category": product.category,
        "attributes": list(product.attributes),
        "title": product.title,
        "features": list(product.features),
        "description": product.description,
    }


def one_line(text: str) -> str:
    """Text without line breaks, control and format characters, and with brackets as parentheses."""
    if not (text.isascii() and text.isprintable()):
        # C: control, format and unassigned characters; Z: separators
        text = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in text)
    return " ".join(text.translate(_BRACKETS).split())


def dollars(price: float) -> str:
    """A price as it is shown: $23, $17.92."""
    return f"${price:.0f}" if price == int(price) else f"${price:.2f}"


@dataclass(frozen=True, slots=True)
class ShoppingRequest:
    """What an instruction asks for, as far as a reader can tell."""

    query: str
    """To search for."""
    options: Sequence[str] = ()
    """Values without which a product is not bought; empty where the reader cannot recognise options."""
    price_upper: float = float("inf")
    title: str = ""
    """Of the product to open, where it is known."""
    further_words: str = ""
    """In addition to the instruction: options that they name are chosen too."""


def instruction_of(chat: Sequence[Message]) -> str:
    """The instruction of a visit."""
    return chat[0].text.rpartition(INSTRUCTION)[2].partition("\n")[0]


def price_limit(instruction: str) -> float:
    """The price that an instruction names as limit, in dollars; infinite where it names none."""
    match = _PRICE_LIMIT.search(instruction)
    return float(match[1]) if match is not None else float("inf")


def shopper_action(read_instruction: Callable[[str], ShoppingRequest], chat: Sequence[Message]) -> str:
    """The next action of the expert shopper."""
    instruction = instruction_of(chat)
    request = read_instruction(instruction)
    page, done = chat[-1].text, [message.text for message in chat if message.role == "assistant"]
    if f"[{BUY}]" in page:
        return _act_on_product(page, request, tokenize(f"{instruction} . {request.further_words}"), done)
    rows = [_ResultRow(name, title.strip(), float(price)) for name, title, price in _ROW.findall(page)]
    if rows:
        return _act_on_results(page, rows, request, done)
    if f"[{NEW_SEARCH}]" in page:
        return f"choose[{NEW_SEARCH}]"  # nothing was found
    if f"[{BACK}]" in page:
        return f"choose[{BACK}]"
    n_searches = sum(action.startswith("search[") for action in done)
    query_words = request.query.split()
    # each search that did not lead to a purchase is repeated with one word less
    return f"search[{' '.join(query_words[: max(1, len(query_words) - n_searches)])}]"


@dataclass(frozen=True, slots=True)
class _ResultRow:
    """A result."""

    name: str
    """Of its button."""
    title: str
    price: float
    """In dollars."""


def _act_on_results(page: str, rows: Sequence[_ResultRow], request: ShoppingRequest, done: Sequence[str]) -> str:
    opened = {action for action in done if action.startswith("choose[")}
    title = one_line(request.title)
    if title and (right := [row.name for row in rows if row.title == title]):
        return f"choose[{right[0]}]"
    affordable = [row.name for row in rows if row.price <= request.price_upper]
    fresh = [name for name in affordable if f"choose[{name}]" not in opened]
    if fresh:
        return f"choose[{fresh[0]}]"
    if f"[{NEXT}]" in page:
        return f"choose[{NEXT}]"
    return f"choose[{(affordable or [rows[0].name])[0]}]"


def _act_on_product(page: str, request: ShoppingRequest, request_words: Sequence[str], done: Sequence[str]) -> str:
    axes = [(_BUTTON.findall(buttons), chosen) for _, buttons, chosen in _AXIS.findall(page)]
    offered = {value for values, _ in axes for value in values}
    n_opened = sum(action == f"choose[{BACK}]" for action in done) + 1
    if not set(request.options) <= offered and n_opened < MAX_OPENED:
        return f"choose[{BACK}]"
    text = f" {' '.join(request_words)} "
    for values, chosen in axes:
        named = [value for value in values if f" {' '.join(tokenize(value))} " in text]
        if named and not chosen:
            return f"choose[{max(named, key=len)}]"
    return f"choose[{BUY}]"
