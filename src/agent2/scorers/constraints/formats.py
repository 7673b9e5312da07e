"""Checks of the format class: markdown, JSON, quotation marks, letter case, endings, repetition, punctuation.

They look for the outer sign that an instruction asks for and no further: a title is anything in `<<` and `>>`.
"""

import json
import re

from agent2.scorers.constraints.finding import AT_LEAST, Arguments, Finding, compared, exactly
from agent2.scorers.constraints.languages import is_english
from agent2.scorers.constraints.text import capital_words

CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")
_POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}


def number_placeholders(text: str, arguments: Arguments) -> Finding:
    """At least `num_placeholders` pairs of square brackets, each on one line."""
    count = sum(_bracketed(line) for line in text.split("\n"))
    return compared(count, AT_LEAST, arguments["num_placeholders"], "placeholders")


def postscript(text: str, arguments: Arguments) -> Finding:
    """`postscript_marker` occurs, without case; in `P.S.` and `P.P.S` spaces behind the points are free."""
    marker = arguments["postscript_marker"].strip()
    found = re.search(_POSTSCRIPTS.get(marker, re.escape(marker.lower())), text.lower())
    return Finding(found is not None, f"postscript marker {marker!r} {'found' if found else 'not found'}")


def number_bullet_lists(text: str, arguments: Arguments) -> Finding:
    """Exactly `num_bullets` lines that begin with a hyphen, or with one asterisk and something behind it."""
    lines = [line.lstrip() for line in text.split("\n")]
    count = sum(line.startswith("-") or (line[:1] == "*" and len(line) > 1 and line[1] != "*") for line in lines)
    return exactly(count, arguments["num_bullets"], "bullet points")


def constrained_response(text: str, arguments: Arguments) -> Finding:
    """One of the three published responses occurs as it is written."""
    found = [response for response in CONSTRAINED_RESPONSES if response in text]
    return Finding(bool(found), f"says {found[0]!r}" if found else "none of the three allowed responses")


def number_highlighted_sections(text: str, arguments: Arguments) -> Finding:
    """At least `num_highlights` pieces of text between single or double asterisks on one line."""
    found = [match[1] for pattern in (_HIGHLIGHT, _DOUBLE_HIGHLIGHT) for match in pattern.finditer(text)]
    count = sum(bool(piece.strip()) for piece in found)
    return compared(count, AT_LEAST, arguments["num_highlights"], "highlights")


def multiple_sections(text: str, arguments: Arguments) -> Finding:
    """`section_spliter` and a number occur at least `num_sections` times."""
    splitter = re.escape(arguments["section_spliter"].strip())
    count = sum(1 for _ in re.finditer(rf"{splitter}\s?\d+", text))
    return compared(count, AT_LEAST, arguments["num_sections"], "sections")


def json_format(text: str, arguments: Arguments) -> Finding:
    """The whole text is one JSON value, a markdown fence around it aside."""
    body = text.strip()
    for fence in _FENCES:
        body = body.removeprefix(fence)
    try:
        json.loads(body.removesuffix("```").strip())
    except (ValueError, RecursionError) as error:
        return Finding(False, f"no JSON ({type(error).__name__})")
    return Finding(True, "one JSON value")


def title(text: str, arguments: Arguments) -> Finding:
    """Something stands between `<<` and `>>` on one line."""
    found = any(_has_title(line) for line in text.split("\n"))
    return Finding(found, "a title" if found else "no title in double angular brackets")


def two_responses(text: str, arguments: Arguments) -> Finding:
    """Exactly two different responses around `******`; only the first and the last part may be empty."""
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    followed = all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]
    return Finding(followed, f"{len(set(filled))} different responses")


def repeat_prompt(text: str, arguments: Arguments) -> Finding:
    """The text begins with `prompt_to_repeat`, without case."""
    followed = text.strip().lower().startswith(arguments["prompt_to_repeat"].strip().lower())
    return Finding(followed, f"begins {'with' if followed else 'without'} the request")


def end_checker(text: str, arguments: Arguments) -> Finding:
    """The text ends with `end_phrase`, without case, closing quotation marks aside."""
    phrase = arguments["end_phrase"].strip()
    followed = text.strip().strip('"').lower().endswith(phrase.lower())
    return Finding(followed, f"{'ends' if followed else 'does not end'} with {phrase!r}")


def quotation(text: str, arguments: Arguments) -> Finding:
    """The whole text stands in double quotation marks."""
    body = text.strip()
    followed = len(body) > 1 and body[0] == body[-1] == '"'
    return Finding(followed, f"{'in' if followed else 'not in'} double quotation marks")


def capital_word_frequency(text: str, arguments: Arguments) -> Finding:
    """All-capitals words occur at least, or fewer than, `capital_frequency` times."""
    count = len(capital_words(text))
    return compared(count, arguments["capital_relation"], arguments["capital_frequency"], "words in capitals")


def english_capital(text: str, arguments: Arguments) -> Finding:
    """English, and no letter that is not a capital."""
    if not text.isupper():
        return Finding(False, "not all in capital letters")
    english = is_english(text)
    return Finding(english, "capital letters" + ("" if english else ", but not in English"))


def english_lowercase(text: str, arguments: Arguments) -> Finding:
    """English, and no capital letter."""
    if not text.islower():
        return Finding(False, "not all in lowercase letters")
    english = is_english(text)
    return Finding(english, "lowercase letters" + ("" if english else ", but not in English"))


def no_comma(text: str, arguments: Arguments) -> Finding:
    """No comma anywhere."""
    count = text.count(",")
    return Finding(count == 0, f"{count} commas")


def _bracketed(line: str) -> int:
    count, place = 0, line.find("[")
    while place >= 0 and (end := line.find("]", place)) >= 0:
        count += 1
        place = line.find("[", end)
    return count


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end and bool(line[start:end].lstrip("<").rstrip(">").strip())
