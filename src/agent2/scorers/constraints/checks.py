"""Checks of verifiable instructions: lengths, language, formats and keywords, as IFEval counts them.

    lengths    A word is a run of letters with their marks, digits and underscores (`don't` is two). A sentence ends at
               `.`, `?` or `!` before white space, unless the mark belongs to an abbreviation, an initial or an ordinal
               within a sentence; line breaks end nothing. The published checker uses NLTK's trained Punkt model here;
               ours is a rule with a fixed list of abbreviations, so it needs no download, and differs where that model
               has learnt or missed a word (it ends a sentence after "i.e."; docs/mini-benchmarks.md)
    language   By the published checker's detector with a fixed seed (`languages.py`). Where nothing indicates a
               language (digits, a formula, a word or two, a list of names), the instruction counts as followed
    formats    Markdown, JSON, quotation marks, letter case, endings, repetition, punctuation. Only the outer sign of
               what an instruction asks for: a title is anything in `<<` and `>>`
    keywords   Searched literally and ignoring case, also inside longer words, as in the published checker (which takes
               them for regular expressions). Forbidden words count as whole words only

Promises: deterministic. Does NOT know dialects, or a second language within a text: the likeliest one wins.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from agent2.records import JsonValue
from agent2.scorers.constraints.languages import detect_language, is_in

AT_LEAST, LESS_THAN = "at least", "less than"
RELATIONS = (LESS_THAN, AT_LEAST)
_MARKS_IN_WORDS = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e\u200c\u200d"
_WORD = re.compile(rf"\w[\w{_MARKS_IN_WORDS}]*")
_MARKS = ".?!"
_CLOSING = "\"')]}*_’”»"
_OPENING = "\"'([{*_`‘“«#>-–—•"
_TITLE_LIST = "mr mrs ms dr prof st messrs rep reps sen gen col maj lt adm capt vs e.g i.e cf fig vol"
_ABBREVIATION_LIST = """
    sr jr inc ltd co corp bros cie jan feb mar apr aug sep sept oct nov dec mon tues wed fri ph.d m.b.a a.m p.m u.s
    u.k u.n u.s.a d.c l.a n.y ave ft yr
"""
_STARTER_LIST = """
    he she it they we you i this that these those there the a an but and so if when while although however in since
    some most many both such then thus yet under despite though instead moreover nevertheless indeed even meanwhile
    my your his her its our their what who how why where please for
"""
TITLES = frozenset(_TITLE_LIST.split())
"""Abbreviations that never end a sentence."""
ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
STARTERS = frozenset(_STARTER_LIST.split())
_SPLIT_OFF = re.compile(r"""\.{2,}|--+|[][(){}<>"`“”«»‘;@#$%&?!]|[:,](?!\d)|(?<=\w)\.(?=["')\]]*$)""")
_SUFFIX = re.compile(r"(.+?)(n't|'(?:s|m|d|re|ve|ll))", re.IGNORECASE)
_CONTRACTION = re.compile(r"(can|gim|gon|got|lem|wan)(not|me|na|ta)", re.IGNORECASE)
CONSTRAINED_RESPONSES = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")
_POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
MISSING = "ifeval_keyword_missing"
FORBIDDEN = "ifeval_keyword_forbidden"
FREQUENCY = "ifeval_letter_frequency_violation"
DIVIDER = re.compile(r"\s?\*\*\*\s?")


class InstructionClass(StrEnum):
    """The four classes in which failures are counted."""

    KEYWORD = "keyword"
    LENGTH = "length"
    FORMAT = "format"
    LANGUAGE = "language"


@dataclass(frozen=True, slots=True)
class ConstraintFinding:
    """The verdict on one instruction for one text."""

    followed: bool
    detail: str
    """What the text has, against what was asked for: "7 words, at least 10 asked for"."""
    label: str = ""
    """The badcase class of a failure, where that of the instruction's class is too coarse."""


Arguments = Mapping[str, JsonValue]
Check = Callable[[str, Arguments], ConstraintFinding]
"""Takes the text and the instruction's arguments by their published names."""


def compared(count: int, relation: str, threshold: int, unit: str) -> ConstraintFinding:
    """Whether a count is in the published relation (`at least`, `less than`) to the requested number."""
    followed = count >= threshold if relation == AT_LEAST else count < threshold
    return ConstraintFinding(followed, f"{count} {unit}, {relation} {threshold} asked for")


def exactly(count: int, expected: int, unit: str) -> ConstraintFinding:
    """Whether a count is the requested number."""
    return ConstraintFinding(count == expected, f"{count} {unit}, exactly {expected} asked for")


def count_words(text: str) -> int:
    """Runs of word characters."""
    return sum(1 for _ in _WORD.finditer(text))


def count_sentences(text: str) -> int:
    """Sentences of a text, see the module's docstring; a last one without a mark counts."""
    chunks = text.split()
    ends = sum(_ends_between(chunk, following) for chunk, following in pairwise(chunks))
    return ends + bool(chunks)


def capital_words(text: str) -> list[str]:
    """The all-capitals words; a contraction is two (`DON'T`: DO and N'T; CANNOT, GONNA), a hyphenated word is one."""
    capitals = []
    for chunk in text.split():
        for piece in _SPLIT_OFF.sub(" ", chunk).split():
            suffixed = _SUFFIX.fullmatch(piece) or _CONTRACTION.fullmatch(piece)
            capitals += [part for part in (suffixed.groups() if suffixed else (piece,)) if part.isupper()]
    return capitals


def loose_variants(text: str) -> list[str]:
    """The text with and without asterisks, its first line and its last line: a text follows loosely if any does."""
    lines = text.split("\n")
    variants = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys(variants + [variant.replace("*", "") for variant in variants]))


