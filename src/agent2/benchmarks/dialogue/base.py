"""The base model of the `dialogue` task: trained on first use, on dialogues of a careless agent with its users.

The careless agent knows the forms and forgets some of the policy: mostly it refuses refunds that are due, changes
bookings that it is too late for, and does not tell the money that is paid back for one; everything else it does wrongly
now and then. A model that has read such dialogues wins some; what it lacks is care.
Numbers are pairs of digits, and the header, names and set phrases are one token each, so that a small model can copy
what it read. Gains on such a base show that a pipeline works; they do NOT show what it would do for another model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from agent2.benchmarks.dialogue.benchmark import (
    COURSES,
    HEADER,
    HOW_MUCH,
    ITEMS,
    NAMES,
    SOURCE,
    VAGUE,
    WHAT_IS_IT,
    WHO_ARE_YOU,
    ServiceDialogue,
    expert,
    hasty,
    item_of_case,
)
from agent2.environments.dialogue.tools import DAYS, SAY, SPECS, STATUSES
from agent2.environments.tools.calls import write_brackets
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import Item, JsonValue, Message, Split

PHRASES = (
    HEADER,
    WHO_ARE_YOU,
    WHAT_IS_IT,
    HOW_MUCH,
    *(words for several in VAGUE.values() for words in several),
    *(f"{name}[" for name in SPECS),
    "@mail.example",
    "My email is",
    " and my postcode is",
    " is verified; orders",
    "; bookings",
    "I want to cancel order",
    "I want to cancel booking",
    "I want my money back for the",
    " of order",
    "I want to move booking",
    "Where is order",
    "Shall I cancel order",
    "Shall I cancel booking",
    "Shall I refund the",
    "Shall I move booking",
    "? Please confirm.",
    "Yes, please do.",
    "It is done: order",
    "It is done: booking",
    "It is done: the",
    " is cancelled;",
    " is refunded;",
    " is moved to",
    " will be paid back",
    "Please look again.",
    "I have looked again, and that is not possible: order",
    "I have looked again, and that is not possible: booking",
    "I am sorry, that is not possible: order",
    "I am sorry, that is not possible: booking",
    "That is a pity.",
    "Thank you.",
    "Goodbye.",
    "That is not what I want.",
    "I do not understand.",
    " days ago",
    " days ahead,",
    "booked:",
    "error:",
)


MENTIONED = re.compile(r"(?:order|booking) (\d+)")


@dataclass(frozen=True, slots=True)
class DialogueCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    n_chats: int = 6000
    often: float = 0.65
    """How often what is often done wrongly is wrong: refunds that are due are refused, bookings changed when it is too
    late, the money for a booking is not told. So a model that only becomes surer of what it does gains nothing."""
    rarely: float = 0.10
    """How often everything else is."""
    seed: int = 0


def dialogue_corpus(settings: DialogueCorpusSettings) -> list[list[Message]]:
    """Whole chats of the train pool; the last message is the agent's."""
    rng = np.random.default_rng([settings.seed, 0xD1])
    seeds = islice(SOURCE.train_draws(rng), settings.n_chats)
    return [_chat(item_of_case(f"corpus-{seed}", Split.TRAIN, seed), settings, rng) for seed in seeds]


def _chat(item: Item, settings: DialogueCorpusSettings, rng: np.random.Generator) -> list[Message]:
    benchmark = ServiceDialogue()
    world = benchmark.environment()
    messages = list(world.reset(item, 0))
    for _ in range(benchmark.max_turns):
        messages.append(Message("assistant", careless(item, messages, settings, rng)))
        step = world.act(messages[-1].content)
        if step.done or step.observation is None:
            break
        messages.append(Message("user", step.observation))
    return messages if messages[-1].role == "assistant" else messages[:-1]


def careless(item: Item, chat: Sequence[Message], settings: DialogueCorpusSettings, rng: np.random.Generator) -> str:
    """The expert's next message, or what somebody careless writes in its place."""
    right = expert(item, chat)

    def slips(is_weak: bool) -> bool:
        return bool(rng.random() < (settings.often if is_weak else settings.rarely))

    if "Shall I" in right:
        if slips("Shall I refund" in right):
            table, number = ("booking" if "booking" in right else "order"), MENTIONED.findall(right)[-1]
            return write_brackets(SAY, f"I am sorry, that is not possible: {table} {number} is late.")
        return hasty(item, chat) if slips(is_weak=False) else right
    if "not possible" in right and slips("booking" in right):
        return hasty(item, chat)
    if "paid back" in right and slips("booking" in right):
        return right.partition(";")[0] + "]"
    return right


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train the model in out_dir and return what the manifest says of it. Raises ConfigError for another recipe."""
    from agent2.models.loading import no_progress_bars
    from agent2.models.tiny import build_on_chats

    recipe, settings = entry.recipe, entry.corpus
    if not isinstance(recipe, ChatRecipe) or not isinstance(settings, DialogueCorpusSettings):
        raise ConfigError("only a recipe for chats of dialogues can be made here; see agent2.benchmarks.BASES")
    on_progress(f"drawing {settings.n_chats} dialogues")
    chats = dialogue_corpus(settings)

    def said(step: int, loss: float) -> None:
        on_progress(f"pre-training: step {step} of {sum(recipe.steps)}, loss {loss:.3f}")

    with no_progress_bars():
        report = build_on_chats(
            recipe, [chats] * len(recipe.steps), out_dir, said, n_read_whole=1, n_tokenizer_chats=1000
        )
    return {
        "parameters": report.n_parameters,
        "steps": list(recipe.steps),
        "tokens": report.n_tokens,
        "loss": round(report.loss, 4),
        "seconds": round(report.seconds, 1),
    }


def single_tokens() -> tuple[str, ...]:
    """Strings that are worth a token: pairs of digits, names and things, set phrases."""
    words = sorted({*ITEMS, *COURSES, *STATUSES, *DAYS, "cancelled", "booked"})
    people = [form for name in NAMES for form in (name, name.capitalize())]
    return (*(f"{n:02d}" for n in range(100)), *(f" {word}" for word in words), *people, *PHRASES)


BASE = BaseModel(
    version="4",
    recipe=ChatRecipe(
        TinyRecipe(
            target=1.0,
            n_layers=4,
            n_heads=4,
            feed_forward_size=256,
            max_vocabulary=300,
            context_tokens=1024,
            warmup_steps=20,
        ),
        steps=(700, 500),
        batch_tokens=4096,
        pieces=single_tokens(),
    ),
    corpus=DialogueCorpusSettings(),
    builder="agent2.benchmarks.dialogue.base:build",
)
"""The recipe of `tiny-dialogue`."""
