"""Edits of a text until it follows the constraints of an item of `instructions`, with as much of it left as possible.

One short rule for each kind of constraint. Does NOT decide whether an edit follows them: the task's verifier does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

MOST_WORDS = 24
"""Of a text's own; short ones are sampled and learned in less time."""
LEAST_WORDS = 4
"""Fewer are not a text."""


def edits(text: str, constraints: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The edited text from its longest to its shortest form; empty where it has fewer than four words of its own.

    constraints: arguments of each, by their published names.
    """
    sentences = [sentence.split() for sentence in plain_sentences(without(text, constraints))]
    plain = list(chain(*sentences))
    # Whole sentences, or else the beginning of the first.
    lengths = (
        {*accumulate(map(len, sentences)), *(n for n in (24, 16, 12, 9, 6, 4) if n < len(sentences[0]))}
        if plain
        else ()
    )
    for length in sorted((n for n in lengths if LEAST_WORDS <= n <= MOST_WORDS), reverse=True):
        body = " ".join(plain[:length]).rstrip(" .,;:-!?") + "."
        yield dressed(body[0].upper() + body[1:], constraints)


def without(text: str, constraints: Mapping[str, Mapping[str, Any]]) -> str:
    """The text without what is forbidden."""
    for word in constraints.get("keywords:forbidden_words", {}).get("forbidden_words", ()):
        text = re.sub(rf"\b{re.escape(word)}\b", "", text, flags=re.IGNORECASE)
    return text.replace(",", "") if "punctuation:no_comma" in constraints else text


def plain_sentences(text: str) -> list[str]:
    """The sentences without marks, titles and lists, up to where three words are said again."""
    tokens = plain_tokens(text)
    text = " ".join(tokens[: length_without_repetition(tokens)])
    return [sentence for sentence in re.split(r"(?<=[.!?])\s+", text) if re.search(r"\w", sentence)]


def plain_tokens(text: str) -> list[str]:
    """What blanks divide, without marks, titles and lists."""
    text = re.sub(r"<<[^>]*>>|P\.\s?S\.?|^\s*(?:[-*•]|\d+\.)\s", " ", text, flags=re.MULTILINE)
    return re.sub(r'[*"#<>`_\[\](){}|~“”]', " ", text).split()


def length_without_repetition(tokens: Sequence[str]) -> int:
    """Words before three in a row occur again: a small model that repeats itself goes on to its last token."""
    plain = [re.sub(r"\W", "", token).lower() for token in tokens]
    earlier: set[tuple[str, ...]] = set()
    for start in range(len(plain) - 2):
        three = tuple(plain[start : start + 3])
        if three in earlier:
            return start
        earlier.add(three)
    return len(tokens)


def dressed(body: str, constraints: Mapping[str, Mapping[str, Any]]) -> str:
    """A text of one or more sentences with everything that constraints ask for."""
    opening = " ".join(body.rstrip(".").split()[:3])
    for word in constraints.get("keywords:existence", {}).get("keywords", ()):
        if not re.search(rf"\b{re.escape(word)}\b", body, flags=re.IGNORECASE):
            body = f"{word.capitalize()}: {body[0].lower()}{body[1:]}"
    postscript = ""
    if "detectable_content:postscript" in constraints:
        body, second = parts_of(body.split(), 2)
        postscript = f"\nP.S. {second}"
    if "detectable_format:number_highlighted_sections" in constraints:
        first, blank, after = body.partition(" ")
        body = f"*{first.strip('.:')}*{blank}{after}"
    if "detectable_format:number_bullet_lists" in constraints:
        n_bullets = constraints["detectable_format:number_bullet_lists"]["num_bullets"]
        body = "\n".join(f"* {part}" for part in parts_of(body.split(), n_bullets))
    title = f"<<{opening}>>\n" if "detectable_format:title" in constraints else ""
    end = constraints.get("startend:end_checker", {}).get("end_phrase", "")
    text = f"{title}{body}{postscript}" + (f"\n{end}" if end else "")
    if "change_case:english_capital" in constraints:
        text = text.upper()
    if "change_case:english_lowercase" in constraints:
        text = text.lower()
    return f'"{text}"' if "startend:quotation" in constraints else text


def parts_of(tokens: Sequence[str], n_parts: int) -> list[str]:
    """Words in so many runs of nearly equal length."""
    cuts = [round(number * len(tokens) / n_parts) for number in range(n_parts + 1)]
    return [" ".join(tokens[start:stop]) for start, stop in pairwise(cuts)]
