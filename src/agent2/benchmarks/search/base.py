"""The base model of the embedded `search` task: shipped with the package, made by a recipe that is here too.

What it reads before it is handed to an agent: questions played badly, of which it learns every word, and then, for some
hundred steps, actions of an expert. Each chat of the first kind draws how often its player follows the proof; the other
actions have the right form and mostly name what was shown, and now and then end the episode too early or with the wrong
name. The model knows the words, the actions, and how a page leads to the next; it still mixes up names and pages, and a
single slip in five or six actions, or in a citation, makes an answer worth nothing. Every name is one token wherever it
stands, so that copying it from a page is one step.

The worlds of the corpus have numbers that no item has (`FIRST_WORLD` and above). Gains on such a base show that a
pipeline works; they do NOT show what it would do for another model.

Promises: one set of settings, one corpus; `build` gives the same weights on every machine. Does NOT promise that `make`
gives the shipped weights again on another machine or version of torch (float order differs).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from agent2.benchmarks.search.benchmark import Search, corpus_of_item, item_of_question
from agent2.benchmarks.search.players import first_search
from agent2.benchmarks.search.questions import HEADER, draw_question
from agent2.benchmarks.search.wiki import GOODS, PEOPLE, PLACES, RELATIONS, TRADES
from agent2.environments.search.world import ANSWER, FIND, OPEN, SEARCH, UNKNOWN, SearchWorld
from agent2.environments.tools.calls import write_brackets
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import Item, JsonValue, Message, Split, digest_of

FIRST_WORLD = 1_000_000
"""Number of the corpus's first world, above those of all items."""
N_SAMPLE_CHATS = 100
"""Their digest shows whether today's corpus is still the one that was read."""
PACKAGED = "tiny-search"


@dataclass(frozen=True, slots=True)
class SearchCorpusSettings:
    """How the corpus is drawn; shares are 0 to 1."""

    n_chats: int = 6_000
    chats_per_world: int = 4
    least_expert: float = 0.25
    most_expert: float = 0.95
    """Of actions that follow the proof; one chat draws its own share between these evenly."""
    ending_share: float = 0.2
    """Of the other actions: an answer with a name that was shown, which ends the episode."""
    impossible_share: float = 0.08
    """Of the other actions: a page that does not exist."""
    seed: int = 0

    def without_mistakes(self) -> "SearchCorpusSettings":
        """Other questions of the same worlds, played by the expert alone."""
        return replace(self, least_expert=1.0, most_expert=1.0, seed=self.seed + 1)


