"""Corpus and recipe of the tiny household model: games played badly, on a simulator of the engine.

Half of the chats wander: commands that are possible, drawn at random, and now and then one that is not. The other half
mixes in some steps of the searching expert. In all of them the player now and then prefers what the goal names, whether
or not that makes sense at the moment. A model that has read them knows the words, the commands and the rules of the
world, and wins now and then; what it lacks is purpose, which is what post-training can give it.

`GameSimulator` has the engine's rules and words in plain Python and is a hundred times as fast. For layouts without
knives it gives the same observations, admissible commands and wins as the real engine, word for word (a test compares
them); it does not know `help` or cutting, and no score ever comes from it.

The package ships the weights; `build` trains them (some minutes on one core). In the first stage every token is
learned, the game's messages too, so the model learns the world and not only the form of a command; in the second one
only commands are. "shelf 1" and "shelf 2" begin as nearly the same vector as "shelf", so that a goal and the objects
that it names look alike from the start.

Promises: only games of the train pool; one set of settings, one corpus. A gain on such a base shows that a pipeline
works, not what it would do for another model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agent2.benchmarks.home import pick
from agent2.benchmarks.household.generate import (
    CLEAN,
    COOL,
    HEAT,
    LAMP,
    LOOK,
    TWO,
    Layout,
    WorldObject,
    WorldSize,
    affordances,
    listed,
    opening,
    size_of,
    source_of,
)
from agent2.environments.household.expert import SearchExpert
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import JsonValue, Message

N_TOKENIZER_CHATS = 2000
OWN_PART = 0.5
"""Weight of a numbered name's own initial vector, which is added to that of its word."""
NOTHING = "Nothing happens."
KNIVES = frozenset({"Knife", "ButterKnife"})
_TREATED_BY = {"SinkBasin": "clean", "Microwave": "heat", "Fridge": "cool"}
_NEEDS = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
_ADJECTIVES = (("clean", "heat", "hot and clean"), ("clean", "cool", "cool and clean"))
_ADJECTIVE = (("heat", "hot"), ("clean", "clean"), ("cool", "cold"))
_IDLE = frozenset({"look", "inventory", "examine"})
PHRASES = (
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
"""Set phrases of the engine, each one token."""


class GameSimulator:
    """One game in play."""

    def __init__(self, layout: Layout) -> None:
        """Raises ConfigError for a layout with a knife."""
        if any(placed.type in KNIVES for placed in layout.objects):
            raise ConfigError("household simulator: it does not know knives; play this layout on the engine")
        names = layout.names()
        by_id = {placed.id: placed for placed in (*layout.receptacles, *layout.objects)}
        self._layout = layout
        self._receptacles: dict[str, WorldObject] = {}
        self._objects: dict[str, WorldObject] = {}
        for id_, name in names.items():
            (self._objects if by_id[id_].place else self._receptacles)[name] = by_id[id_]
        self._where: dict[str, str | None] = {name: names[placed.place] for name, placed in self._objects.items()}
        self._place: str | None = None
        self._held: str | None = None
        self._opened: set[str] = set()
        self._treatments: dict[str, set[str]] = {name: set() for name in self._objects}
        self._switched: set[str] = set()

    def opening(self) -> str:
        """What a player reads first."""
        return opening(self._layout)

    @property
    def receptacles(self) -> list[str]:
        """Names, in the order in which they are listed."""
        return list(self._receptacles)

    @property
    def place(self) -> str | None:
        """Where the player is; None at the start."""
        return self._place

    @property
    def objects(self) -> list[str]:
        """Names of all objects, seen or not, the lamp among them."""
        return list(self._objects)

    @property
    def is_won(self) -> bool:
        """True if the goal is reached in the current state."""
        layout = self._layout
        if layout.task_type == LOOK:
            is_lit = any(self._where[lamp] == self._place for lamp in self._switched)
            return is_lit and self._held is not None and self._objects[self._held].type == layout.target
        need = _NEEDS.get(layout.task_type)
        arrived = [
            place
            for name, place in self._where.items()
            if place is not None
            and self._objects[name].type == layout.target
            and self._receptacles[place].type == layout.destination
            and (need is None or need in self._treatments[name])
        ]
        # two objects are wanted in the same receptacle
        return len(arrived) > len(set(arrived)) if layout.task_type == TWO else bool(arrived)

    def admissible(self) -> list[str]:
        """The commands that do or show something now, without `help`; in a fixed order."""
        place, held = self._place, self._held
        commands = ["look", "inventory", *(f"go to {name}" for name in self._receptacles if name != place)]
        if place is not None:
            commands += self._commands_at(place)
        if held is not None:
            commands.append(f"examine {held}")
        return commands

    def _commands_at(self, place: str) -> list[str]:
        tables = affordances()
        receptacle, held = self._receptacles[place], self._held
        commands = [f"examine {place}"]
        if receptacle.type in tables.openable:
            commands.append(f"{'close' if place in self._opened else 'open'} {place}")
        commands += [f"use {name}" for name in self._objects if self._is_lamp(name) and self._where[name] == place]
        if held is None:
            return commands + [f"take {name} from {place}" for name in self._visible() if not self._is_lamp(name)]
        kind = self._objects[held].type
        if kind in tables.holds[receptacle.type] and self._is_open(place):
            commands.append(f"move {held} to {place}")
        treatable = {"clean": tables.cleanable, "heat": tables.heatable, "cool": tables.coolable}
        treatment = _TREATED_BY.get(receptacle.type)
        if treatment is not None and kind in treatable[treatment]:
            commands.append(f"{treatment} {held} with {place}")
        return commands

    def step(self, command: str) -> str:
        """Carry out a command and return the observation."""
        if command not in self.admissible():
            return NOTHING
        verb, _, argument = command.partition(" ")
        if verb in ("look", "inventory", "examine"):
            return self._look_at(verb, argument)
        if verb == "go":
            self._place = argument.removeprefix("to ")
            return f"You arrive at {self._place}. {self._contents(self._place)}"
        if verb == "open":
            self._opened.add(argument)
            return f"You open the {argument}. {self._contents(argument)}"
        if verb == "close":
            self._opened.remove(argument)
            return f"You close the {argument}."
        if verb == "use":
            self._switched.add(argument)
            return f"You turn on the {argument}."
        return self._handle_object(verb, argument)

    def _handle_object(self, verb: str, argument: str) -> str:
        """Carry out take, move, clean, heat or cool."""
        name, _, place = argument.partition({"take": " from ", "move": " to "}.get(verb, " with "))
        if verb == "take":
            self._where[name], self._held = None, name
            return f"You pick up the {name} from the {place}."
        if verb == "move":
            self._where[name], self._held = place, None
            return f"You move the {name} to the {place}."
        treatments = self._treatments[name]
        # heating undoes cooling and the other way round
        treatments.discard({"heat": "cool", "cool": "heat"}.get(verb, ""))
        treatments.add(verb)
        return f"You {verb} the {name} using the {place}."

    def _look_at(self, verb: str, name: str) -> str:
        """The observation of look, inventory or examine."""
        if verb == "look" and self._place is None:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        if verb == "look":
            return f"You are facing the {self._place}. Next to it, you see nothing."
        if verb == "inventory":
            return "You are not carrying anything." if self._held is None else f"You are carrying: a {self._held}."
        return self._contents(name) if name in self._receptacles else self._appearance(name)

    def _appearance(self, name: str) -> str:
        if self._objects[name].type in affordances().containers:
            return f"This is a normal {name}. In it, you see nothing."
        treatments = self._treatments[name]
        for first, second, description in _ADJECTIVES:
            if {first, second} <= treatments:
                return f"This is a {description} {name}."
        for treatment, adjective in _ADJECTIVE:
            if treatment in treatments:
                return f"This is a {adjective} {name}."
        return f"There's nothing special about {name}."

    def _contents(self, place: str) -> str:
        inside = listed([name for name, where in self._where.items() if where == place])
        if self._receptacles[place].type not in affordances().openable:
            return f"On the {place}, you see {inside}."
        return f"The {place} is open. In it, you see {inside}." if self._is_open(place) else f"The {place} is closed."

    def _visible(self) -> list[str]:
        """Objects that the player sees."""
        if self._place is None or not self._is_open(self._place):
            return []
        return [name for name, where in self._where.items() if where == self._place]

    def _is_open(self, place: str) -> bool:
        return place in self._opened or self._receptacles[place].type not in affordances().openable

    def _is_lamp(self, name: str) -> bool:
        return self._objects[name].type in affordances().lamps


@dataclass(frozen=True, slots=True)
class HouseholdCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_chats: int = 36_000
    wandering_share: float = 0.5
    """Share of chats without any step of the expert."""
    max_expert_share: float = 0.3
    """Of steps in another chat, which draws its own share uniformly up to this."""
    impossible_share: float = 0.15
    """Of the remaining steps: commands that have no effect."""
    idle_share: float = 0.4
    """Of possible commands: drawn with look, inventory and examine among them."""
    drawn_share: float = 0.3
    """Of possible commands: drawn only from those, if any, that name what the goal names."""
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
    simulator, expert = GameSimulator(layout), SearchExpert(seed=0)
    observation = simulator.opening()
    chat: list[Message] = []
    for _ in range(size.max_turns):
        chat.append(Message("user", observation))
        expert.read(observation)
        if rng.random() < expert_share:
            command = expert.next_command()
        elif rng.random() < settings.impossible_share:
            command = impossible_command(simulator, rng)
        else:
            command = wandering_command(
                _attractive_commands(simulator, layout, settings, rng), rng, settings.idle_share
            )
        chat.append(Message("assistant", command))
        observation = simulator.step(command)
        if simulator.is_won:
            break
    return chat


def _attractive_commands(
    simulator: GameSimulator, layout: Layout, settings: HouseholdCorpusSettings, rng: np.random.Generator
) -> Sequence[str]:
    """The possible commands, or only those that name the target's or the destination's type."""
    possible = simulator.admissible()
    if rng.random() >= settings.drawn_share:
        return possible
    kinds = {layout.target.lower(), layout.destination.lower()}
    return [command for command in possible if kinds & set(command.split())] or possible


def wandering_command(admissible: Sequence[str], rng: np.random.Generator, idle_share: float) -> str:
    """A possible command: first the verb is drawn, then its argument, so that the many `go to` do not dominate."""
    may_idle = rng.random() < idle_share or all(command.partition(" ")[0] in _IDLE for command in admissible)
    by_verb: dict[str, list[str]] = {}
    for command in admissible:
        verb = command.partition(" ")[0]
        if may_idle or verb not in _IDLE:
            by_verb.setdefault(verb, []).append(command)
    options = by_verb[pick(rng, sorted(by_verb))]
    return pick(rng, options)


def impossible_command(simulator: GameSimulator, rng: np.random.Generator) -> str:
    """A well-formed command that most often has no effect here."""
    name, place = pick(rng, simulator.objects), pick(rng, simulator.receptacles)
    forms = (
        f"take {name} from {place}",
        f"take {name} from {place}",
        f"move {name} to {place}",
        f"go to {place}",
        f"open {place}",
        f"clean {name} with {place}",
        f"heat {name} with {place}",
        "use desklamp 1",
    )
    return pick(rng, forms)


def single_tokens(size: WorldSize) -> tuple[str, ...]:
    """Strings that become one token each: every name with its number, and the engine's set phrases."""
    types = set(size.object_types) | {LAMP} | {kind for room in size.rooms.values() for kind in room}
    names = sorted(kind.lower() for kind in types)
    numbered = [f" {name} {number}" for name in names for number in range(1, size.max_copies + 1)]
    return (*numbered, *(f" {name}" for name in names), *PHRASES)


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir; returns what `made.json` says.

    Raises ConfigError if the entry is not the one of household, or without the alfworld package.
    """
    from agent2.models.tiny import (  # here: torch, which looking up the recipe does not need
        StageOptions,
        build_chat_base,
        chat_recipe,
    )

    recipe, _ = chat_recipe(entry, HouseholdCorpusSettings)
    return build_chat_base(
        entry,
        out_dir,
        on_progress,
        HouseholdCorpusSettings,
        lambda corpus: [household_corpus(corpus)] * 2,
        prepare=partial(init_numbered_names, pieces=recipe.pieces),
        stage_options=StageOptions(1, N_TOKENIZER_CHATS),
    )


def init_numbered_names(model: Any, tokenizer: Any, pieces: Sequence[str]) -> None:
    """Start each numbered name (" shelf 1") near its word (" shelf"): the word's vector plus a part of its own."""
    import torch

    embeddings_VD = model.get_input_embeddings().weight
    token_ids = {piece: tokenizer.convert_tokens_to_ids(piece) for piece in pieces}
    with torch.no_grad():
        for piece, row in token_ids.items():
            word, _, last = piece.rpartition(" ")
            if last.isdigit() and word in token_ids:
                embeddings_VD[row] = embeddings_VD[token_ids[word]] + OWN_PART * embeddings_VD[row]


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
    builder=build,
    shipped=f"{__package__}:tiny-household",
    sample=lambda corpus: household_corpus(replace(corpus, n_chats=N_SAMPLE_CHATS)),
    origin=("agent2.arena.tiny_household:build", "arithmetic-pools-1"),
)
"""The recipe of `tiny-household`."""