def _ends_between(chunk: str, following: str) -> bool:
    """Whether a sentence ends with this chunk of text. following: the next chunk, after the white space."""
    marked = chunk.rstrip(_CLOSING)
    word = marked.rstrip(_MARKS)
    marks = marked[len(word) :]
    following = following.lstrip(_OPENING)
    if not marks or marks[-1] != ".":
        return bool(marks)
    word = word.lstrip(_OPENING)
    plain = word.rpartition("-")[2].casefold()
    if plain in TITLES and len(marks) == 1:
        return False
    if plain == "etc" and len(marks) == 1:
        return following[:1].isupper()
    if len(marks) > 1 or plain in ABBREVIATIONS:
        return _is_starter(following)
    if len(word) == 1 and word.isalpha() and word != "I":
        return _is_starter(following)
    if word.strip("+-$£€.,").replace(",", "").replace(".", "").isdecimal():
        return not following[:1].islower()
    return True


def _is_starter(following: str) -> bool:
    first = _WORD.match(following)
    return following[:1].isupper() and first is not None and first.group().casefold() in STARTERS


def is_english(text: str) -> bool:
    """Whether a text is in English, or speaks for no language."""
    return is_in(text, "en")


def response_language(text: str, arguments: Arguments) -> ConstraintFinding:
    """The text is in `language`, or speaks for none and has its letters."""
    requested = str(arguments["language"])
    detected = detect_language(text) or "cannot be determined"
    return ConstraintFinding(is_in(text, requested), f"language {detected}, {requested} asked for")


def number_placeholders(text: str, arguments: Arguments) -> ConstraintFinding:
    """At least `num_placeholders` pairs of square brackets, each on one line."""
    count = sum(_bracketed(line) for line in text.split("\n"))
    return compared(count, AT_LEAST, arguments["num_placeholders"], "placeholders")


def postscript(text: str, arguments: Arguments) -> ConstraintFinding:
    """`postscript_marker` occurs, ignoring case; in `P.S.` and `P.P.S` a space behind a point is optional."""
    marker = arguments["postscript_marker"].strip()
    occurs = re.search(_POSTSCRIPTS.get(marker, re.escape(marker.lower())), text.lower()) is not None
    return ConstraintFinding(occurs, f"postscript marker {marker!r} {'found' if occurs else 'not found'}")


def number_bullet_lists(text: str, arguments: Arguments) -> ConstraintFinding:
    """Exactly `num_bullets` lines that begin with a hyphen, or with one asterisk and something behind it."""
    lines = [line.lstrip() for line in text.split("\n")]
    count = sum(line.startswith("-") or (line[:1] == "*" and len(line) > 1 and line[1] != "*") for line in lines)
    return exactly(count, arguments["num_bullets"], "bullet points")


