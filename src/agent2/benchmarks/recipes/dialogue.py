"""Corpus and recipe of the base model `tiny-dialogue`: dialogues of careless agents; the package ships the weights.

Dialogues of a careless agent with its users. It knows the forms but not the whole policy: three of four such agents
refuse refunds that are due, offer to change bookings when it is too late, or do not state the amount that is paid back
for one; every other decision is wrong now and then. A model that has read such dialogues wins some; what it lacks is
care. Mistakes and right decisions are both messages, so that a model that was only taught to say something gains
nothing. Numbers are pairs of digits, and the header, names and set phrases are one token each, so that a small model
can copy what it read.

Promises: only contents of the train pool; one set of settings, one corpus. A gain on such a base shows that a pipeline
works, not that it would teach a model anything that it did not have in it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from agent2.benchmarks.dialogue import (
    AMOUNT,
    COURSES,
    HABITS,
    ITEMS,
    LATE_BOOKING,
    NAMES,
    PHRASES,
    REFUND,
    SOURCE,
    WHERE,
    ServiceDialogue,
    expert,
    item_of_case,
    request_of,
)
from agent2.environments.dialogue import BOOKING, DAYS, REFUND_ITEM, STATUSES, is_agreement
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import Item, JsonValue, Message, Split


@dataclass(frozen=True, slots=True)
class DialogueCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_chats: int = 6000
    often: float = 0.75
    """Share of agents that have a bad habit, drawn for each of the three: refuse refunds that are due, change bookings
    when it is too late, do not state the amount for a booking."""
    rarely: float = 0.10
    """Share of other decisions that are wrong."""
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
        messages.append(
            Message("assistant", careless_action(item, messages, habits, slips=rng.random() < settings.rarely))
        )
        step = world.act(messages[-1].text)
        if step.done or step.observation is None:
            break
        messages.append(Message("user", step.observation))
    return messages if messages[-1].role == "assistant" else messages[:-1]


def careless_action(item: Item, chat: Sequence[Message], habits: Collection[str], *, slips: bool) -> str:
    """The expert's next message, or a wrong decision, or one that leaves the amount out.

    habits: of `HABITS`, the mistakes that this agent always makes. slips: whether it makes another one this time.
    """
    right, request = expert(item, chat), request_of(chat)
    if request is None or request.kind == WHERE or request.record is None:
        return right
    if "paid back" in right:
        is_wrong = AMOUNT in habits if request.table == BOOKING else slips
        return right.partition(";")[0] + "]" if is_wrong else right
    if right == request.proposal and (REFUND in habits if request.kind == REFUND_ITEM else slips):
        return request.refusal
    is_changed = any(action == request.call for action, _ in request.steps)
    if right == request.refusal and not is_changed and (LATE_BOOKING in habits if request.table == BOOKING else slips):
        return request.call if is_agreement(chat[-1].text) else request.proposal
    return right


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import (  # here: torch, which looking up the recipe does not need
        StageOptions,
        build_chat_base,
    )

    stage_options = StageOptions(1, 1000)
    return build_chat_base(
        entry,
        out_dir,
        on_progress,
        DialogueCorpusSettings,
        lambda corpus: [dialogue_corpus(corpus)] * 2,
        stage_options=stage_options,
    )


def single_tokens() -> tuple[str, ...]:
    """Strings that become one token each: pairs of digits, names and nouns, set phrases."""
    nouns = sorted({*ITEMS, *COURSES, *STATUSES, *DAYS, "cancelled", "booked"})
    people = [form for name in NAMES for form in (name, name.capitalize())]
    return (*(f"{n:02d}" for n in range(100)), *nouns, *people, *PHRASES)


BASE = BaseModel(
    version="5",
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
    shipped=f"{__package__}:tiny-dialogue",
    sample=lambda corpus: dialogue_corpus(replace(corpus, n_chats=N_SAMPLE_CHATS)),
)
"""The recipe of `tiny-dialogue`."""
