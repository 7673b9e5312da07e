"""The instructions that a writing task may carry, in IFEval's own types, and which of them go together.

A *hard* instruction takes an effort: a text written without it in mind hardly ever follows it. An *easy* one only
narrows a text; it comes second. The wording is ours and short.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.mini_ifeval.writing import ADJECTIVES, LANGUAGE_NAMES, Scene
from agent2.records import JsonValue

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
"""A text has one of these shapes at most."""
_APART: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        JSON: frozenset({HIGHLIGHT, TITLE, END, QUOTES, CAPITALS, LOWERCASE}),
        LANGUAGE: frozenset({KEYWORD, FORBIDDEN, TITLE, END, CAPITALS, LOWERCASE}),
        BULLETS: frozenset({HIGHLIGHT, QUOTES}),
        CAPITALS: frozenset({LOWERCASE}),
    }
)
"""What cannot, or should not, be asked for together."""

PLACES = ("sun", "rain", "snow", "wind", "dark", "park")
END_PHRASES = ("good night", "thank you", "see you soon", "that is all")


Arguments = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Wish:
    """One instruction."""

    name: str
    """The published instruction type."""
    arguments: Arguments
    wording: str


def go_together(one: str, other: str) -> bool:
    """True if two instruction types may stand in one task."""
    both_shapes = one in _SHAPES and other in _SHAPES
    return one != other and not both_shapes and other not in _APART.get(one, ()) and one not in _APART.get(other, ())


def draw_wish(rng: np.random.Generator, name: str, scene: Scene) -> Wish:
    """An instruction of one type with random arguments that fit the scene."""
    number = int(rng.integers(2, 4))
    if name == KEYWORD:
        word = pick(rng, PLACES)
        return Wish(name, {"keywords": [word]}, f"Use the word {word}.")
    if name == FORBIDDEN:
        word = pick(rng, [one for one in ADJECTIVES if one not in scene.adjectives])
        return Wish(name, {"forbidden_words": [word]}, f"Do not use the word {word}.")
    if name == WORDS:
        number = int(rng.integers(8, 12))
        return Wish(name, {"num_words": number, "relation": "at least"}, f"Use at least {number} words.")
    if name == SENTENCES:
        return Wish(name, {"num_sentences": number, "relation": "at least"}, f"Use at least {number} sentences.")
    if name == BULLETS:
        return Wish(name, {"num_bullets": number}, f"Give {number} bullet points.")
    if name == END:
        phrase = pick(rng, END_PHRASES)
        return Wish(name, {"end_phrase": phrase}, f'End with "{phrase}".')
    if name == LANGUAGE:
        code = pick(rng, list(LANGUAGE_NAMES))
        return Wish(name, {"language": code}, f"Write in {LANGUAGE_NAMES[code]}.")
    arguments, wording = _FIXED[name]
    return Wish(name, arguments, wording)


def short_text(limit: int) -> Wish:
    """The instruction to stay below a number of words."""
    return Wish(WORDS, {"num_words": limit, "relation": "less than"}, f"Use less than {limit} words.")


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


def pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    """One of the choices, evenly."""
    return choices[int(rng.integers(len(choices)))]
