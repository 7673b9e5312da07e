"""A tiny base model for the official games, trained on first use on a forgetful player in the visible games' rooms.

Its corpus comes from the visible train games of the user's data folder: the rooms (receptacles and number of objects),
every name with its number, and the fixed parts of the prompt. In these rooms objects are placed anew, other goals are
drawn, and a simulator of the engine's rules is played, so no walkthrough, no dev game and nothing of a hidden game is
read. The player searches well, but mostly walks on where it should put down, clean, heat or cool what it carries, so
that a model that imitates it greedily wins hardly any game.

The two solved examples of the prompt are one token for each task type: the model has a short context and learns nothing
from them. A gain on such a base shows that a pipeline works, NOT what it would do for a language model.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from agent2.benchmarks.alfworld import (
    FOLDERS,
    IS_IN_SPLIT,
    MAX_TURNS,
    OfficialData,
    data_root,
    published_examples,
    react_opening,
)
from agent2.benchmarks.household.generate import affordances, layout_in, shown_names, size_of
from agent2.benchmarks.recipes.household import KNIVES, PHRASES, GameSimulator, init_numbered_names, wandering_command
from agent2.environments.household.expert import SearchExpert
from agent2.environments.household.game import TASK_TYPES, Game
from agent2.environments.household.world import OBSERVATION_SLOT
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import JsonValue, Message, Split

N_TOKENIZER_CHATS = 100
_MAX_DRAWS_PER_CHAT = 50
"""Rooms drawn per chat, on average, after which it is an error that none suits its task."""
_RECEPTACLE = re.compile(r"\(receptacleType ([^?\s]\S*) (\w+)Type\)", re.IGNORECASE)
_TYPE = re.compile(r"\(objectType ([^?\s]\S*) (\w+)Type\)", re.IGNORECASE)
_INSIDE = re.compile(r"\(inReceptacle ([^?\s]\S*) ", re.IGNORECASE)
_OTHER_PHRASES = (
    ".\nYour task is to:",
    " put two",
    " find two",
    " and put them in",
    " cool some",
    " cool",
    "cool",
    " cold",
    "You cool the",
    "\n>",
)
SIZE = size_of("full")
"""Decides how objects are placed; their number and types come from the visible games."""


@dataclass(frozen=True, slots=True)
class AlfworldCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    # field names are in the digest of the recipe, which names the folder of the trained model
    n_games: int = 200
    """At most this many visible games are read."""
    n_chats: int = 4500
    often: float = 0.7
    """How often the player walks on instead of putting down, cleaning, heating or cooling what it carries."""
    rarely: float = 0.1
    """How often it does so instead of taking an object or lighting a lamp."""
    wandering: float = 0.05
    """Share of actions that are any possible one."""
    seed: int = 0
    rooms: tuple[tuple[tuple[str, ...], int], ...] = ()
    """Receptacle types, sorted, and number of objects of each visible game; `with_data` fills this and what follows."""
    object_types: tuple[str, ...] = ()
    """Without knives, which the simulator does not know."""
    prompts: tuple[str, ...] = ()
    """The first message of each of `TASK_TYPES`, with a slot for the game."""


def with_data(entry: BaseModel, data: Path | None) -> BaseModel:
    """The recipe for the visible games of a data folder. Raises ConfigError as `OfficialData.first` does."""
    recipe, settings, root = entry.recipe, entry.corpus, data_root(data)
    if not isinstance(recipe, ChatRecipe) or not isinstance(settings, AlfworldCorpusSettings):
        raise ConfigError(
            "only a recipe for chats of official games can be completed here; see agent2.benchmarks.BASES"
        )
    official_games = OfficialData(root).up_to(FOLDERS[Split.TRAIN], settings.n_games, IS_IN_SPLIT[Split.TRAIN])
    games = [official.game for official in official_games]
    texts = published_examples(root)
    prompts = tuple(
        react_opening(task_type, texts[task_type] if texts else None)[0]["content"] for task_type in TASK_TYPES
    )
    settings = replace(
        settings,
        rooms=tuple((room_of(game), len(_placed_objects(game))) for game in games),
        object_types=tuple(sorted({kind for game in games for kind in _placed_objects(game).values()} - KNIVES)),
        prompts=prompts,
    )
    fixed = {part for prompt in prompts for part in prompt.split(OBSERVATION_SLOT)}
    pieces = (*sorted(fixed | {*PHRASES, *_OTHER_PHRASES}), *vocabulary(games))
    return replace(entry, recipe=replace(recipe, pieces=pieces), corpus=settings, from_data="")


def room_of(game: Game) -> tuple[str, ...]:
    """The types of a game's receptacles, sorted, of those that the engine's tables know."""
    type_by_lower_name = {kind.lower(): kind for kind in affordances().holds}
    kinds = {name: kind.lower() for name, kind in _RECEPTACLE.findall(game.problem)}
    return tuple(sorted(type_by_lower_name[kind] for kind in kinds.values() if kind in type_by_lower_name))


def _placed_objects(game: Game) -> dict[str, str]:
    """Id -> type of everything in a receptacle."""
    types = dict(_TYPE.findall(game.problem))
    return {name: types[name] for name in _INSIDE.findall(game.problem)}


def vocabulary(games: Sequence[Game]) -> tuple[str, ...]:
    """Every name that the games show (" shelf 1", with numbers up to the highest, at least 3), then every noun."""
    highest: Counter[str] = Counter()
    for game in games:
        ids = {shown_name for shown_name, _ in _RECEPTACLE.findall(game.problem)} | set(_placed_objects(game))
        for shown_name in shown_names(sorted(ids)).values():
            noun, _, number = shown_name.rpartition(" ")
            highest[noun] = max(highest[noun], int(number))
    names = sorted(highest)
    numbered = (f" {noun} {number}" for noun in names for number in range(1, max(highest[noun], SIZE.max_copies) + 1))
    return (*numbered, *(f" {noun}" for noun in names))


def official_corpus(settings: AlfworldCorpusSettings) -> list[list[Message]]:
    """Whole games in the prompt of the benchmark; the last message is a command."""
    rng = np.random.default_rng([settings.seed, 0xA1])
    prompts = dict(zip(TASK_TYPES, settings.prompts, strict=True))
    size = replace(SIZE, object_types=frozenset(settings.object_types))
    chats: list[list[Message]] = []
    for _ in range(_MAX_DRAWS_PER_CHAT * settings.n_chats + 1):
        if len(chats) == settings.n_chats:
            return chats
        types, n = settings.rooms[int(rng.integers(len(settings.rooms)))]
        task_type = TASK_TYPES[int(rng.integers(len(TASK_TYPES)))]
        layout = layout_in(rng, replace(size, n_objects=(n, n)), types, task_type)
        if layout is not None:
            chats.append(_chat(GameSimulator(layout), prompts[layout.task_type], settings, rng))
    raise ConfigError(
        f"tiny-alfworld: the rooms of {len(settings.rooms)} visible games suit hardly any task; put more train games "
        "into the data folder"
    )


def _chat(
    simulator: GameSimulator, prompt: str, settings: AlfworldCorpusSettings, rng: np.random.Generator
) -> list[Message]:
    expert = SearchExpert(seed=0)
    observation = simulator.opening()
    expert.read(observation)
    chat = [Message("user", prompt.replace(OBSERVATION_SLOT, observation.replace("\n\n", "\n")))]
    often = dict.fromkeys(("move", "clean", "heat", "cool"), settings.often)
    slips: Mapping[str, float] = {**often, **dict.fromkeys(("take", "use"), settings.rarely)}
    for _ in range(MAX_TURNS):
        command = expert.next_command()
        if rng.random() < slips.get(command.partition(" ")[0], 0.0):
            command = f"go to {_next_receptacle(simulator)}"
        elif rng.random() < settings.wandering:
            command = wandering_command(simulator.admissible(), rng, 0.4)
        chat.append(Message("assistant", command))
        observation = simulator.step(command)
        if simulator.is_won:
            break
        expert.read(observation)
        chat.append(Message("user", observation))
    return chat if chat[-1].role == "assistant" else chat[:-1]


def _next_receptacle(simulator: GameSimulator) -> str:
    """The receptacle after the one where the player is, as the opening lists them."""
    names = simulator.receptacles
    return names[(names.index(simulator.place) + 1) % len(names)] if simulator.place is not None else names[0]


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train the model in out_dir and return what the manifest says of it.

    Raises ConfigError for another recipe, and for one that was not completed.
    """
    # here: torch, which looking up the recipe does not need
    from agent2.models.tiny import StageOptions, build_chat_base, chat_recipe

    recipe, settings = chat_recipe(entry, AlfworldCorpusSettings)
    if not settings.rooms:
        raise ConfigError("only a recipe that was completed from official games can be made here; see with_data")
    on_progress(f"playing {settings.n_chats} games in the rooms of {len(settings.rooms)} visible ones")
    trained = build_chat_base(
        entry,
        out_dir,
        on_progress,
        AlfworldCorpusSettings,
        lambda corpus: [official_corpus(corpus)] * 2,
        prepare=partial(init_numbered_names, pieces=recipe.pieces),
        stage_options=StageOptions(1, N_TOKENIZER_CHATS),
    )
    return {"visible_games": len(settings.rooms), **trained}


BASE = BaseModel(
    version="1",
    recipe=ChatRecipe(
        TinyRecipe(
            target=1.0,
            n_layers=3,
            n_heads=4,
            feed_forward_size=256,
            max_vocabulary=300,
            context_tokens=2048,
            warmup_steps=20,
        ),
        steps=(300, 200),
        batch_tokens=4096,
        report_every_steps=25,
    ),
    corpus=AlfworldCorpusSettings(),
    builder="agent2.benchmarks.recipes.alfworld:build",
    from_data="agent2.benchmarks.recipes.alfworld:with_data",
)
"""The recipe of `tiny-alfworld`, to be completed."""
