"""Checks of the length class: words, sentences, paragraphs, and the first word of one paragraph."""

import re

from agent2.scorers.constraints.finding import Arguments, Finding, compared, exactly
from agent2.scorers.constraints.text import count_sentences, count_words

DIVIDER = re.compile(r"\s?\*\*\*\s?")


def number_words(text: str, arguments: Arguments) -> Finding:
    """At least, or fewer than, `num_words` words."""
    return compared(count_words(text), arguments["relation"], arguments["num_words"], "words")


def number_sentences(text: str, arguments: Arguments) -> Finding:
    """At least, or fewer than, `num_sentences` sentences."""
    return compared(count_sentences(text), arguments["relation"], arguments["num_sentences"], "sentences")


def number_paragraphs(text: str, arguments: Arguments) -> Finding:
    """Exactly `num_paragraphs`, divided by `***`; only the first and the last may be empty, and do not count then."""
    parts = [part.strip() for part in DIVIDER.split(text)]
    inner_empty = not all(parts[1:-1])
    n_filled = sum(map(bool, parts))
    if inner_empty:
        return Finding(False, "an empty paragraph between two dividers")
    return exactly(n_filled, arguments["num_paragraphs"], "paragraphs")


def nth_paragraph_first_word(text: str, arguments: Arguments) -> Finding:
    """`num_paragraphs` paragraphs between empty lines, of which number `nth_paragraph` starts with `first_word`."""
    parts = text.split("\n\n")
    n_filled = sum(bool(part.strip()) for part in parts)
    nth = arguments["nth_paragraph"]
    paragraph = parts[nth - 1].strip() if 1 <= nth <= n_filled else ""
    if not paragraph:
        return Finding(False, f"{n_filled} paragraphs, none with number {nth}")
    counted = exactly(n_filled, arguments["num_paragraphs"], "paragraphs")
    word = paragraph.split()[0].lstrip("'").lstrip('"')
    first = re.split(r"[.,?!'\"]", word, maxsplit=1)[0].lower()
    wanted = arguments["first_word"].lower()
    return Finding(counted.followed and first == wanted, f"{counted.seen}; number {nth} starts with {first!r}")
