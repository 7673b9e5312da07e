"""The environment: one visit to a text store, from the instruction to the order.

    search[words]      results, some a page, as `[id] title $price`
    choose[button]     whatever the page shows in brackets: a product, an option, next >, < prev, features,
                       description, back to search, buy now; `click[button]` is the same

An action is its first line; brackets have to enclose all of it, so that half an action is none. Foolish actions
(no such button here, too long, empty) are answered in one sentence and counted; they never raise. `buy now` places
the order and ends the visit. Titles and texts of products are shown on one line, without control characters, and
brackets in them become parentheses: whatever a catalogue says, a button is what the page offers.

Promises: single use; same item, store and actions give the same pages and state; what is scored is the order. Does
NOT judge, and does NOT end a visit at the turn cap: whoever plays it does.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from agent2.environments.shop.store import Product, Store, words_of
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Step, digest_of

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

OpenStore = Callable[[JsonValue], Store]
"""The store that an item names."""
Adviser = Callable[[Sequence[Message]], str]
"""The next action of an expert, from the chat so far."""


class StorePage(StrEnum):
    """Where a visitor is."""

    SEARCH = "search"
    RESULTS = "results"
    ITEM = "item"
    DETAIL = "item detail"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class ShopSettings:
    """How a store is shown."""

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
    """What is so now, and what happened so far."""

    page: StorePage = StorePage.SEARCH
    found: list[int] = field(default_factory=list)
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
        told = refusal or self._shown(visit, store)
        self._chat += [Message("assistant", action[:MAX_ACTION_CHARS]), Message("user", told)]
        return Step(told, done=False)

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
        """What an expert would do now who has read no more than the player. Raises EnvironmentFailed unless in play."""
        visit, _ = self._visiting()
        visit.n_asked += 1
        return self._adviser(self._chat)

    def admissible(self) -> tuple[str, ...]:
        """The buttons of the page; where words are typed, one search for each word of the instruction."""
        visit, store = self._visiting()
        if visit.page is StorePage.SEARCH and self._item is not None:
            words = dict.fromkeys(words_of(str(self._item.payload["instruction"])))
            return tuple(f"search[{word}]" for word in words)
        return tuple(f"choose[{button}]" for button in self._buttons(visit, store))

    def _visiting(self) -> tuple[_Visit, Store]:
        if self._store is None or self._visit.order is not None:
            raise EnvironmentFailed(
                f"store world is {'not begun' if self._store is None else 'over'}; call reset on a fresh one"
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
            if not words_of(argument):
                return NO_WORDS
            visit.page, visit.found, visit.page_number = StorePage.RESULTS, store.search(argument), 0
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
            on_page = {product.id.lower(): product for product in self._on_page(visit, store)}
            visit.page, visit.product, visit.chosen = StorePage.ITEM, on_page[button], {}
            visit.n_opened += 1
        elif visit.product is not None and button == BUY:
            visit.page, visit.order = StorePage.LEFT, ordered(visit.product, visit.chosen)
        elif visit.page is StorePage.ITEM and button in DETAILS:
            visit.page, visit.detail = StorePage.DETAIL, button
        elif visit.product is not None:
            axis = next(axis for axis, values in shown_options(visit.product).items() if button in values)
            visit.chosen[axis] = button

    def _buttons(self, visit: _Visit, store: Store) -> list[str]:
        """What can be chosen on the page."""
        match visit.page:
            case StorePage.RESULTS:
                n_pages = self._n_pages(visit)
                ids = [product.id.lower() for product in self._on_page(visit, store)]
                around = [NEXT] * (visit.page_number + 1 < n_pages) + [BACK] * (visit.page_number > 0)
                return [*ids, *around, NEW_SEARCH]
            case StorePage.ITEM if visit.product is not None:
                options = (value for values in shown_options(visit.product).values() for value in values)
                return [*dict.fromkeys(options), *DETAILS, BACK, NEW_SEARCH, BUY]
            case StorePage.DETAIL:
                return [BACK]
            case _:
                return []

    def _on_page(self, visit: _Visit, store: Store) -> list[Product]:
        first = visit.page_number * self._settings.page_size
        return [store.product(number) for number in visit.found[first : first + self._settings.page_size]]

    def _n_pages(self, visit: _Visit) -> int:
        return -(-len(visit.found) // self._settings.page_size)

    def _shown(self, visit: _Visit, store: Store) -> str:
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
            head = f"page {visit.page_number + 1} of {self._n_pages(visit)}" if rows else NOTHING_FOUND
            n_rows = len(rows)
            return "\n".join([head, *rows, " ".join(f"[{name}]" for name in self._buttons(visit, store)[n_rows:])])
        assert visit.product is not None
        product = visit.product
        lines = [f"item: {one_line(product.title)} {dollars(product.price)}"]
        for axis, values in shown_options(product).items():
            picked = f" (chosen: {visit.chosen[axis]})" if axis in visit.chosen else ""
            lines.append(f"{one_line(axis)}: {' '.join(f'[{value}]' for value in values)}{picked}")
        return "\n".join([*lines, " ".join(f"[{name}]" for name in (*DETAILS, BACK, NEW_SEARCH, BUY))])


def shown_options(product: Product) -> dict[str, list[str]]:
    """The option values of each axis as buttons: in lower case, on one line; a button belongs to the first axis."""
    taken = {NEW_SEARCH, BACK, BUY, NEXT, *DETAILS}
    options: dict[str, list[str]] = {}
    for axis, values in product.options.items():
        names = dict.fromkeys(one_line(value).lower() for value in values)
        options[axis] = [name for name in names if name and name not in taken]
        taken |= set(names)
    return {axis: names for axis, names in options.items() if names}


def ordered(product: Product, chosen: Mapping[str, str]) -> dict[str, JsonValue]:
    """An order as the state tells it: all that a reward needs to know of what was bought."""
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
        text = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in text)
    return " ".join(text.translate(_BRACKETS).split())


def dollars(price: float) -> str:
    """A price as it is shown: $23, $17.92."""
    return f"${price:.0f}" if price == int(price) else f"${price:.2f}"
