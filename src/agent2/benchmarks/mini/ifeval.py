"""The mini_ifeval benchmark: write about a topic under one or two verifiable instructions.

A task is a scene of a closed world ("the cat is red and old", in three languages), one hard instruction, and often a
second one; each task knows a text that follows all. Instructions are of IFEval's own types, with our own short wording.
A *hard* one takes an effort: a text written without it in mind hardly ever follows it. An *easy* one only narrows a
text; it comes second. Prompt-level strict accuracy is the score; instruction-level and loose accuracy and the four
classes (keyword, length, format, language) are views.

The corpus of the tiny base model has texts that follow their instructions or ignore one. Each instruction is followed
or ignored independently, how often depends on its type, so that a model which imitates the corpus is between floor and
ceiling under greedy sampling too.

Promises: the corpus has only tasks of the train pool. The checkers are those for the published IFEval; items are our
own and short, so scores do NOT compare with published ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Players, Source, foreign_answers, pick, reference_answer
from agent2.benchmarks.mini.tool_questions import right_share
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import Environment, Item, Message, SamplingSettings, Scorer, Split, canonical_json
from agent2.scorers.constraints import ConstraintScorer, read_instructions
from agent2.scorers.constraints.checks import Arguments, count_words

ADJECTIVES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "red": ("rot", "rojo", "roja"),
        "old": ("alt", "viejo", "vieja"),
        "new": ("neu", "nuevo", "nueva"),
        "small": ("klein", "pequeño", "pequeña"),
        "cold": ("kalt", "frío", "fría"),
        "fast": ("schnell", "rápido", "rápida"),
        "big": ("groß", "grande", "grande"),
        "white": ("weiß", "blanco", "blanca"),
        "black": ("schwarz", "negro", "negra"),
        "quiet": ("leise", "callado", "callada"),
    }
)
"""English -> German, Spanish of either gender."""
TOPICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cat": ("die Katze", "el gato"),
        "dog": ("der Hund", "el perro"),
        "bird": ("der Vogel", "el pájaro"),
        "horse": ("das Pferd", "el caballo"),
        "cow": ("die Kuh", "la vaca"),
        "tree": ("der Baum", "el árbol"),
        "house": ("das Haus", "la casa"),
        "boat": ("das Boot", "el barco"),
        "moon": ("der Mond", "la luna"),
        "river": ("der Fluss", "el río"),
        "star": ("der Stern", "la estrella"),
        "car": ("das Auto", "el coche"),
        "sheep": ("das Schaf", "la oveja"),
        "garden": ("der Garten", "el jardín"),
        "bridge": ("die Brücke", "el puente"),
        "fish": ("der Fisch", "el pez"),
    }
)
"""English noun -> German, Spanish with their articles."""
LANGUAGE_NAMES: Mapping[str, str] = MappingProxyType({"de": "German", "es": "Spanish"})
KEYWORD = "keywords:existence"
FORBIDDEN = "keywords:forbidden_words"
WORDS = "length_constraints:number_words"
SENTENCES = "length_constraints:number_sentences"
BULLETS = "detectable_format:number_bullet_lists"
HIGHLIGHT = "detectable_format:number_highlighted_sections"
JSON = "detectable_format:json_format"
TITLE = "detectable_format:title"
END = "startend:end_checker"
QUOTES = "startend:quotation"
CAPITALS = "change_case:english_capital"
LOWERCASE = "change_case:english_lowercase"
LANGUAGE = "language:response_language"

HARD = (KEYWORD, WORDS, SENTENCES, BULLETS, HIGHLIGHT, JSON, TITLE, END, QUOTES, CAPITALS, LANGUAGE)
EASY = (FORBIDDEN, LOWERCASE)
_SHAPES = frozenset({WORDS, SENTENCES, BULLETS, JSON, LANGUAGE})
"""A text has at most one of these shapes."""
_APART: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        JSON: frozenset({HIGHLIGHT, TITLE, END, QUOTES, CAPITALS, LOWERCASE}),
        LANGUAGE: frozenset({KEYWORD, FORBIDDEN, TITLE, END, CAPITALS, LOWERCASE}),
        BULLETS: frozenset({HIGHLIGHT, QUOTES}),
        CAPITALS: frozenset({LOWERCASE}),
    }
)
"""Instruction types that cannot, or should not, be combined."""

PLACES = ("sun", "rain", "snow", "wind", "dark", "park")
END_PHRASES = ("good night", "thank you", "see you soon", "that is all")
_FIXED: Mapping[str, tuple[Arguments, str]] = MappingProxyType(
    {
        HIGHLIGHT: ({"num_highlights": 1}, "Highlight one word with *."),
        JSON: ({}, "Answer in JSON."),
        TITLE: ({}, "Add a title in << >>."),
        QUOTES: ({}, "Put it in double quotes."),
        CAPITALS: ({}, "Use capital letters only."),
        LOWERCASE: ({}, "Use lowercase letters only."),
    }
)
SHORT = "short"
"""Stands for the instruction to stay below a number of words, which depends on the text."""
_SECOND_SHARE = 0.5
_SCENE_SIZE = 5
_EXTRA_WORDS = 3
"""A text that ignores its limit is this many words too long."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a text."""

    topic: str
    adjectives: Sequence[str]
    """Different ones, in the order in which they are used."""

    run: int = 1
    """How many adjectives occur together, joined by "and"."""

    def sentence(self, first: int = 0, language: str = "en") -> str:
        """One sentence without its mark, starting with adjective number `first`; lower case but for German nouns."""
        if language == "de":
            return f"{TOPICS[self.topic][0]} ist {self.phrase(first, language)}"
        if language == "es":
            return f"{TOPICS[self.topic][1]} es {self.phrase(first, language)}"
        return f"the {self.topic} is {self.phrase(first)}"

    def phrase(self, first: int = 0, language: str = "en") -> str:
        """A run of adjectives, starting with number `first`."""
        chosen = [self.adjectives[(first + index) % len(self.adjectives)] for index in range(self.run)]
        if language == "de":
            return " und ".join(ADJECTIVES[adjective][0] for adjective in chosen)
        if language == "es":
            form = 2 if TOPICS[self.topic][1].startswith("la ") else 1
            return " y ".join(ADJECTIVES[adjective][form] for adjective in chosen)
        return " and ".join(chosen)


