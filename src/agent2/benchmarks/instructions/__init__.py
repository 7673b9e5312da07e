"""The instructions benchmark: short texts under one to three verifiable constraints, for a real language model.

An item asks for a short text of a kind ("a birthday message") about a topic, under constraints of IFEval's own types in
our own wording. A program checks every constraint with the rules of the published checker; the score is 1 if all are
followed literally, else 0 (prompt level, strict). There are no reference answers: a model has to find out by trying.

Some constraints are easy for an instruction-tuned model (at most so many words), others it hardly ever meets by
itself (lower case only), so that exploration is seen. `compose` writes a dull text that follows any item, which shows
that every item can be solved; it is for the check of the task.

Promises: no two splits share a request (kind, topic and constraints). Does NOT judge whether the text is about its
topic or any good: a model can earn the score with nonsense that follows the constraints, as it can on IFEval. Look at
IFEval itself, at length and retention beside it (docs/real-models.md). Scores do NOT compare with published IFEval:
items are our own and shorter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Player, Players, Source, at_random, pick
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.records import Environment, Item, JsonValue, Message, SamplingSettings, Scorer, Split, canonical_json
from agent2.scorers.constraints import ConstraintScorer
from agent2.scorers.constraints.checks import Arguments

KINDS = (
    "note", "poem", "announcement", "slogan", "message", "tip", "greeting", "advert", "diary entry", "summary",
    "invitation", "thank-you card",
)  # fmt: skip
TOPICS = (
    "a rainy day", "coffee", "a lost dog", "learning chess", "the sea", "a new bicycle", "winter", "gardening",
    "a long train ride", "music", "a birthday", "robots", "cheese", "running", "the moon", "a library", "moving house",
    "spiders", "bread", "friendship", "a broken lamp", "the first snow", "a school play", "old photographs",
    "a quiet lake", "cooking for friends", "a night market", "lost keys", "a mountain hut", "painting a fence",
    "the last bus", "a football match", "growing tomatoes", "a power cut", "a letter from home", "early mornings",
)  # fmt: skip
WORDS = ("river", "blue", "happy", "window", "green", "golden", "quiet", "paper", "summer", "bright", "stone", "garden")
END_PHRASES = ("The end.", "That is all for now.", "See you soon.", "Thank you for reading.")
_N_CONSTRAINTS = (1, 1, 2, 2, 3)
"""Drawn evenly: two in five items have one constraint, two in five have two, one in five has three."""

LOWERCASE = "change_case:english_lowercase"
CAPITALS = "change_case:english_capital"
NO_COMMA = "punctuation:no_comma"
KEYWORD = "keywords:existence"
FORBIDDEN = "keywords:forbidden_words"
N_WORDS = "length_constraints:number_words"
N_SENTENCES = "length_constraints:number_sentences"
QUOTES = "startend:quotation"
END = "startend:end_checker"
TITLE = "detectable_format:title"
BULLETS = "detectable_format:number_bullet_lists"
HIGHLIGHT = "detectable_format:number_highlighted_sections"
POSTSCRIPT = "detectable_content:postscript"
TYPES = (
    LOWERCASE, CAPITALS, NO_COMMA, KEYWORD, FORBIDDEN, N_WORDS, N_SENTENCES, QUOTES, END, TITLE, BULLETS, HIGHLIGHT,
    POSTSCRIPT,
)  # fmt: skip
_APART: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        LOWERCASE: frozenset({CAPITALS, POSTSCRIPT}),
        N_WORDS: frozenset({N_SENTENCES}),
        N_SENTENCES: frozenset({BULLETS, END, POSTSCRIPT}),
        BULLETS: frozenset({HIGHLIGHT, QUOTES}),
        POSTSCRIPT: frozenset({END}),
        FORBIDDEN: frozenset({END}),
    }
)
"""Types that do not occur together: they contradict each other, or one's signs are the other's."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a request."""

    name: str
    """IFEval's."""
    arguments: Arguments
    wording: str


@dataclass(frozen=True, slots=True)
class WritingRequest:
    """The content of one item."""

    kind: str
    topic: str
    constraints: Sequence[Constraint]

    @property
    def prompt(self) -> str:
        """The user message."""
        wordings = " ".join(constraint.wording for constraint in self.constraints)
        return f"Write a short {self.kind} about {self.topic}. {wordings}"


def draw_request(rng: np.random.Generator) -> WritingRequest:
    """A random request."""
    kind, topic = pick(rng, KINDS), pick(rng, TOPICS)
    names: list[str] = []
    for _ in range(pick(rng, _N_CONSTRAINTS)):
        names.append(pick(rng, [name for name in TYPES if all(are_compatible(name, before) for before in names)]))
    return WritingRequest(kind, topic, tuple(draw_constraint(rng, name) for name in names))


