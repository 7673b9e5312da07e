"""What a word, a sentence and an all-capitals word are, as IFEval counts them.

A word is a run of letters with their marks, digits and underscores (`don't` is two). A sentence ends at `.`, `?` or
`!` before white space, unless the mark belongs to an abbreviation, an initial or an ordinal that goes on; line breaks
end nothing. The published checker uses NLTK's trained Punkt model here; ours is a rule with a fixed list of
abbreviations, so it needs no download, and differs where that model has learnt or missed a word (it ends a
sentence after "i.e."; docs/mini-benchmarks.md).
"""

import re
from itertools import pairwise

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
"""Abbreviations that something always follows."""
ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
STARTERS = frozenset(_STARTER_LIST.split())
_SPLIT_OFF = re.compile(r"""\.{2,}|--+|[][(){}<>"`“”«»‘;@#$%&?!]|[:,](?!\d)|(?<=\w)\.(?=["')\]]*$)""")
_SUFFIX = re.compile(r"(.+?)(n't|'(?:s|m|d|re|ve|ll))", re.IGNORECASE)
_CONTRACTION = re.compile(r"(can|gim|gon|got|lem|wan)(not|me|na|ta)", re.IGNORECASE)


def count_words(text: str) -> int:
    """Runs of word characters."""
    return sum(1 for _ in _WORD.finditer(text))


def count_sentences(text: str) -> int:
    """Sentences of a text, see the module's text; a last one without a mark counts."""
    chunks = text.split()
    ends = sum(_ends_between(chunk, following) for chunk, following in pairwise(chunks))
    return ends + bool(chunks)


def capital_words(text: str) -> list[str]:
    """The all-capitals words; a contraction is two (`DON'T`: DO and N'T; CANNOT, GONNA), a hyphenated word is one."""
    found = []
    for chunk in text.split():
        for piece in _SPLIT_OFF.sub(" ", chunk).split():
            suffixed = _SUFFIX.fullmatch(piece) or _CONTRACTION.fullmatch(piece)
            found += [part for part in (suffixed.groups() if suffixed else (piece,)) if part.isupper()]
    return found


def loose_variants(text: str) -> list[str]:
    """The text with and without asterisks, its first line and its last line: a text follows loosely if any does."""
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys(cut + [part.replace("*", "") for part in cut]))


def _ends_between(chunk: str, following: str) -> bool:
    """True if a sentence ends with this chunk of text, given the chunk behind the white space."""
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