@dataclass(frozen=True, slots=True)
class WritingInstruction:
    """One instruction of a writing task."""

    name: str
    """The published instruction type."""
    arguments: Arguments
    wording: str


def are_compatible(first: str, second: str) -> bool:
    """True if two instruction types may occur in one task."""
    both_shapes = first in _SHAPES and second in _SHAPES
    return (
        first != second
        and not both_shapes
        and second not in _APART.get(first, ())
        and first not in _APART.get(second, ())
    )


def draw_instruction(rng: np.random.Generator, name: str, scene: Scene) -> WritingInstruction:
    """An instruction of one type with random arguments that fit the scene."""
    number = int(rng.integers(2, 4))
    if name == KEYWORD:
        word = pick(rng, PLACES)
        return WritingInstruction(name, {"keywords": [word]}, f"Use the word {word}.")
    if name == FORBIDDEN:
        word = pick(rng, [adjective for adjective in ADJECTIVES if adjective not in scene.adjectives])
        return WritingInstruction(name, {"forbidden_words": [word]}, f"Do not use the word {word}.")
    if name == WORDS:
        number = int(rng.integers(8, 12))
        return WritingInstruction(name, {"num_words": number, "relation": "at least"}, f"Use at least {number} words.")
    if name == SENTENCES:
        return WritingInstruction(
            name, {"num_sentences": number, "relation": "at least"}, f"Use at least {number} sentences."
        )
    if name == BULLETS:
        return WritingInstruction(name, {"num_bullets": number}, f"Give {number} bullet points.")
    if name == END:
        phrase = pick(rng, END_PHRASES)
        return WritingInstruction(name, {"end_phrase": phrase}, f'End with "{phrase}".')
    if name == LANGUAGE:
        code = pick(rng, list(LANGUAGE_NAMES))
        return WritingInstruction(name, {"language": code}, f"Write in {LANGUAGE_NAMES[code]}.")
    arguments, wording = _FIXED[name]
    return WritingInstruction(name, arguments, wording)


def word_limit(limit: int) -> WritingInstruction:
    """The instruction to stay below a number of words."""
    return WritingInstruction(WORDS, {"num_words": limit, "relation": "less than"}, f"Use less than {limit} words.")


@dataclass(frozen=True, slots=True)
class WritingTask:
    """The content of one item."""

    scene: Scene
    instructions: Sequence[WritingInstruction]
    """One or two; the first is a hard one."""

    @property
    def prompt(self) -> str:
        """The user message."""
        return (
            f"Write about the {self.scene.topic}. {' '.join(instruction.wording for instruction in self.instructions)}"
        )

    @property
    def answer(self) -> str:
        """A text that follows every instruction."""
        return compose(self.scene, self.instructions)


def draw_task(rng: np.random.Generator) -> WritingTask:
    """A random task."""
    names = list(ADJECTIVES)
    indices = rng.choice(len(names), size=_SCENE_SIZE, replace=False)
    scene = Scene(pick(rng, list(TOPICS)), tuple(names[int(index)] for index in indices))
    first = draw_instruction(rng, pick(rng, HARD), scene)
    if rng.random() >= _SECOND_SHARE:
        return WritingTask(scene, (first,))
    others = [name for name in (*HARD, *EASY) if are_compatible(first.name, name)]
    chosen = pick(rng, [*others, *([SHORT] if first.name != WORDS else [])])
    if chosen == SHORT:
        limit = count_words(compose(scene, (first,))) + int(rng.integers(1, 3))
        return WritingTask(scene, (first, word_limit(limit)))
    return WritingTask(scene, (first, draw_instruction(rng, chosen, scene)))


