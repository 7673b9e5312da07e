"""Corpus and recipe of the base model of the embedded `search` task; the package ships its weights.

The corpus has four stages. First, questions played badly, of which the model learns every token: each chat draws how
often its player follows the proof; the other actions have the right form and mostly name what was shown, and now and
then end the episode too early or with the wrong name. Second, the actions of an expert, until the model follows nearly
every proof without a mistake. Third, at a lower learning rate, those of players most of whom are hasty: instead of
opening the next page they answer with a name from the page that they have open. Last, those of players most of whom are
rash: they answer with the name of the very page that they should open. That is one word of an action, so the habit can
be deep while names and pages are copied reliably, and nothing else is left to gain. Every name is one token wherever it
occurs, so that copying it from a page is one step. The worlds of the corpus have numbers that no item has
(`FIRST_WORLD` and above).

Promises: one set of settings, one corpus; unpacked, the weights are the same on every machine. Does NOT promise that
training gives the shipped weights again on another machine or version of torch (float order differs). A gain on such a
base shows that a pipeline works, not what it would do for another model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agent2.benchmarks.search import Search, corpus_of_item, first_search, item_of_question
from agent2.benchmarks.search.questions import HEADER, draw_question
from agent2.benchmarks.search.wiki import GOODS, PEOPLE, PLACES, RELATIONS, TRADES
from agent2.environments.search.world import ANSWER, FIND, OPEN, SEARCH, UNKNOWN, SearchWorld
from agent2.environments.tools import write_brackets
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import Item, JsonValue, Message, Split

FIRST_WORLD = 1_000_000
"""Number of the corpus's first world, above those of all items."""
N_SAMPLE_CHATS = 100
"""Chats of each stage in the corpus's sample, and chats that the vocabulary is learned from."""

SearchPolicy = Callable[[Item, SearchWorld, Sequence[Message]], str]
"""The next action of an episode, from the item, its world and the chat so far."""


@dataclass(frozen=True, slots=True)
class SearchCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_chats: int = 6_000
    chats_per_world: int = 4
    least_expert: float = 0.25
    most_expert: float = 0.95
    """Share of actions that follow the proof; each chat draws its own, uniformly between these."""
    ending_share: float = 0.2
    """Of the other actions: an answer with a name that was shown, which ends the episode."""
    impossible_share: float = 0.08
    """Of the other actions: a page that does not exist."""
    n_expert_chats: int = 12_000
    n_hasty_chats: int = 1_600
    """Of the third stage, careful ones included."""
    careful_share: float = 0.2
    """Of the chats of the last two stages: played by the expert alone."""
    haste: float = 0.9
    """Share of the expert's pages after the first that a hasty player does not open, and answers instead."""
    hasty_rate: float = 0.2
    """Factor of both learning rates in the third stage."""
    n_rash_chats: int = 3_000
    """Of the last stage, careful ones included."""
    rashness: float = 0.95
    """Share of the expert's pages after the first that a rash player does not open, and answers with their name."""
    rash_rate: float = 0.5
    """Factor of both learning rates in the last stage."""
    seed: int = 0

    def without_mistakes(self) -> "SearchCorpusSettings":
        """The settings of the second stage: other questions, played by the expert alone."""
        return replace(self, n_chats=self.n_expert_chats, least_expert=1.0, most_expert=1.0, seed=self.seed + 1)


def corpus_chats(settings: SearchCorpusSettings) -> list[list[Message]]:
    """Chats of the first stage: question, action, observation, action and so on; the last message is an action."""

    def player(rng: np.random.Generator) -> SearchPolicy:
        share = settings.least_expert + (settings.most_expert - settings.least_expert) * rng.random()
        return lambda item, world, chat: (
            world.ask_expert() if rng.random() < share else _wandering_action(item, world.admissible(), settings, rng)
        )

    return _play_chats(settings, settings.n_chats, player)


def hasty_chats(settings: SearchCorpusSettings) -> list[list[Message]]:
    """Chats of the third stage, whose players mostly answer with a name from the page that is open."""

    def answer(page: str, world: SearchWorld, chat: Sequence[Message], rng: np.random.Generator) -> str:
        answers = [
            action for action in world.admissible() if action.startswith(f"{ANSWER}[") and _is_on_page(action, chat[-1])
        ]
        return answers[int(rng.integers(len(answers)))] if answers else write_brackets(OPEN, page)

    return _impatient_chats(replace(settings, seed=settings.seed + 2), settings.n_hasty_chats, settings.haste, answer)


def rash_chats(settings: SearchCorpusSettings) -> list[list[Message]]:
    """Chats of the last stage, whose players mostly answer with the name of the page that they should open."""

    def answer(page: str, world: SearchWorld, chat: Sequence[Message], rng: np.random.Generator) -> str:
        return write_brackets(ANSWER, f"{page} | {_opened_page(chat[-2].text)}")

    return _impatient_chats(replace(settings, seed=settings.seed + 3), settings.n_rash_chats, settings.rashness, answer)


def _impatient_chats(
    settings: SearchCorpusSettings,
    n_chats: int,
    impatience: float,
    answer: Callable[[str, SearchWorld, Sequence[Message], np.random.Generator], str],
) -> list[list[Message]]:
    """Chats of experts that mostly answer when they should open a page after the first; some of them never do.

    answer: the action instead of opening a page.
    """

    def player(rng: np.random.Generator) -> SearchPolicy:
        share = 0.0 if rng.random() < settings.careful_share else impatience

        def play(item: Item, world: SearchWorld, chat: Sequence[Message]) -> str:
            action = world.ask_expert()
            is_next_page = action.startswith(f"{OPEN}[") and chat[-2].text.startswith(f"{OPEN}[")
            if not is_next_page or rng.random() >= share:
                return action
            return answer(_opened_page(action), world, chat, rng)

        return play

    return _play_chats(settings, n_chats, player)