def corpus_chats(settings: SearchCorpusSettings) -> list[list[Message]]:
    """The chats: question, action, observation, action and so on; the last message is an action."""
    chats: list[list[Message]] = []
    for number in range(-(-settings.n_chats // settings.chats_per_world)):
        rng = np.random.default_rng([settings.seed, 0x5E, number])
        wiki = replace(Search.wiki, number=FIRST_WORLD + number)
        for _ in range(settings.chats_per_world):
            found = draw_question(rng, wiki, Search.questions)
            if found is not None:
                chats.append(_chat(item_of_question("corpus", Split.TRAIN, found), settings, rng))
    return chats[: settings.n_chats]


def _chat(item: Item, settings: SearchCorpusSettings, rng: np.random.Generator) -> list[Message]:
    share = settings.least_expert + (settings.most_expert - settings.least_expert) * rng.random()
    world = SearchWorld(corpus_of_item, Search.settings)
    chat = list(world.reset(item, 0))
    for _ in range(Search.max_turns):
        action = world.ask_expert() if rng.random() < share else _wandering(item, world.admissible(), settings, rng)
        chat.append(Message("assistant", action))
        step = world.act(action)
        if step.done:
            break
        chat.append(Message("user", step.observation or ""))
    return chat if chat[-1].role == "assistant" else chat[:-1]


def _wandering(item: Item, possible: Sequence[str], settings: SearchCorpusSettings, rng: np.random.Generator) -> str:
    """An action in the right form: mostly one that goes on, with any name that was shown."""
    if rng.random() < settings.impossible_share:
        return write_brackets(OPEN, PEOPLE[int(rng.integers(len(PEOPLE)))])
    answers = [action for action in possible if action.startswith(f"{ANSWER}[")]
    if answers and rng.random() < settings.ending_share:
        return answers[int(rng.integers(len(answers)))]
    others = [action for action in possible if action.startswith(f"{OPEN}[")]
    if others and rng.random() < 0.8:
        return others[int(rng.integers(len(others)))]
    return first_search(item)


def single_tokens() -> tuple[str, ...]:
    """Strings of this world that are worth a token: every name, the set phrases of pages and questions."""
    relations = {relation for kind in RELATIONS.values() for relation in kind}
    fields = {f"{relation.capitalize()}: " for relation in relations}
    phrases = {
        *HEADER.splitlines(keepends=True),
        *(f"{verb}[" for verb in (SEARCH, OPEN, FIND, ANSWER)),
        *("Find the ", ". Name the ", "'s ", " is a ", " is a town.", " from ", " in ", ".\n", "; ", " | ", ": ", "]"),
        *("error: ", "tool_error: ", "no results", UNKNOWN, "ok", " ", "."),
    }
    words = {*PEOPLE, *PLACES, *TRADES, *GOODS, *relations}
    return tuple(sorted(words | fields | phrases, key=lambda piece: (-len(piece), piece)))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Write the shipped model to out_dir and return what the manifest says of it.

    Raises ConfigError if the shipped weights are not those of `made.json`, or were made by another recipe.
    """
    from agent2.models.tiny import unpack  # here: torch, which looking up the recipe does not need

    with resources.as_file(resources.files(__package__) / PACKAGED) as packaged:
        return unpack(packaged, entry, out_dir, on_progress)


def make(entry: BaseModel, folder: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train from the recipe and write the folder that the package ships; returns what `made.json` says.

    In the first stage every token of the corpus is learned, what the world says too; in the second the actions of an
    expert, until the model mostly knows where to go and still mixes up names and pages. Raises ConfigError if the entry
    is not the one of search.
    """
    from agent2.models import tiny
    from agent2.models.loading import no_progress_bars

    recipe, settings = entry.recipe, entry.corpus
    if not isinstance(recipe, ChatRecipe) or not isinstance(settings, SearchCorpusSettings):
        raise ConfigError("only a recipe for chats of search can be made here; see agent2.benchmarks.BASES")
    started = time.perf_counter()
    on_progress(f"playing {settings.n_chats} questions")
    chats = corpus_chats(settings)

    def said(step: int, loss: float) -> None:
        on_progress(f"step {step} of {' and '.join(map(str, recipe.steps))}: loss {loss:.3f}")

    with TemporaryDirectory() as draft, no_progress_bars(), tiny.threads(recipe.threads):
        tokenizer = tiny.build_word_tokenizer(chats[:N_SAMPLE_CHATS], recipe)
        model = tiny.build_model(tokenizer, recipe.model)
        actions_learned = tiny.encode_chats(tokenizer, chats)
        began = time.perf_counter()
        right = tiny.encode_chats(tokenizer, corpus_chats(settings.without_mistakes()))
        n_tokens = 0
        for stage, rows in enumerate((tiny.all_learned(actions_learned), right)):
            losses, n_read = tiny.train_stage(model, rows, recipe, stage, said)
            n_tokens += n_read
        model.eval()
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        tail = losses[-max(1, len(losses) // 10) :]
        now = time.perf_counter()
        made: dict[str, JsonValue] = {
            "recipe_digest": entry.digest,
            "corpus_sample_digest": corpus_sample_digest(settings),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "steps": list(recipe.steps),
            "tokens": n_tokens,
            "loss": round(sum(tail) / len(tail), 4),
            "training_seconds": round(now - began, 1),
            "seconds": round(now - started, 1),
        }
        return tiny.pack(Path(draft), folder, made)


def corpus_sample_digest(settings: SearchCorpusSettings) -> str:
    """Digest of the first chats: differs when the code of the corpus or of the world has changed."""
    return digest_of(corpus_chats(replace(settings, n_chats=min(settings.n_chats, N_SAMPLE_CHATS))))


BASE = BaseModel(
    version="1",
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
        steps=(450, 400),
        batch_tokens=2560,
        pieces=single_tokens(),
    ),
    corpus=SearchCorpusSettings(),
    builder=build,
)
"""The recipe of `tiny-search`."""