def constrained_response(text: str, arguments: Arguments) -> ConstraintFinding:
    """One of the three published responses occurs as it is written."""
    responses = [response for response in CONSTRAINED_RESPONSES if response in text]
    detail = f"says {responses[0]!r}" if responses else "none of the three allowed responses"
    return ConstraintFinding(bool(responses), detail)


def number_highlighted_sections(text: str, arguments: Arguments) -> ConstraintFinding:
    """At least `num_highlights` pieces of text between single or double asterisks on one line."""
    highlights = [match[1] for pattern in (_HIGHLIGHT, _DOUBLE_HIGHLIGHT) for match in pattern.finditer(text)]
    count = sum(bool(highlight.strip()) for highlight in highlights)
    return compared(count, AT_LEAST, arguments["num_highlights"], "highlights")


def multiple_sections(text: str, arguments: Arguments) -> ConstraintFinding:
    """`section_spliter` and a number occur at least `num_sections` times (the spelling is IFEval's)."""
    splitter = re.escape(arguments["section_spliter"].strip())
    count = sum(1 for _ in re.finditer(rf"{splitter}\s?\d+", text))
    return compared(count, AT_LEAST, arguments["num_sections"], "sections")


def json_format(text: str, arguments: Arguments) -> ConstraintFinding:
    """The whole text is one JSON value, except for a markdown fence around it."""
    body = text.strip()
    for fence in _FENCES:
        body = body.removeprefix(fence)
    try:
        json.loads(body.removesuffix("```").strip())
    except (ValueError, RecursionError) as error:
        return ConstraintFinding(False, f"no JSON ({type(error).__name__})")
    return ConstraintFinding(True, "one JSON value")


def title(text: str, arguments: Arguments) -> ConstraintFinding:
    """There is text between `<<` and `>>` on one line."""
    has_title = any(_has_title(line) for line in text.split("\n"))
    return ConstraintFinding(has_title, "a title" if has_title else "no title in double angular brackets")


def two_responses(text: str, arguments: Arguments) -> ConstraintFinding:
    """Exactly two different responses around `******`; only the first and the last part may be empty."""
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    followed = all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]
    return ConstraintFinding(followed, f"{len(set(filled))} different responses")


def repeat_prompt(text: str, arguments: Arguments) -> ConstraintFinding:
    """The text begins with `prompt_to_repeat`, ignoring case."""
    followed = text.strip().lower().startswith(arguments["prompt_to_repeat"].strip().lower())
    return ConstraintFinding(followed, f"begins {'with' if followed else 'without'} the request")


def end_checker(text: str, arguments: Arguments) -> ConstraintFinding:
    """The text ends with `end_phrase`, ignoring case and closing quotation marks."""
    phrase = arguments["end_phrase"].strip()
    followed = text.strip().strip('"').lower().endswith(phrase.lower())
    return ConstraintFinding(followed, f"{'ends' if followed else 'does not end'} with {phrase!r}")


def quotation(text: str, arguments: Arguments) -> ConstraintFinding:
    """The whole text is in double quotation marks."""
    body = text.strip()
    followed = len(body) > 1 and body[0] == body[-1] == '"'
    return ConstraintFinding(followed, f"{'in' if followed else 'not in'} double quotation marks")


def capital_word_frequency(text: str, arguments: Arguments) -> ConstraintFinding:
    """All-capitals words occur at least, or fewer than, `capital_frequency` times."""
    count = len(capital_words(text))
    return compared(count, arguments["capital_relation"], arguments["capital_frequency"], "words in capitals")


def english_capital(text: str, arguments: Arguments) -> ConstraintFinding:
    """English, and no letter that is not a capital."""
    if not text.isupper():
        return ConstraintFinding(False, "not all in capital letters")
    english = is_english(text)
    return ConstraintFinding(english, "capital letters" + ("" if english else ", but not in English"))


def english_lowercase(text: str, arguments: Arguments) -> ConstraintFinding:
    """English, and no capital letter."""
    if not text.islower():
        return ConstraintFinding(False, "not all in lowercase letters")
    english = is_english(text)
    return ConstraintFinding(english, "lowercase letters" + ("" if english else ", but not in English"))