def _opened_page(action: str) -> str:
    """The page that an action opens."""
    return action.removeprefix(f"{OPEN}[").removesuffix("]")


def _is_on_page(answer: str, page: Message) -> bool:
    """Whether the page, its first line aside, names the value of an answer."""
    value = answer.removeprefix(f"{ANSWER}[").partition(" | ")[0]
    return value in page.content.partition("\n")[2]


def _play_chats(
    settings: SearchCorpusSettings, n_chats: int, player: Callable[[np.random.Generator], SearchPolicy]
) -> list[list[Message]]:
    """The first n_chats chats over the corpus's worlds, each by a player of its own."""
    chats: list[list[Message]] = []
    for number in range(-(-n_chats // settings.chats_per_world)):
        rng = np.random.default_rng([settings.seed, 0x5E, number])
        wiki = replace(Search.wiki, number=FIRST_WORLD + number)
        for _ in range(settings.chats_per_world):
            solved = draw_question(rng, wiki, Search.questions)
            if solved is not None:
                chats.append(_chat(item_of_question("corpus", Split.TRAIN, solved), player(rng)))
    return chats[:n_chats]


def _chat(item: Item, play: SearchPolicy) -> list[Message]:
    world = SearchWorld(corpus_of_item, Search.settings)
    chat = list(world.reset(item, 0))
    for _ in range(Search.max_turns):
        action = play(item, world, chat)
        chat.append(Message("assistant", action))
        step = world.act(action)
        if step.done:
            break
        chat.append(Message("user", step.observation or ""))
    return chat if chat[-1].role == "assistant" else chat[:-1]


def _wandering_action(
    item: Item, possible: Sequence[str], settings: SearchCorpusSettings, rng: np.random.Generator
) -> str:
    """An action in the right form, with any name that was shown; mostly one that does not end the episode."""
    if rng.random() < settings.impossible_share:
        return write_brackets(OPEN, PEOPLE[int(rng.integers(len(PEOPLE)))])
    answers = [action for action in possible if action.startswith(f"{ANSWER}[")]
    if answers and rng.random() < settings.ending_share:
        return answers[int(rng.integers(len(answers)))]
    openings = [action for action in possible if action.startswith(f"{OPEN}[")]
    if openings and rng.random() < 0.8:
        return openings[int(rng.integers(len(openings)))]
    return first_search(item)


def single_tokens() -> tuple[str, ...]:
    """Strings that become one token each: every name, and the set phrases of pages and questions."""
    relations = {relation for kind in RELATIONS.values() for relation in kind}
    fields = {f"{relation.capitalize()}: " for relation in relations}
    phrases = {
        *HEADER.splitlines(keepends=True),
        *(f"{verb}[" for verb in (SEARCH, OPEN, FIND, ANSWER)),
        *("Find the ", ". Name the ", "'s ", " is a ", " is a town.", " from ", " in ", ".\n", "; ", " | ", ": ", "]"),
        *("error: ", "tool_error: ", "no results", UNKNOWN, "ok", " ", "."),
    }
    names = {*PEOPLE, *PLACES, *TRADES, *GOODS, *relations}
    return tuple(sorted(names | fields | phrases, key=lambda piece: (-len(piece), piece)))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir; returns what `made.json` says. Raises ConfigError for a recipe of something else.

    In the first stage every token is learned, the world's messages too; in later stages only the players' actions.
    """
    from agent2.models.tiny import (  # torch, which looking up the recipe does not need
        StageOptions,
        build_chat_base,
        chat_recipe,
    )

    _, settings = chat_recipe(entry, SearchCorpusSettings)
    stage_options = StageOptions(1, N_SAMPLE_CHATS, (1.0, 1.0, settings.hasty_rate, settings.rash_rate))

    def stages(corpus: SearchCorpusSettings) -> list[list[list[Message]]]:
        wandered, expert = corpus_chats(corpus), corpus_chats(corpus.without_mistakes())
        return [wandered, expert, hasty_chats(corpus), rash_chats(corpus)]

    return build_chat_base(entry, out_dir, on_progress, SearchCorpusSettings, stages, stage_options=stage_options)


def sample(corpus: SearchCorpusSettings) -> list[list[list[Message]]]:
    """The first chats of all but the expert's stage."""
    n = N_SAMPLE_CHATS
    few = replace(corpus, n_chats=n, n_hasty_chats=n, n_rash_chats=n)
    return [corpus_chats(few), hasty_chats(few), rash_chats(few)]


BASE = BaseModel(
    version="3",
    recipe=ChatRecipe(
        TinyRecipe(
            target=0.0,
            hidden_size=96,
            n_layers=4,
            n_heads=4,
            feed_forward_size=192,
            max_vocabulary=280,
            context_tokens=1024,
            warmup_steps=20,
        ),
        steps=(450, 1500, 80, 150),
        batch_tokens=2560,
        pieces=single_tokens(),
    ),
    corpus=SearchCorpusSettings(),
    builder=build,
    shipped=f"{__package__}:tiny-search",
    sample=sample,
)
"""The recipe of `tiny-search`."""
