"""The base model of the `dialogue` task: trained on first use, on dialogues of a careless agent with its users.

The careless agent knows the forms and not the whole policy: three of four refuse refunds that are due, offer to change
bookings that it is too late for, or do not tell the money that is paid back for one; every other decision is wrong now
and then. A model that has read such dialogues wins some; what it lacks is care. Every mistake is something
that is said, as is what would be right, so that a model that was only taught to say something gains nothing.
Numbers are pairs of digits, and the header, names and set phrases are one token each, so that a small model can copy
what it read. Gains on such a base show that a pipeline works; they do NOT show what it would do for another model.
"""

from collections.abc import Collection, Sequence
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
    WHERE,
    WHO_ARE_YOU,
    ServiceDialogue,
    expert,
    item_of_case,
    request_of,
)
from agent2.environments.dialogue import BOOKING, DAYS, REFUND_ITEM, SPECS, STATUSES, agrees
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe, built_on_chats
from agent2.records import Item, JsonValue, Message, Split

PHRASES = (
    HEADER,
    WHO_ARE_YOU,
    WHAT_IS_IT,
    HOW_MUCH,
    *(words for several in VAGUE.values() for words in several),
    *(f"{name}[" for name in SPECS),
    " | ",
    ".]",
    "]",
    "@mail.example",
    "My email is ",
    " and my postcode is ",
    " is verified; orders ",
    "; bookings ",
    "I want to cancel order ",
    "I want to cancel booking ",
    "I want my money back for the ",
    " of order ",
    "I want to move booking ",
    "Where is order ",
    "Shall I cancel order ",
    "Shall I cancel booking ",
    "Shall I refund the ",
    "Shall I move booking ",
    "? Please confirm.]",
    "Yes, please do.",
    "It is done: order ",
    "It is done: booking ",
    "It is done: the ",
    "order ",
    "booking ",
    "the ",
    "Order ",
    " is ",
    " is cancelled",
    " is refunded",
    " is moved to ",
    " to ",
    "; ",
    " will be paid back",
    "Please look again. ",
    "I have looked again, and that is not possible: order ",
    "I have looked again, and that is not possible: booking ",
    "I am sorry, that is not possible: order ",
    "I am sorry, that is not possible: booking ",
    "That is a pity. ",
    "That is a pity. Goodbye.",
    "Thank you. ",
    "Thank you. Goodbye.",
    "Goodbye.",
    "That is not what I want. ",
    "I do not understand. ",
    " days ago",
    " days ahead, ",
    " on ",
    ": ",
    ", ",
    "error: tool: ",
    " is no other day of the week",
)


REFUND, LATE_BOOKING, AMOUNT = "refund", "late booking", "amount"
HABITS = (REFUND, LATE_BOOKING, AMOUNT)


@dataclass(frozen=True, slots=True)
class DialogueCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    n_chats: int = 6000
    often: float = 0.75
    """Of agents that have a bad habit, each of the three drawn by itself: to refuse refunds that are due, to change
    bookings when it is too late, not to tell the money for a booking."""
    rarely: float = 0.10
    """Of decisions beside the habits that are wrong."""
    seed: int = 0


def dialogue_corpus(settings: DialogueCorpusSettings) -> list[list[Message]]:
    """Whole chats of the train pool; the last message is the agent's."""
    rng = np.random.default_rng([settings.seed, 0xD1])
    seeds = islice(SOURCE.train_draws(rng), settings.n_chats)
    return [_chat(item_of_case(f"corpus-{seed}", Split.TRAIN, seed), settings, rng) for seed in seeds]


def _chat(item: Item, settings: DialogueCorpusSettings, rng: np.random.Generator) -> list[Message]:
    habits = {habit for habit in HABITS if rng.random() < settings.often}
    benchmark = ServiceDialogue()
    world = benchmark.environment()
    messages = list(world.reset(item, 0))
    for _ in range(benchmark.max_turns):
        messages.append(Message("assistant", careless(item, messages, habits, slips=rng.random() < settings.rarely)))
        step = world.act(messages[-1].content)
        if step.done or step.observation is None:
            break
        messages.append(Message("user", step.observation))
    return messages if messages[-1].role == "assistant" else messages[:-1]


def careless(item: Item, chat: Sequence[Message], habits: Collection[str], *, slips: bool) -> str:
    """The expert's next message, or a wrong decision, or one that leaves the amount out.

    habits: of `HABITS`, what it always does wrongly. slips: whether it does anything else wrongly this time.
    """
    right, wish = expert(item, chat), request_of(chat)
    if wish is None or wish.kind == WHERE or wish.record is None:
        return right
    if "paid back" in right:
        is_wrong = AMOUNT in habits if wish.table == BOOKING else slips
        return right.partition(";")[0] + "]" if is_wrong else right
    if right == wish.proposal and (REFUND in habits if wish.kind == REFUND_ITEM else slips):
        return wish.refusal
    is_changed = any(action == wish.call for action, _ in wish.steps)
    if right == wish.refusal and not is_changed and (LATE_BOOKING in habits if wish.table == BOOKING else slips):
        return wish.call if agrees(chat[-1].content) else wish.proposal
    return right


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    reading = {"n_read_whole": 1, "n_tokenizer_chats": 1000}
    return built_on_chats(entry, out_dir, on_progress, DialogueCorpusSettings, dialogue_corpus, **reading)


def single_tokens() -> tuple[str, ...]:
    """Strings that are worth a token: pairs of digits, names and things, set phrases."""
    words = sorted({*ITEMS, *COURSES, *STATUSES, *DAYS, "cancelled", "booked"})
    people = [form for name in NAMES for form in (name, name.capitalize())]
    return (*(f"{n:02d}" for n in range(100)), *words, *people, *PHRASES)


BASE = BaseModel(
    version="4",
    recipe=ChatRecipe(
        TinyRecipe(
            target=1.0,
            n_layers=3,
            n_heads=4,
            feed_forward_size=256,
            max_vocabulary=300,
            context_tokens=1024,
            warmup_steps=20,
        ),
        steps=(250, 350),
        batch_tokens=4096,
        pieces=single_tokens(),
    ),
    corpus=DialogueCorpusSettings(),
    builder=build,
)
"""The recipe of `tiny-dialogue`."""