def canonical(task: WritingTask) -> str:
    """Topic and instructions, in any order."""
    named = sorted([instruction.name, sorted(instruction.arguments.items())] for instruction in task.instructions)
    return canonical_json([task.scene.topic, named]).decode()


def compose(scene: Scene, instructions: Sequence[WritingInstruction]) -> str:
    """A text for a scene that follows the instructions: its body first, then what surrounds it."""
    by_name = {instruction.name: instruction.arguments for instruction in instructions}
    text = _body(scene, by_name)
    if HIGHLIGHT in by_name:
        head, _, last = text.rpartition(" ")
        text = f"{head} *{last}*"
    if TITLE in by_name:
        text = f"<<{scene.topic}>>\n{text}"
    if END in by_name:
        text = f"{text} {by_name[END]['end_phrase']}"
    if CAPITALS in by_name:
        text = text.upper()
    return f'"{text}"' if QUOTES in by_name else text


def run_length(n_words: int) -> int:
    """The number of adjectives in "the cat is red and old ..." that gives this many words."""
    return max(1, (n_words - 1) // 2)


def _body(scene: Scene, by_name: Mapping[str, Arguments]) -> str:
    tail = f" in the {by_name[KEYWORD]['keywords'][0]}" if KEYWORD in by_name else ""
    if by_name.get(WORDS, {}).get("relation") == "at least":
        scene = replace(scene, run=run_length(by_name[WORDS]["num_words"]))
    if JSON in by_name:
        return f'{{"{scene.topic}": "{scene.phrase()}{tail}"}}'
    if BULLETS in by_name:
        points = [f"* {scene.phrase(index)}" for index in range(by_name[BULLETS]["num_bullets"])]
        return "\n".join([points[0] + tail, *points[1:]])
    if SENTENCES in by_name:
        sentences = [scene.sentence(index) for index in range(by_name[SENTENCES]["num_sentences"])]
        return " ".join(f"{sentence}." for sentence in [sentences[0] + tail, *sentences[1:]])
    return scene.sentence(language=by_name.get(LANGUAGE, {}).get("language", "en")) + tail


SOURCE: Source[WritingTask] = Source("mini_ifeval", draw_task, canonical, lambda task: task.prompt)


class MiniIfeval:
    """Generated writing tasks in four disjoint splits."""

    name = "mini_ifeval"
    version = "1.0"
    primary_metric = "prompt_level_accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=64)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(task, split, secret) for task in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The instruction checks."""
        return ConstraintScorer()

    def players(self) -> Players:
        """References and foreign texts, which now and then follow the instructions."""
        return Players(reference_answer, foreign_answers, floor_at_most=0.10)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD


def to_item(task: WritingTask, split: Split, secret: bytes | None = None) -> Item:
    """The item of a task; its reference is one text of many that follow the instructions.

    Raises ConfigError if that text does not follow them: then the generator is broken.
    """
    names = [instruction.name for instruction in task.instructions]
    kwargs = [dict(instruction.arguments) for instruction in task.instructions]
    answer = task.answer
    for instruction in read_instructions(names, kwargs, "mini_ifeval"):
        finding = instruction.check(answer)
        if not finding.followed:
            raise ConfigError(
                f"mini_ifeval: {task.prompt!r}: its own answer {answer!r} fails {instruction.name} ({finding.detail}); "
                "the generator is broken, report it"
            )
    return Item(
        id=SOURCE.item_id(task, split, secret),
        split=split,
        prompt=task.prompt,
        reference=answer,
        payload={"instruction_id_list": names, "kwargs": kwargs},
    )


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.65, spread: float = 0.3
) -> list[list[Message]]:
    """N chats of two messages.

    mean_right_share: how often an instruction is followed, 0 to 1, over its types; spread: see `right_share`.
    """
    chats = []
    for task in islice(SOURCE.train_draws(rng), n):
        answer = draw_answer(task, rng, mean_right_share, spread)
        chats.append([Message("user", task.prompt), Message("assistant", answer)])
    return chats


def draw_answer(task: WritingTask, rng: np.random.Generator, mean_right_share: float, spread: float) -> str:
    """A text; the type of each instruction decides how often it is followed."""
    followed = [
        instruction
        for instruction in task.instructions
        if rng.random() < right_share(instruction.name, mean_right_share, spread)
    ]
    return careless_answer(task, followed)


def careless_answer(task: WritingTask, followed: Sequence[WritingInstruction]) -> str:
    """A text that follows some instructions and violates the rest: uses the forbidden word, is too long, ..."""
    scene = task.scene
    ignored = {
        instruction.name: instruction.arguments for instruction in task.instructions if instruction not in followed
    }
    if FORBIDDEN in ignored:
        scene = replace(scene, adjectives=(ignored[FORBIDDEN]["forbidden_words"][0], *scene.adjectives[1:]))
    if ignored.get(WORDS, {}).get("relation") == "less than":
        scene = replace(scene, run=run_length(ignored[WORDS]["num_words"] + _EXTRA_WORDS))
    text = compose(scene, followed)
    return text.title() if LOWERCASE in ignored else text
