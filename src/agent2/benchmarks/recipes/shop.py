"""Corpus and recipe of the base model `tiny-shop`: visits of careless shoppers; the package ships the weights.

Whole visits of the train pool in the shop itself. Each shopper has a care of its own: the share of actions in which it
does what the expert would do; otherwise it searches for a word or two, opens any result, takes any option or none, buys
too early, or asks for something that is not there. So the model knows the pages and the actions, and buying the right
product as one habit among several. A product number, a price, a word and an option are one token each. In the first
stage every token is learned, the shop's own too; in the second one only actions are.

Promises: only contents of the train pool; one set of settings, one corpus. A gain on such a base shows that a pipeline
works, not that it would teach a model anything that it did not have in it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agent2.benchmarks.home import pick
from agent2.benchmarks.shop import (
    ATTRIBUTES,
    DEPARTMENTS,
    HIGHEST_LIMIT,
    HIGHEST_PRICE,
    KINDS,
    N_TOKENIZER_CHATS,
    NAVIGATION,
    OWN_PART,
    VALUES,
    WORDINGS,
    Shop,
    ShoppingTask,
    read_instruction,
)
from agent2.environments.shop import BACK, BUY, DETAILS, INSTRUCTION, NEW_SEARCH, NEXT, NOTHING_FOUND, REFUSALS
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import JsonValue, Message, Split


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
    navigation = [name for name in buttons if name in NAVIGATION]
    choices = [name for name in buttons if name not in NAVIGATION]
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
        *(f" ${price}" for price in range(HIGHEST_PRICE + 1)),
        *(f" {limit} dollars" for limit in range(10, HIGHEST_LIMIT + 1, 10)),
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
                embeddings_VD[row] += slope_D * (int(amount[1]) / HIGHEST_LIMIT * 4 - 2)
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
    shipped=f"{__package__}:tiny-shop",
    sample=lambda corpus: corpus_chats(replace(corpus, n_chats=N_SAMPLE_CHATS)),
)
"""The recipe of `tiny-shop`."""
