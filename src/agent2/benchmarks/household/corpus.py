"""What the tiny household model reads before it is handed to an agent: games played badly, in the mirror.

Half of the chats are wanderings: commands that are possible, drawn at random, and now and then one that is not.
The others mix in some steps of the searching expert. In all of them the player is now and then drawn to what the
goal names, whether or not that makes sense at the moment. A model that has read them knows the words, the
commands and the rules of the world, and wins now and then; what it lacks is purpose, which is what post-training
can give it. Gains on such a base show that a pipeline works; they do NOT show what it would do for another model.

Promises: only games of the train pool; one set of settings, one corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent2.benchmarks.household.generate import source_of
from agent2.benchmarks.household.layout import Layout
from agent2.benchmarks.household.mirror import Mirror
from agent2.benchmarks.household.worlds import LAMP, WorldSize, size_of
from agent2.environments.household.expert import SearchExpert
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, TinyRecipe
from agent2.records import Message

_IDLE = frozenset({"look", "inventory", "examine"})
_PHRASES = (
    "You are in the middle of a room. Looking quickly around you, you see a",
    "You are in the middle of a room. Looking quickly around you, you see nothing.",
    ".\n\nYour task is to:",
    "You arrive at",
    "You open the",
    "You close the",
    "You pick up the",
    "You move the",
    "You turn on the",
    "You clean the",
    "You heat the",
    "You are facing the",
    "You are carrying: a",
    "You are not carrying anything.",
    "Nothing happens.",
    "There's nothing special about",
    "This is a normal",
    "This is a",
    ". Next to it, you see nothing.",
    ". In it, you see nothing.",
    ". On the",
    ". The",
    " is closed.",
    " is open. In it, you see a",
    " is open. In it, you see nothing.",
    ", you see a",
    ", you see nothing.",
    ", and a",
    ", a",
    " from the",
    " to the",
    " using the",
    " put a",
    " put some",
    " clean some",
    " heat some",
    " and put it in",
    " clean",
    " hot",
    " in",
    " on",
    " look at",
    " examine the",
    " under the",
    " with the",
    "go to",
    "take",
    "move",
    "open",
    "close",
    "use",
    "clean",
    "heat",
    "examine",
    "look",
    "inventory",
    " from",
    " to",
    " with",
    ".",
)


@dataclass(frozen=True, slots=True)
class HouseholdCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    n_chats: int = 36_000
    wandering_share: float = 0.5
    """Of chats without any step of the expert."""
    max_expert_share: float = 0.3
    """Of steps in one of the other chats, which draws its own share up to this evenly."""
    impossible_share: float = 0.15
    """Of the remaining steps: commands that have no effect."""
    idle_share: float = 0.4
    """Of the possible ones: drawn with looking, taking stock and examining among them."""
    drawn_share: float = 0.3
    """Of the possible ones: drawn from those only, if any, that name what the goal names."""
    size: str = "tiny"
    seed: int = 0


def household_corpus(settings: HouseholdCorpusSettings) -> list[list[Message]]:
    """The chats: opening, command, observation, command and so on; the last message is a command."""
    rng = np.random.default_rng([settings.seed, 0x40])
    size = size_of(settings.size)
    layouts = source_of(size).train_draws(rng)
    return [_chat(next(layouts), size, settings, rng) for _ in range(settings.n_chats)]


def _chat(
    layout: Layout, size: WorldSize, settings: HouseholdCorpusSettings, rng: np.random.Generator
) -> list[Message]:
    expert_share = 0.0
    if rng.random() >= settings.wandering_share:
        expert_share = settings.max_expert_share * rng.random()
    mirror, expert = Mirror(layout), SearchExpert(seed=0)
    observation = mirror.opening()
    chat: list[Message] = []
    for _ in range(size.max_turns):
        chat.append(Message("user", observation))
        expert.read(observation)
        if rng.random() < expert_share:
            command = expert.next_command()
        elif rng.random() < settings.impossible_share:
            command = impossible_command(mirror, rng)
        else:
            command = wandering_command(_drawn(mirror, layout, settings, rng), rng, settings.idle_share)
        chat.append(Message("assistant", command))
        observation = mirror.step(command)
        if mirror.is_won:
            break
    return chat


def _drawn(
    mirror: Mirror, layout: Layout, settings: HouseholdCorpusSettings, rng: np.random.Generator
) -> Sequence[str]:
    """The possible commands, or only those that name a thing of the target's or the destination's kind."""
    possible = mirror.admissible()
    if rng.random() >= settings.drawn_share:
        return possible
    kinds = {layout.target.lower(), layout.destination.lower()}
    return [command for command in possible if kinds & set(command.split())] or possible


def wandering_command(admissible: Sequence[str], rng: np.random.Generator, idle_share: float) -> str:
    """A possible command: first what to do, then with what, so that the many ways to go do not outnumber the rest."""
    may_idle = rng.random() < idle_share or all(command.partition(" ")[0] in _IDLE for command in admissible)
    by_verb: dict[str, list[str]] = {}
    for command in admissible:
        verb = command.partition(" ")[0]
        if may_idle or verb not in _IDLE:
            by_verb.setdefault(verb, []).append(command)
    options = by_verb[_pick(sorted(by_verb), rng)]
    return _pick(options, rng)


def impossible_command(mirror: Mirror, rng: np.random.Generator) -> str:
    """A command in the right words that will most often have no effect here."""
    thing, place = _pick(mirror.objects, rng), _pick(mirror.receptacles, rng)
    forms = (
        f"take {thing} from {place}",
        f"take {thing} from {place}",
        f"move {thing} to {place}",
        f"go to {place}",
        f"open {place}",
        f"clean {thing} with {place}",
        f"heat {thing} with {place}",
        "use desklamp 1",
    )
    return _pick(forms, rng)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def single_tokens(size: WorldSize) -> tuple[str, ...]:
    """Strings of this world that are worth a token: every thing with its number, and the engine's set phrases."""
    types = set(size.object_types) | {LAMP} | {kind for room in size.rooms.values() for kind in room}
    words = sorted(kind.lower() for kind in types)
    numbered = [f" {word} {number}" for word in words for number in range(1, size.max_copies + 1)]
    return (*numbered, *(f" {word}" for word in words), *_PHRASES)


BASE = BaseModel(
    version="1",
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
        steps=(800, 400),
        batch_tokens=4096,
        pieces=single_tokens(size_of("tiny")),
    ),
    corpus=HouseholdCorpusSettings(),
    builder="agent2.benchmarks.household.base:build",
    origin=("agent2.arena.tiny_household:build", "arithmetic-pools-1"),
)
"""The recipe of `tiny-household`."""
