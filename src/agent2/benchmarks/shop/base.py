"""The tiny base model of `shop`: made on this machine from visits in which people mostly shopped badly.

What it reads: whole visits of the train pool in the shop itself. Each shopper has a care of its own, the share of
actions in which it does what the expert would do; otherwise it searches for a word or two, opens any result, takes any
option or none, buys too early, or asks for something that is not there. So the model knows the pages and the actions,
and buying the right thing as one habit among several. A product number, a price, a word and an option are one token
each. In the first stage every token is learned, what the shop says too; in the second one only actions are.

Promises: only instructions of the train pool; one seed, one corpus. A gain on such a base shows that a pipeline works;
it does NOT show that it would teach a model anything it did not have in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent2.benchmarks.shop.benchmark import ATTRIBUTES, KINDS, VALUES, WORDINGS, Errand, Shop, wish_of
from agent2.benchmarks.shop.catalogue import DEPARTMENTS
from agent2.environments.shop.world import (
    BACK,
    BUY,
    DETAILS,
    INSTRUCTION,
    NEW_SEARCH,
    NEXT,
    NOTHING_FOUND,
    REFUSALS,
)
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe, built_on_chats
from agent2.records import JsonValue, Message, Split

N_TOKENIZER_CHATS = 1000
"""Visits from which what is left of the vocabulary is learned, beside the pieces."""
OWN_PART = 0.5
"""Of a token's first vector: how much is its own, beside what it shares."""
_HIGHEST_PRICE, _HIGHEST_LIMIT = 94, 130


@dataclass(frozen=True, slots=True)
class ShopCorpus:
    """How the corpus is drawn; shares are 0 to 1."""

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
    drawn = shop.train_draws(rng)
    return [_visit(shop, next(drawn), settings, rng) for _ in range(settings.n_chats)]


def _visit(shop: Shop, errand: Errand, settings: ShopCorpus, rng: np.random.Generator) -> list[Message]:
    """One visit, up to the order or the last turn."""
    care = 0.0 if rng.random() < settings.careless_share else settings.max_care * rng.random()
    world = shop.environment()
    chat = list(world.reset(shop.item(errand, Split.TRAIN, None), 0))
    for turn in range(shop.max_turns):
        if rng.random() < care:
            action = world.ask_expert()
        else:
            action = careless_action(world.admissible(), errand.text, settings.impossible_share, rng)
        chat.append(Message("assistant", action))
        step = world.act(action)
        if step.done or turn == shop.max_turns - 1:
            break
        chat.append(Message("user", step.observation or ""))
    return chat


def careless_action(
    possible: Sequence[str], instruction: str, impossible_share: float, rng: np.random.Generator
) -> str:
    """What somebody does who reads little.

    possible: what can be done on the page. Where words are typed, the goods and a word or two of what was asked for; of
    results, any; of an item, any option, often none, and `buy now` soon.
    """
    if rng.random() < impossible_share:
        return f"choose[{_pick((*sorted(VALUES), *DETAILS, BUY, BACK, NEXT), rng)}]"
    if possible[0].startswith("search["):
        kind, *others = wish_of(instruction).query.split()
        words = [word for word in others if rng.random() < 0.4]
        return f"search[{' '.join(([kind] if rng.random() < 0.8 else []) + words) or kind}]"
    buttons = [action.removeprefix("choose[").removesuffix("]") for action in possible]
    around = [name for name in buttons if name in _AROUND]
    things = [name for name in buttons if name not in _AROUND]
    if BUY in around and rng.random() < 0.3:
        return f"choose[{BUY}]"
    return f"choose[{_pick(things if things and rng.random() < 0.85 else around, rng)}]"


_AROUND = frozenset({*DETAILS, BACK, BUY, NEXT, NEW_SEARCH})
"""Buttons that are neither a product nor an option."""


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def single_tokens(n_products: int) -> tuple[str, ...]:
    """Strings of this shop that are worth a token: words, options, products, prices, and set phrases."""
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


def liken_tokens(model: Any, tokenizer: Any) -> None:
    """Begin tokens that are alike near each other, so that what is learned of one serves all.

    A word with a space before it, without one and in brackets share a vector; products share one, prices another, along
    which they are ordered; each has a part of its own. Without it, most of the training goes into a thousand products.
    """
    import torch

    vectors_VD = model.get_input_embeddings().weight
    number = {piece: tokenizer.convert_tokens_to_ids(piece) for piece in single_tokens(Shop.n_products)}
    drawn = torch.randn((3, vectors_VD.shape[1]), generator=torch.Generator().manual_seed(0))
    product_D, price_D, slope_D = drawn * model.config.initializer_range
    with torch.no_grad():
        for piece, own in number.items():
            bare = piece.strip(" []")
            if piece.startswith("[p") and piece[2:-1].isdigit():
                vectors_VD[own] += product_D
            elif amount := re.fullmatch(r" \$?(\d+)(?: dollars)?", piece):
                vectors_VD[own] = OWN_PART * vectors_VD[own] + price_D
                vectors_VD[own] += slope_D * (int(amount[1]) / _HIGHEST_LIMIT * 4 - 2)
            elif bare != piece and bare in number:
                vectors_VD[own] = OWN_PART * vectors_VD[own] + vectors_VD[number[bare]]


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    reading = {"n_read_whole": 1, "n_tokenizer_chats": N_TOKENIZER_CHATS}
    return built_on_chats(entry, out_dir, on_progress, ShopCorpus, corpus_chats, prepare=liken_tokens, **reading)


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
    version="1",
    recipe=ChatRecipe(SIZE, steps=(120, 420), pieces=single_tokens(Shop.n_products)),
    corpus=ShopCorpus(),
    builder=build,
)
"""The recipe of `tiny-shop`."""
