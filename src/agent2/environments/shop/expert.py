"""A shopper that reads what a player reads: searches, opens the first result within the price, chooses, buys.

A function of the chat alone, so the same chat gets the same action in every process. What it looks for comes from the
instruction by a function of the benchmark's (`ShoppingWish`); options that are on the page are chosen where the
instruction names them. It goes back for another product only if an option that it knows to be asked for is not there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent2.environments.shop.store import words_of
from agent2.environments.shop.world import BACK, BUY, INSTRUCTION, NEW_SEARCH, NEXT, one_line
from agent2.records import Message

_PRICE_LIMIT = re.compile(r"price lower than (\d+(?:\.\d+)?)")
_ROW = re.compile(r"^\[([^\]]+)\] (.*) ?\$(\d+(?:\.\d+)?)$", re.MULTILINE)
_AXIS = re.compile(r"^([^\[\]\n:]+): ((?:\[[^\]]+\] ?)+)(?:\(chosen: (.*)\))?$", re.MULTILINE)
_BUTTON = re.compile(r"\[([^\]]+)\]")
MAX_OPENED = 4
"""Products that are looked at before one is bought that lacks something."""


@dataclass(frozen=True, slots=True)
class ShoppingWish:
    """What an instruction asks for, as far as a reader can tell."""

    query: str
    """To search for."""
    options: Sequence[str] = ()
    """Values without which a product is not bought; empty where options cannot be told from the rest."""
    price_upper: float = float("inf")
    title: str = ""
    """Of the product to open, where it is known."""
    further_words: str = ""
    """Beside the instruction: options that they name are chosen too."""


def instruction_of(chat: Sequence[Message]) -> str:
    """The instruction of a visit."""
    return chat[0].content.rpartition(INSTRUCTION)[2].partition("\n")[0]


def price_limit(instruction: str) -> float:
    """The price that an instruction names as limit, in dollars; infinite where it names none."""
    found = _PRICE_LIMIT.search(instruction)
    return float(found[1]) if found is not None else float("inf")


def shop_by(wish_of: Callable[[str], ShoppingWish], chat: Sequence[Message]) -> str:
    """The next action of the shopper. wish_of: reads an instruction."""
    instruction = instruction_of(chat)
    wish = wish_of(instruction)
    page, done = chat[-1].content, [message.content for message in chat if message.role == "assistant"]
    if f"[{BUY}]" in page:
        return _on_item(page, wish, words_of(f"{instruction} . {wish.further_words}"), done)
    rows = [_Row(name, title.strip(), float(price)) for name, title, price in _ROW.findall(page)]
    if rows:
        return _on_results(page, rows, wish, done)
    if f"[{NEW_SEARCH}]" in page:
        return f"choose[{NEW_SEARCH}]"  # nothing was found
    if f"[{BACK}]" in page:
        return f"choose[{BACK}]"
    n_searches = sum(action.startswith("search[") for action in done)
    words = wish.query.split()
    return f"search[{' '.join(words[: max(1, len(words) - n_searches)])}]"


@dataclass(frozen=True, slots=True)
class _Row:
    """A result."""

    name: str
    """Of its button."""
    title: str
    price: float
    """In dollars."""


def _on_results(page: str, rows: Sequence[_Row], wish: ShoppingWish, done: Sequence[str]) -> str:
    opened = {action for action in done if action.startswith("choose[")}
    known = one_line(wish.title)
    if known and (right := [row.name for row in rows if row.title == known]):
        return f"choose[{right[0]}]"
    affordable = [row.name for row in rows if row.price <= wish.price_upper]
    fresh = [name for name in affordable if f"choose[{name}]" not in opened]
    if fresh:
        return f"choose[{fresh[0]}]"
    if f"[{NEXT}]" in page:
        return f"choose[{NEXT}]"
    return f"choose[{(affordable or [rows[0].name])[0]}]"


def _on_item(page: str, wish: ShoppingWish, told: Sequence[str], done: Sequence[str]) -> str:
    axes = [(_BUTTON.findall(buttons), chosen) for _, buttons, chosen in _AXIS.findall(page)]
    offered = {value for values, _ in axes for value in values}
    n_opened = sum(action == f"choose[{BACK}]" for action in done) + 1
    if not set(wish.options) <= offered and n_opened < MAX_OPENED:
        return f"choose[{BACK}]"
    said = f" {' '.join(told)} "
    for values, chosen in axes:
        named = [value for value in values if f" {' '.join(words_of(value))} " in said]
        if named and not chosen:
            return f"choose[{max(named, key=len)}]"
    return f"choose[{BUY}]"