def are_compatible(first: str, second: str) -> bool:
    """Whether two types may occur in one request."""
    return first != second and second not in _APART.get(first, ()) and first not in _APART.get(second, ())


def draw_constraint(rng: np.random.Generator, name: str) -> Constraint:
    """A constraint of a type with random arguments."""
    word, number = pick(rng, WORDS), int(rng.integers(2, 4))
    limit, phrase = int(rng.choice((20, 25, 30, 40))), pick(rng, END_PHRASES)
    options: dict[str, tuple[dict[str, JsonValue], str]] = {
        LOWERCASE: ({}, "Use only lowercase letters."),
        CAPITALS: ({}, "Use only capital letters."),
        NO_COMMA: ({}, "Do not use any commas."),
        KEYWORD: ({"keywords": [word]}, f'Include the word "{word}".'),
        FORBIDDEN: ({"forbidden_words": ["the"]}, 'Do not use the word "the".'),
        N_WORDS: ({"num_words": limit, "relation": "less than"}, f"Use fewer than {limit} words."),
        N_SENTENCES: ({"num_sentences": number, "relation": "less than"}, f"Write fewer than {number} sentences."),
        QUOTES: ({}, "Wrap your whole answer in double quotation marks."),
        END: ({"end_phrase": phrase}, f'End your answer with the exact phrase "{phrase}"'),
        TITLE: ({}, "Give it a title in double angular brackets, such as <<title>>."),
        BULLETS: ({"num_bullets": number}, f'Write exactly {number} bullet points, each starting with "* ".'),
        HIGHLIGHT: ({"num_highlights": 1}, "Highlight at least one part with asterisks, such as *this part*."),
        POSTSCRIPT: ({"postscript_marker": "P.S."}, "Add a postscript at the end that starts with P.S."),
    }
    arguments, wording = options[name]
    return Constraint(name, MappingProxyType(arguments), wording)


def canonical(request: WritingRequest) -> str:
    """Kind, topic and constraints, in any order."""
    named = sorted([constraint.name, sorted(constraint.arguments.items())] for constraint in request.constraints)
    return canonical_json([request.kind, request.topic, named]).decode()


def compose(constraints: Mapping[str, Arguments]) -> str:
    """A text that follows constraints, by name; the same for every topic."""
    body = "we made it for you today"
    if KEYWORD in constraints:
        body = f"{body} with a {constraints[KEYWORD]['keywords'][0]} look"
    if HIGHLIGHT in constraints:
        body = body.replace("today", "*today*")
    if BULLETS in constraints:
        more = "\n* you are welcome" * (constraints[BULLETS]["num_bullets"] - 1)
        body = f"* {body}{more}"
    elif END in constraints:
        body = f"{body}."
    if TITLE in constraints:
        body = f"<<some news>>\n{body}"
    if POSTSCRIPT in constraints:
        body = f"{body}\nP.S. come soon"
    if END in constraints:
        body = f"{body}\n{constraints[END]['end_phrase']}"
    if CAPITALS in constraints:
        body = body.upper()
    if LOWERCASE in constraints:
        body = body.lower()
    return f'"{body}"' if QUOTES in constraints else body


SOURCE: Source[WritingRequest] = Source("instructions", draw_request, canonical, lambda request: request.prompt)


class Instructions:
    """Generated writing requests in four disjoint splits."""

    name = "instructions"
    version = "1.0"
    primary_metric = "prompt_level_accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.5, max_tokens=96)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [
            Item(
                id=SOURCE.item_id(request, split, secret),
                split=split,
                prompt=request.prompt,
                payload={
                    "instruction_id_list": [constraint.name for constraint in request.constraints],
                    "kwargs": [dict(constraint.arguments) for constraint in request.constraints],
                },
            )
            for request in SOURCE.first(split, n, secret)
        ]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The instruction checks."""
        return ConstraintScorer()

    def players(self) -> Players:
        """The composed text, and texts composed for other items, which now and then follow the constraints."""
        return Players(_solve, _foreign_texts, floor_at_most=0.25)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD


def _solve(item: Item, chat: Sequence[Message]) -> str:
    return compose(_constraints_of(item))


def _foreign_texts(items: Sequence[Item]) -> Player:
    """Answers with the text for another item, drawn at random."""

    def reply(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
        foreign_item = pick(rng, [candidate for candidate in items if candidate.id != item.id] or [item])
        return compose(_constraints_of(foreign_item))

    return at_random(reply)(items)


def _constraints_of(item: Item) -> dict[str, Arguments]:
    names, kwargs = item.payload["instruction_id_list"], item.payload["kwargs"]
    assert isinstance(names, list) and isinstance(kwargs, list)
    return {str(name): dict(arguments) for name, arguments in zip(names, kwargs, strict=True)}