def no_comma(text: str, arguments: Arguments) -> ConstraintFinding:
    """No comma anywhere."""
    count = text.count(",")
    return ConstraintFinding(count == 0, f"{count} commas")


def _bracketed(line: str) -> int:
    # Not a regular expression: over many openings without a close `\[.*?\]` takes quadratic time.
    count, start = 0, line.find("[")
    while start >= 0 and (end := line.find("]", start)) >= 0:
        count += 1
        start = line.find("[", end)
    return count


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end and bool(line[start:end].lstrip("<").rstrip(">").strip())


def existence(text: str, arguments: Arguments) -> ConstraintFinding:
    """Every one of `keywords` occurs."""
    missing = sorted(word for word in arguments["keywords"] if not _occurrences(word, text))
    detail = f"without {', '.join(map(repr, missing))}" if missing else "every keyword is there"
    return ConstraintFinding(not missing, detail, MISSING)


def frequency(text: str, arguments: Arguments) -> ConstraintFinding:
    """`keyword` occurs at least, or fewer than, `frequency` times."""
    keyword = arguments["keyword"].strip()
    finding = compared(_occurrences(keyword, text), arguments["relation"], arguments["frequency"], f"times {keyword!r}")
    return replace(finding, label=MISSING if arguments["relation"] == AT_LEAST else FORBIDDEN)


def forbidden_words(text: str, arguments: Arguments) -> ConstraintFinding:
    """None of `forbidden_words` occurs as a word of its own."""
    used = sorted(
        word
        for word in set(arguments["forbidden_words"])
        if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
    )
    detail = f"with the forbidden {', '.join(map(repr, used))}" if used else "no forbidden word is there"
    return ConstraintFinding(not used, detail, FORBIDDEN)


def letter_frequency(text: str, arguments: Arguments) -> ConstraintFinding:
    """`letter`, in either case, occurs at least, or fewer than, `let_frequency` times; it may be any character."""
    letter = arguments["letter"].strip().lower()
    finding = compared(
        text.lower().count(letter), arguments["let_relation"], arguments["let_frequency"], f"times {letter!r}"
    )
    return replace(finding, label=FREQUENCY)


def _occurrences(keyword: str, text: str) -> int:
    return sum(1 for _ in re.finditer(re.escape(keyword), text, re.IGNORECASE))


def number_words(text: str, arguments: Arguments) -> ConstraintFinding:
    """At least, or fewer than, `num_words` words."""
    return compared(count_words(text), arguments["relation"], arguments["num_words"], "words")


def number_sentences(text: str, arguments: Arguments) -> ConstraintFinding:
    """At least, or fewer than, `num_sentences` sentences."""
    return compared(count_sentences(text), arguments["relation"], arguments["num_sentences"], "sentences")


def number_paragraphs(text: str, arguments: Arguments) -> ConstraintFinding:
    """Exactly `num_paragraphs`, divided by `***`; only the first and the last may be empty, and do not count then."""
    parts = [part.strip() for part in DIVIDER.split(text)]
    inner_empty = not all(parts[1:-1])
    n_filled = sum(map(bool, parts))
    if inner_empty:
        return ConstraintFinding(False, "an empty paragraph between two dividers")
    return exactly(n_filled, arguments["num_paragraphs"], "paragraphs")


def nth_paragraph_first_word(text: str, arguments: Arguments) -> ConstraintFinding:
    """`num_paragraphs` paragraphs between empty lines, of which number `nth_paragraph` starts with `first_word`."""
    parts = text.split("\n\n")
    n_filled = sum(bool(part.strip()) for part in parts)
    nth = arguments["nth_paragraph"]
    paragraph = parts[nth - 1].strip() if 1 <= nth <= n_filled else ""
    if not paragraph:
        return ConstraintFinding(False, f"{n_filled} paragraphs, none with number {nth}")
    counted = exactly(n_filled, arguments["num_paragraphs"], "paragraphs")
    word = paragraph.split()[0].lstrip("'").lstrip('"')
    first = re.split(r"[.,?!'\"]", word, maxsplit=1)[0].lower()
    return ConstraintFinding(
        counted.followed and first == arguments["first_word"].lower(),
        f"{counted.detail}; number {nth} starts with {first!r}",
    )
